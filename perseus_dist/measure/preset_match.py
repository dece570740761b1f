"""How the measured GPU compares with the models that the simulator has."""

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from perseus_dist.measure.clock_sweep import KINDS, Point
from perseus_dist.simulator.gpu_preset import GpuPreset
from perseus_dist.simulator.presets import PRESETS

_CLASSES = {"F": "forward", "B": "backward"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PresetMatch:
    """One preset beside the measured curves, at the clocks that were measured.

    Times and energies are relative to those at the maximum clock; clocks of a GPU with another maximum are compared as
    shares of it.

    Attributes:
        preset: Its name.
        is_same_model: Whether NVML calls the measured GPU by the name of the preset.
        time_percent, time_worst_percent: Root mean square and greatest difference of relative time.
        energy_percent, energy_worst_percent: The same of relative energy.
        power_ratio: Measured power at the maximum clock over the preset's, the mean of forward and backward.
    """

    preset: str
    is_same_model: bool
    time_percent: float
    time_worst_percent: float
    energy_percent: float
    energy_worst_percent: float
    power_ratio: float


def match_presets(points: Sequence[Point], max_clock_mhz: int, nvml_name: str) -> list[PresetMatch]:
    """All presets, the closest first.

    Args:
        points: Of each kind at the maximum clock at least.
        max_clock_mhz: That the GPU supports.
        nvml_name: What NVML calls it.
    """
    matches = [_match(preset, points, max_clock_mhz, nvml_name) for preset in PRESETS.values()]
    return sorted(matches, key=lambda match: (not match.is_same_model, match.time_percent + match.energy_percent))


def preset_clock_mhz(preset: GpuPreset, share: float) -> int:
    """The preset's clock at a share of its maximum, the closest."""
    return min(preset.clocks_mhz, key=lambda clock: abs(clock - share * preset.clocks_mhz[0]))


def _match(preset: GpuPreset, points: Sequence[Point], max_clock_mhz: int, nvml_name: str) -> PresetMatch:
    times, energies, powers = [], [], []
    for kind in KINDS:
        by_clock: dict[int, list[Point]] = defaultdict(list)
        for point in points:
            if point.kind == kind:
                by_clock[point.clock_mhz].append(point)
        top = by_clock[max(by_clock)]
        top_mhz = preset_clock_mhz(preset, max(by_clock) / max_clock_mhz)
        top_s, top_w = _mean_s(top), _mean_w(top)
        modelled_s, modelled_w = _modelled(preset, kind, top_mhz)
        powers.append(top_w / modelled_w)
        for clock_mhz, same in by_clock.items():
            here_s, here_w = _modelled(preset, kind, preset_clock_mhz(preset, clock_mhz / max_clock_mhz))
            time, modelled_time = _mean_s(same) / top_s, here_s / modelled_s
            times.append(time / modelled_time - 1)
            energies.append(time * _mean_w(same) / top_w / (modelled_time * here_w / modelled_w) - 1)
    return PresetMatch(
        preset=preset.name,
        is_same_model=nvml_name.startswith(preset.nvml_name.rpartition("-")[0] or preset.nvml_name),
        time_percent=100 * statistics.fmean(value**2 for value in times) ** 0.5,
        time_worst_percent=100 * max(map(abs, times)),
        energy_percent=100 * statistics.fmean(value**2 for value in energies) ** 0.5,
        energy_worst_percent=100 * max(map(abs, energies)),
        power_ratio=statistics.fmean(powers),
    )


def _modelled(preset: GpuPreset, kind: str, clock_mhz: int) -> tuple[float, float]:
    """(time of a kernel of 1 s at the maximum clock [s], power [W])."""
    return preset.kernel_time_s(_CLASSES[kind], 1.0, clock_mhz), preset.kernel_power_w(_CLASSES[kind], clock_mhz)


def _mean_s(points: Sequence[Point]) -> float:
    return statistics.fmean(point.time_s for point in points)


def _mean_w(points: Sequence[Point]) -> float:
    return statistics.fmean(point.power_w for point in points)
