"""Everything that is measured of one GPU, from the first kernel to the last table."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from perseus_dist.boundaries.libcuda import CudaCallError
from perseus_dist.device.nvml.gpu_guard import running_pids
from perseus_dist.device.nvml.meter import GpuMeter
from perseus_dist.device.nvml.nvml import Nvml, NvmlError
from perseus_dist.device.opening import open_clock_control
from perseus_dist.measure.bench.bench import Bench, Block
from perseus_dist.measure.bench.gpu_watch import GpuWatch
from perseus_dist.measure.bench.kept_control import KeptControl
from perseus_dist.measure.bench.workload import Workload
from perseus_dist.measure.clock_sweep import KINDS, Point, Progress, observe_clock, sweep_clocks
from perseus_dist.measure.errors import MeasureError
from perseus_dist.measure.estimates import counter_period_s
from perseus_dist.measure.preset_match import PresetMatch, match_presets
from perseus_dist.measure.proof.boundary_check import BoundaryCheck, check_boundaries
from perseus_dist.measure.proof.cuda_device import make_context
from perseus_dist.measure.proof.hook_cost import HookCost, measure_doorbell, measure_hook
from perseus_dist.measure.proof.nvml_cost import CallCost, measure_nvml
from perseus_dist.measure.proof.visible_devices import VisibleCase, check_visible_devices
from perseus_dist.measure.switch_latency import TargetLatency, measure_latencies

_SWEEP_SHARE, _LATENCY_SHARE = 0.55, 0.25  # of the time; the rest takes what it takes
_BUSY_S = 1.5  # longer than the counter's period is looked for
_BLOCKED_S = 0.8
_BLOCKED_PERIODS = 12
_USUAL_PERIOD_S = 0.1
_HOOK_ITERATIONS, _DOORBELLS = 60, 200
_NVML_BUSY_S = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """Which GPU it is, and how its clocks were set.

    Attributes:
        name, uuid, driver_version, memory_mib: As NVML says.
        clocks_mhz: (highest, lowest) that it supports.
        power_limit_w, default_power_limit_w: Read, never set.
        is_simulated: Whether it is a simulated one.
        workload: What ran on it.
        control: ``clockd``, ``zeusd``, ``direct``, or ``observe``: no clock was set.
        observed_because: Why none was; empty if some were.
    """

    name: str
    uuid: str
    driver_version: str
    memory_mib: int
    clocks_mhz: tuple[int, int]
    power_limit_w: float
    default_power_limit_w: float
    is_simulated: bool
    workload: str
    control: str
    observed_because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Results of a measurement.

    Attributes:
        began_at: ISO 8601, UTC.
        gpu: Which one.
        energy_period_s: How often the energy counter is published.
        points: Forward and backward, by clock.
        blocked: The GPU waiting, at the highest and the lowest clock of ``points``.
        latencies: Changes of clocks by target; () where no clock was set.
        nvml, hook, visible: What NVML's and the hook's calls cost, and how CUDA's and NVML's GPUs agree.
        boundaries: Device order against events; None where there is no CUDA.
        presets: The simulator's models beside the measured curves; () where only one clock was seen.
        left_out: What was not measured and why, a sentence each.
        seconds: All of it took.
    """

    began_at: str
    gpu: GpuFacts
    energy_period_s: float
    points: tuple[Point, ...]
    blocked: tuple[Block, ...]
    latencies: tuple[TargetLatency, ...]
    nvml: tuple[CallCost, ...]
    hook: tuple[HookCost, ...]
    boundaries: BoundaryCheck | None
    visible: tuple[VisibleCase, ...]
    presets: tuple[PresetMatch, ...]
    left_out: tuple[str, ...] = field(default=())
    seconds: float

    @property
    def planned_points(self) -> list[Point]:
        """Those that say what a clock costs: a power cap is part of that, heat and hardware brakes are not."""
        return [point for point in self.points if not point.is_braked]

    @property
    def has_curves(self) -> bool:
        """Whether there is more than one clock to choose from."""
        return _has_curves(self.planned_points)

    @property
    def blocking_power_w(self) -> float:
        """[W] at the highest clock: what ``plan --blocking-power-w`` takes."""
        return self.blocked[0].power_w

    @property
    def switch_latency_s(self) -> float:
        """[s] the median target's: until kernels felt it, or until it was read back where that is not known."""
        medians = sorted(latency.switch_s.median for latency in self.latencies if latency.switch_s.num)
        return medians[len(medians) // 2] if medians else 0.0


def measure_gpu(
    workload: Workload, *, control_mode: str, seconds: float, say: Progress, environ: Mapping[str, str] = os.environ
) -> Measurement:
    """Measure a GPU; its clock is free again when this ends, however it ends.

    Args:
        workload: On the GPU.
        control_mode: As ``device.opening.open_clock_control`` takes it. Where that refuses, the GPU is observed.
        seconds: For clocks and their changes; the rest takes some seconds more.
        say: Called with the next step, a sentence.
        environ: Of this process.

    Raises:
        MeasureError: Energy cannot be read, or the clock control was lost.
    """
    began_at, began_s = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    meter = GpuMeter(workload.gpu_uuid)
    if meter.energy_mj() is None:
        raise MeasureError(f"no energy can be read: {meter.trouble}; energy counters need Volta or newer")
    say("how often the energy counter is published")
    _keep_busy(workload, _BUSY_S)
    period_s = meter.energy_period_s() or _USUAL_PERIOD_S
    left_out = [sentence] if (sentence := _shared_with(workload.gpu_uuid)) else []
    opened = open_clock_control(control_mode, workload.gpu_uuid, own_pids=[os.getpid()], environ=environ)
    with KeptControl(opened) as control, GpuWatch(workload.gpu_uuid, round(period_s * 1e9)) as watch:
        bench = Bench(workload, control, watch, round(period_s * 1e9))
        blocked_s = max(_BLOCKED_S, _BLOCKED_PERIODS * period_s)
        latencies: list[TargetLatency] = []
        refusal = bench.try_control()
        if refusal:
            say("forward and backward at the clock that the GPU runs at")
            points = observe_clock(bench, _SWEEP_SHARE * seconds)
            blocked = [bench.wait_blocked(blocked_s)]
            left_out.append(f"curves over the clock and switching latencies, because no clock was set: {refusal}")
        else:
            clocks_mhz, points = sweep_clocks(bench, _SWEEP_SHARE * seconds, say)
            blocked = []
            for clock_mhz in (clocks_mhz[0], clocks_mhz[-1]):
                say(f"waiting at {clock_mhz} MHz")
                bench.hold(clock_mhz)
                blocked.append(bench.wait_blocked(blocked_s))
            latencies = measure_latencies(bench, clocks_mhz, _LATENCY_SHARE * seconds, say)
        period_s = counter_period_s(watch.edges(), period_s) or period_s
    say("what calls cost, and boundaries on the stream")
    nvml = measure_nvml(workload.gpu_uuid, lambda: _keep_busy(workload, _NVML_BUSY_S))
    hook = [measure_doorbell(_DOORBELLS), *measure_hook(_HOOK_ITERATIONS)]
    in_device_order, boundaries, trouble = _check_device_order(workload)
    left_out += [trouble] if trouble else []
    visible = check_visible_devices(workload.gpu_uuid, environ)
    if not any(case.by_cuda for case in visible):
        left_out.append(f"CUDA's own answer to CUDA_VISIBLE_DEVICES, which needs CUDA: {visible[0].trouble}")
    unbraked = [point for point in points if not point.is_braked]
    if len(unbraked) < len(points):
        braked_mhz = sorted({point.clock_mhz for point in points if point.is_braked}, reverse=True)
        left_out.append(
            f"{len(points) - len(unbraked)} points, out of profile and saving: the GPU was braked by heat or hardware "
            f"at {', '.join(map(str, braked_mhz))} MHz; measure again when that is over"
        )
    return Measurement(
        began_at=began_at,
        gpu=GpuFacts(
            name=meter.name,
            uuid=workload.gpu_uuid,
            driver_version=meter.driver_version,
            memory_mib=meter.memory_mib,
            clocks_mhz=(max(meter.clocks_mhz, default=0), min(meter.clocks_mhz, default=0)),
            power_limit_w=meter.power_limit_w,
            default_power_limit_w=meter.default_power_limit_w,
            is_simulated=workload.is_simulated,
            workload=workload.description,
            control="observe" if refusal else control.name,
            observed_because=refusal,
        ),
        energy_period_s=period_s,
        points=tuple(points),
        blocked=tuple(blocked),
        latencies=tuple(latencies),
        nvml=tuple(nvml),
        hook=(*hook, *in_device_order),
        boundaries=boundaries,
        visible=tuple(visible),
        presets=tuple(match_presets(unbraked, max(meter.clocks_mhz), meter.name)) if _has_curves(unbraked) else (),
        left_out=tuple(left_out),
        seconds=time.monotonic() - began_s,
    )


def _check_device_order(workload: Workload) -> tuple[list[HookCost], BoundaryCheck | None, str]:
    """Check the device order of boundaries, and the cost of hooks on the workload's stream; say why one is missing."""
    costs: list[HookCost] = []
    try:
        make_context()
        costs = measure_hook(
            _HOOK_ITERATIONS,
            device_stream=lambda: workload.stream,
            work=workload.probe,
            wait=lambda: workload.wait(workload.mark()),
        )
        return costs, check_boundaries(workload), ""
    except CudaCallError as error:
        return costs, None, f"hooks and boundaries in device order, which need CUDA: {error}"
    except MeasureError as error:
        return costs, None, f"hooks and boundaries in device order: {error}"


def _has_curves(points: Sequence[Point]) -> bool:
    return all(len({point.clock_mhz for point in points if point.kind == kind}) > 1 for kind in KINDS)


def _shared_with(gpu_uuid: str) -> str:
    """A sentence where others compute on the GPU, too; empty where none does, or NVML does not tell."""
    try:
        num_processes = len(running_pids(Nvml().gpu(gpu_uuid)))
    except NvmlError:
        return ""
    if num_processes < 2:
        return ""
    return (
        f"a GPU of one's own: {num_processes} processes computed on it, and times and powers are those of all of them"
    )


def _keep_busy(workload: Workload, seconds: float) -> None:
    """Give the GPU work for about so long, and do not wait for it."""
    begin = workload.mark()
    workload.launch("F")
    end = workload.mark()
    begin_ns, end_ns = workload.times_ns([begin, end])
    for _ in range(max(1, round(seconds * 1e9 / (end_ns - begin_ns)))):
        workload.launch("F")
