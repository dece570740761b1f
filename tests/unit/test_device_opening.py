"""Opening the control of a GPU's clocks where daemons cannot be reached: a refusal in a sentence, whatever is there."""

from pathlib import Path

import pytest
from another_user import another_user

from perseus_dist.device.observe import ObserveOnly
from perseus_dist.device.opening import open_clock_control

GPU = "GPU-00000000-0000-0000-0000-000000000000"


@pytest.mark.parametrize("mode", ["clockd", "zeusd", "auto"])
def test_a_folder_of_daemons_that_may_not_be_looked_into_leaves_the_gpu_observed(mode: str, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o000)
    environ = {
        "PERSEUS_CLOCKD_SOCKET": str(closed / "clockd.sock"),
        "ZEUSD_SOCK_PATH": str(closed / "zeusd.sock"),
        "PERSEUS_LEASE_DIR": str(tmp_path / "leases"),
    }
    with another_user():
        control = open_clock_control(mode, GPU, own_pids=(), environ=environ)
    assert isinstance(control, ObserveOnly)
    assert "cannot be reached (Permission denied)" in control.refusal


def test_daemons_that_are_not_there_are_said_not_to_be_there(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    environ = {
        "PERSEUS_CLOCKD_SOCKET": str(tmp_path / "clockd.sock"),
        "ZEUSD_SOCK_PATH": str(tmp_path / "file/zeusd.sock"),
    }
    control = open_clock_control("auto", GPU, own_pids=(), environ=environ)
    assert f"clockd: no socket at {tmp_path}/clockd.sock" in control.refusal
    assert f"zeusd: no socket at {tmp_path}/file/zeusd.sock" in control.refusal
