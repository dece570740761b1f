"""Finds and opens a rank's GPU: its clock control and its meter. May take as long as the driver does."""

import logging
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from perseus_dist.boundaries.rank_spec import RankSpec
from perseus_dist.device.control import ClockControl
from perseus_dist.device.inspection.node import inspect_rank
from perseus_dist.device.nvml.discovery import find_gpu
from perseus_dist.device.nvml.meter import GpuMeter
from perseus_dist.device.opening import open_clock_control
from perseus_dist.device.rights import SIMULATED_GPUS
from perseus_dist.messages.finding import Finding
from perseus_dist.messages.terms import Gpu

_log = logging.getLogger(__name__)

_INSPECTION_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """The GPU, its meter and its clock control.

    Attributes:
        meter: None where the rank's GPU was not found.
        gpu: As in ``Attach``.
        is_simulated: Whether it is a simulated one.
        findings: Troubles of the node and the GPU.
    """

    control: ClockControl
    meter: GpuMeter | None
    gpu: Gpu
    is_simulated: bool
    findings: tuple[Finding, ...] = ()


def open_devices(spec: RankSpec, own_pids: Sequence[int]) -> Devices:
    """Open them; what cannot be opened is said in ``gpu.refusal``. Never raises.

    Args:
        spec: Of the rank; its option ``control_socket`` names the socket of clockd or zeusd.
        own_pids: Processes that may run on the GPU.
    """
    uuid, trouble = spec.gpu_uuid, ""
    if uuid is None:
        found = find_gpu(spec.local_rank, os.environ)
        uuid, trouble = found.uuid, found.trouble
    control = open_clock_control(
        spec.control if uuid is not None else "observe",
        uuid or "",
        own_pids=own_pids,
        socket_path=spec.options.get("control_socket"),
    )
    meter = GpuMeter(uuid) if uuid is not None else None
    gpu = Gpu(
        uuid=uuid or "",
        name=meter.name if meter is not None else "",
        driver_version=meter.driver_version if meter is not None else "",
        clocks_mhz=control.clocks_mhz,
        control=control.name,
        refusal=trouble or control.refusal,
        energy_period_s=meter.energy_period_s() if meter is not None else 0.0,
        memory_mib=meter.memory_mib if meter is not None else 0,
        default_power_limit_w=meter.default_power_limit_w if meter is not None else 0.0,
        power_limit_w=meter.power_limit_w if meter is not None else 0.0,
        power_profiles=meter.power_profiles if meter is not None else "",
    )
    return Devices(
        control=control,
        meter=meter,
        gpu=gpu,
        is_simulated=bool(os.environ.get(SIMULATED_GPUS)),
        findings=_inspect(uuid or "", own_pids, misses_control=spec.control != "observe" and not control.clocks_mhz),
    )


def _inspect(gpu_uuid: str, own_pids: Sequence[int], *, misses_control: bool) -> tuple[Finding, ...]:
    """Findings for the planner's page; none where looking fails or lasts, since training must not wait for them."""
    findings: list[Finding] = []

    def inspect() -> None:
        try:
            findings.extend(inspect_rank(os.environ, gpu_uuid, own_pids, misses_control=misses_control))
        except Exception:  # a page without findings is better than a job without clocks
            _log.debug("the node could not be looked at", exc_info=True)

    thread = threading.Thread(target=inspect, name="inspection", daemon=True)
    thread.start()
    thread.join(_INSPECTION_S)
    return tuple(findings)
