"""A node in Prometheus's text format, where a GPU does not know all that is asked for."""

from collections.abc import Callable
from pathlib import Path

import pytest

from perseus_dist.device import node_metrics
from perseus_dist.device.nvml.nvml import FUNCTION_NOT_FOUND, NOT_SUPPORTED, NvmlError

UUID = "GPU-1"


class WithoutPowerLimit:
    """NVML, and its one GPU, of a board without power management, throttled by hardware."""

    uuid = UUID

    def __init__(self, code: int) -> None:
        self._code = code

    def numbered_uuids(self) -> list[str | None]:
        return [UUID]

    def gpu(self, _: str) -> "WithoutPowerLimit":
        return self

    def event_reasons(self) -> int:
        return 0x8

    def call(self, function: str) -> str:
        if "Power" in function:
            raise NvmlError(function, self._code, "")
        return "570"


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], str]:
    (tmp_path / f"{UUID}.lease").write_text("a holder that died")
    environ = {"PERSEUS_CLOCKD_SOCKET": str(tmp_path / "clockd.sock"), "PERSEUS_LEASE_DIR": str(tmp_path)}

    def read(code: int) -> str:
        monkeypatch.setattr(node_metrics, "Nvml", lambda: WithoutPowerLimit(code))
        return node_metrics.node_metrics(environ, "1.0")

    return read


@pytest.mark.parametrize("code", [NOT_SUPPORTED, FUNCTION_NOT_FOUND])
def test_a_gpu_without_a_power_limit_is_up_and_its_lock_is_seen(page: Callable[[int], str], code: int) -> None:
    text = page(code)
    assert f'perseus_node_gpu_up{{gpu="0",uuid="{UUID}"}} 1\n' in text
    assert f'perseus_node_gpu_clocks_left_locked{{gpu="0",uuid="{UUID}"}} 1\n' in text
    assert f'perseus_node_gpu_throttled{{gpu="0",uuid="{UUID}",reason="hardware"}} 1\n' in text
    assert "perseus_node_gpu_power_capped{" not in text


def test_a_gpu_whose_power_limit_cannot_be_read_now_is_not_up(page: Callable[[int], str]) -> None:
    assert f'perseus_node_gpu_up{{gpu="0",uuid="{UUID}"}} 0\n' in page(999)
