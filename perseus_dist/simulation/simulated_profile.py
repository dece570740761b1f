"""The profile that a sweep of simulated GPUs would find: it spares a run on them the sweep."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO

from perseus_dist.planning.schedule.instruction import Kind, profile_name
from perseus_dist.planning.schedule.schedule import Schedule
from perseus_dist.simulation.trainers.trainer_config import InstructionTime
from perseus_dist.simulator.gpu_preset import GpuPreset
from perseus_dist.simulator.work import WorkTimes

_NUM_CLOCKS = 10
_STEP = 4  # of the GPU's clocks


def simulated_profile(
    preset: GpuPreset, work: WorkTimes, *, pp_size: int, num_chunks: int = 1, constants_s: Mapping[str, float]
) -> str:
    """A profile as CSV, as ``planning.profile`` reads it: of schedules with F and B.

    Args:
        preset: The GPUs.
        work: What is computed on them.
        pp_size: Ranks of a pipeline.
        num_chunks: Virtual stages on each of them.
        constants_s: [s] what each rank's other instructions take, by kind, waiting.

    Raises:
        SimulatorError: A number of stages that cannot be.
    """
    num_stages = pp_size * num_chunks
    rows = [(stage, str(kind)) for stage in range(num_stages) for kind in (Kind.FORWARD, Kind.BACKWARD)]
    rows += [(pp_rank, constant) for pp_rank in range(pp_size) for constant in constants_s]
    return _profile(preset, work, rows, num_stages=num_stages, num_chunks=num_chunks, constants_s=constants_s)


def profile_of_schedule(
    preset: GpuPreset, work: WorkTimes, schedule: Schedule, *, constants_s: Mapping[str, float]
) -> str:
    """The same of what a schedule has; arguments as in ``simulated_profile``."""
    rows = sorted({(i.stage, i.kind) for order in schedule.ranks for i in order})
    num_stages, num_chunks = schedule.num_stages, schedule.num_stages // schedule.num_ranks
    return _profile(preset, work, rows, num_stages=num_stages, num_chunks=num_chunks, constants_s=constants_s)


def profile_of_times(
    presets: Sequence[GpuPreset], times: Iterable[InstructionTime], *, waiting_share: float = 0.0
) -> str:
    """The same of what a simulated job's trainers compute. Its constants are left out.

    Args:
        presets: (num_stages) of each stage's GPU.
        times: Of every stage and kind.
        waiting_share: By how much a computation is longer than a GPU's part in it, which then waits for the slowest.
    """
    kernels = [(t.stage, t.kind, (t.kernel_class, t.seconds)) for t in times if t.kernel_class]
    return _table(presets, kernels, {}, waiting_share=waiting_share)


def _profile(
    preset: GpuPreset,
    work: WorkTimes,
    rows: Iterable[tuple[int, str]],
    *,
    num_stages: int,
    num_chunks: int,
    constants_s: Mapping[str, float],
) -> str:
    kernels = [
        (stage, kind, work.kernel(kind, stage, num_stages=num_stages, num_chunks=num_chunks)) for stage, kind in rows
    ]
    return _table([preset] * num_stages, kernels, constants_s)


def _table(
    presets: Sequence[GpuPreset],
    kernels: Iterable[tuple[int, str, tuple[str, float] | None]],
    constants_s: Mapping[str, float],
    *,
    waiting_share: float = 0.0,
) -> str:
    """Rows of each stage and kind, from its kernel: its class, and [s] at the maximum clock; None for a constant."""
    text = StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(("stage", "instruction", "frequency", "time", "energy"))
    for stage, kind, kernel in kernels:
        preset = presets[stage]
        clocks_mhz = preset.clocks_mhz[: _NUM_CLOCKS * _STEP : _STEP]
        if kernel is None:
            time_s = constants_s[kind]
            energy_j = time_s * preset.blocking_power_w
            writer.writerow((stage, profile_name(kind), clocks_mhz[0], time_s, energy_j))
            continue
        for clock_mhz in clocks_mhz:
            time_s = preset.kernel_time_s(*kernel, clock_mhz)
            waiting_s = waiting_share * time_s
            energy_j = time_s * preset.kernel_power_w(kernel[0], clock_mhz) + waiting_s * preset.blocking_power_w
            writer.writerow((stage, profile_name(kind), clock_mhz, time_s + waiting_s, energy_j))
    return text.getvalue()
