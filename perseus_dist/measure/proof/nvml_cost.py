"""Cost of each NVML call that perseus-dist makes, while the GPU computes."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from perseus_dist.device.nvml.nvml import CLOCK_SM, Nvml, NvmlError
from perseus_dist.measure.estimates import Quantiles

_CALLS: tuple[tuple[str, tuple[object, ...]], ...] = (
    ("nvmlDeviceGetTotalEnergyConsumption", ()),
    ("nvmlDeviceGetFieldValues", ([186],)),  # the power now
    ("nvmlDeviceGetPowerUsage", ()),
    ("nvmlDeviceGetClockInfo", (CLOCK_SM,)),
    ("nvmlDeviceGetCurrentClocksEventReasons", ()),
    ("nvmlDeviceGetTemperatureV", (0,)),
    ("nvmlDeviceGetComputeRunningProcesses", ()),
)
_NUM_CALLS = 200
_MAX_S = 0.3  # for one function, however slow


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCost:
    """One function.

    Attributes:
        function: Of nvidia-ml-py.
        cost_us: [us] of a call; nothing where it fails.
        failure: Why it fails; empty if it does not.
    """

    function: str
    cost_us: Quantiles
    failure: str


def measure_nvml(gpu_uuid: str, keep_busy: Callable[[], None]) -> list[CallCost]:
    """Time every call.

    Args:
        gpu_uuid: As NVML writes it.
        keep_busy: Called before each function: gives the GPU work for about ``_MAX_S`` and does not wait for it.
    """
    gpu = Nvml().gpu(gpu_uuid)
    costs = []
    for function, arguments in _CALLS:
        keep_busy()
        taken_us: list[float] = []
        failure = ""
        until_s = time.monotonic() + _MAX_S
        while len(taken_us) < _NUM_CALLS and time.monotonic() < until_s:
            begin_ns = time.perf_counter_ns()
            try:
                gpu.call(function, *arguments)
            except NvmlError as error:
                failure = str(error)
                break
            taken_us.append((time.perf_counter_ns() - begin_ns) / 1e3)
        costs.append(CallCost(function=function, cost_us=Quantiles.of(taken_us), failure=failure))
    return costs
