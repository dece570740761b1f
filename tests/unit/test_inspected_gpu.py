"""What is found of one GPU where the driver does not know all that is asked for."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perseus_dist.device.inspection import gpus
from perseus_dist.device.inspection.gpus import inspect_gpu, patiently
from perseus_dist.device.nvml.nvml import FUNCTION_NOT_FOUND, GPU_IS_LOST, NO_PERMISSION, NOT_SUPPORTED, NvmlError
from perseus_dist.messages.finding import Finding, Level

XID = "look at dmesg for its last error (Xid)"


class Gpu:
    """One on which another process runs, and whose power limit cannot be read."""

    uuid = "GPU-1"

    def __init__(self, code: int) -> None:
        self._code = code

    def call(self, function: str, *_: Any) -> Any:
        if "EnforcedPower" in function or "DefaultLimit" in function:
            raise NvmlError(function, self._code, "")
        if "PowerProfile" in function:
            raise NvmlError(function, NOT_SUPPORTED, "")
        return {"nvmlDeviceGetName": "A40-8C", "nvmlDeviceGetMigMode": (0, 0)}.get(function, 0)

    def call_first_known(self, _: object) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=1)]

    def clocks_mhz(self) -> tuple[int, ...]:
        return (1410, 210)

    def event_reasons(self) -> int:
        return 0


@pytest.fixture
def found(tmp_path: Path) -> Callable[[int], list[Finding]]:
    return lambda code: patiently("GPU 0", lambda: inspect_gpu(Gpu(code), tmp_path))  # type: ignore[arg-type] # as NVML's


@pytest.mark.parametrize("code", [NOT_SUPPORTED, FUNCTION_NOT_FOUND])
def test_a_healthy_gpu_without_a_power_limit_does_not_fail(found: Callable[[int], list[Finding]], code: int) -> None:
    findings = found(code)
    assert [finding.level for finding in findings] == [Level.OK, Level.WARN]
    assert "in use by" in findings[1].what


@pytest.mark.parametrize(("code", "remedy"), [(GPU_IS_LOST, XID), (999, XID), (NO_PERMISSION, "")])
def test_a_check_that_fails_keeps_what_was_found_before_it_and_names_the_xid_where_there_may_be_one(
    found: Callable[[int], list[Finding]], code: int, remedy: str
) -> None:
    first, failed = found(code)
    assert first.what == "A40-8C, 210 to 1410 MHz"
    assert (failed.level, failed.remedy) == (Level.FAIL, remedy)


def test_a_check_that_hangs_keeps_what_was_found_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "_PATIENCE_S", 0.1)
    is_over, first = threading.Event(), Finding(level=Level.WARN, subject="GPU 0", what="no energy counter")

    def inspect() -> Iterator[Finding]:
        yield first
        is_over.wait()

    known, hung = patiently("GPU 0", inspect)
    is_over.set()
    assert known == first
    assert (hung.level, "has not answered" in hung.what) == (Level.FAIL, True)
