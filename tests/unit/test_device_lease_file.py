"""Lease files: exclusive while held, and remembered when the holder dies."""

import os
from pathlib import Path

import pytest

from perseus_dist.device.lease.connectors import clockd_socket, zeusd_socket
from perseus_dist.device.lease.file import LeaseFile, LeaseFileError, lease_folder, prepare_lease_folder, touched_gpus

GPU = "GPU-0000"


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    first, second = LeaseFile(tmp_path, GPU), LeaseFile(tmp_path, GPU)
    assert not first.take("clockd for process 7")
    first.touch()
    with pytest.raises(LeaseFileError, match="clockd for process 7"):
        second.take("another")
    first.clear()
    first.give_back()
    assert not second.take("another")
    second.give_back()


def test_touched_is_remembered_after_the_holder_is_gone(tmp_path: Path) -> None:
    first = LeaseFile(tmp_path, GPU)
    first.take("one")
    assert touched_gpus(tmp_path) == []
    first.touch()
    first.give_back()  # as its death does
    assert touched_gpus(tmp_path) == [GPU]
    second = LeaseFile(tmp_path, GPU)
    assert second.take("two")
    second.clear()
    assert touched_gpus(tmp_path) == []
    second.give_back()


def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    prepare_lease_folder(tmp_path / "new" / "folder")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(LeaseFileError, match="777"):
        prepare_lease_folder(tmp_path / "open")
    (tmp_path / "file").touch()
    with pytest.raises(LeaseFileError, match="cannot be made"):
        prepare_lease_folder(tmp_path / "file")


def test_all_may_read_leases_whatever_the_umask_is(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    before = os.umask(0o077)
    try:
        prepare_lease_folder(folder)
        lease = LeaseFile(folder, GPU)
        lease.take("one")
        lease.give_back()
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in (folder.parent, folder)] == [0o755, 0o755]
    assert (folder / f"{GPU}.lease").stat().st_mode & 0o777 == 0o644


def test_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / f"{GPU}.lease").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LeaseFileError, match="cannot be opened"):
        LeaseFile(tmp_path, GPU).take("root")


def test_a_named_folder_comes_first() -> None:
    assert lease_folder({"PERSEUS_LEASE_DIR": "/here", "XDG_RUNTIME_DIR": "/there"}) == Path("/here")


def test_simulated_gpus_have_leases_and_daemons_of_their_own(tmp_path: Path) -> None:
    """Also where a process has lost the rest of the simulated machine's environment."""
    environ = {"PERSEUS_SIM_STATE": str(tmp_path / "state"), "XDG_RUNTIME_DIR": "/there"}
    assert lease_folder(environ) == tmp_path / "leases"
    assert clockd_socket(environ) == str(tmp_path / "clockd.sock")
    assert zeusd_socket(environ) == str(tmp_path / "zeusd.sock")
    assert clockd_socket({}) == "/run/perseus-dist/clockd.sock"


def test_a_look_at_the_holder_takes_and_makes_nothing(tmp_path: Path) -> None:
    looking, holding = LeaseFile(tmp_path, GPU), LeaseFile(tmp_path, GPU)
    assert not looking.is_held()
    assert list(tmp_path.iterdir()) == []
    holding.take("clockd")
    assert looking.is_held()
    holding.give_back()
    assert not looking.is_held()
    assert not holding.take("clockd")
    holding.give_back()
