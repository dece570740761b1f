"""Noise of a job's iterations: how far successive ones under one plan differ in time and in energy."""

import math
from collections import deque
from dataclasses import dataclass, field
from statistics import median

from perseus_dist.planner.job.saving.followed import Followed

_NUM_DIFFERENCES = 64
_MIN_DIFFERENCES = 8
_USUAL = 0.0025
_MAX_NOISE = 0.1  # [log] times that differ by more do so because the machines have changed
_NORMAL = 1.4826 / math.sqrt(2)  # from a median of absolute differences to a standard deviation


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptNoise:
    """As of ``Noise``.

    Attributes:
        times, energies: Shares by which successive iterations differed, the newest last.
        latest: Plan, time and energy of the latest iteration.
    """

    times: tuple[float, ...]
    energies: tuple[float, ...]
    latest: tuple[Followed | None, float, float] | None


@dataclass(slots=True, kw_only=True)
class Noise:
    """Standard deviations of a single iteration, as shares."""

    _times: deque[float] = field(default_factory=lambda: deque(maxlen=_NUM_DIFFERENCES))
    _energies: deque[float] = field(default_factory=lambda: deque(maxlen=_NUM_DIFFERENCES))
    _latest: tuple[Followed | None, float, float] | None = None  # plan, time, energy of the latest iteration

    @property
    def time(self) -> float:
        """Standard deviation of a single iteration's time, as a share."""
        return _deviation(self._times)

    @property
    def energy(self) -> float:
        """Of energies, what counters leave in doubt included."""
        return _deviation(self._energies)

    def keep(self) -> KeptNoise:
        """The differences behind both, as values that stay as they are."""
        return KeptNoise(times=tuple(self._times), energies=tuple(self._energies), latest=self._latest)

    @classmethod
    def restored(cls, kept: KeptNoise) -> "Noise":
        """The inverse of ``keep``."""
        noise = cls(_latest=kept.latest)
        noise._times.extend(kept.times)
        noise._energies.extend(kept.energies)
        return noise

    def note(self, plan: Followed | None, time_s: float, energy_j: float) -> None:
        """Take note of the next iteration.

        Args:
            plan: What it followed; None for full clocks.
            time_s: [s] it took.
            energy_j: [J] all GPUs drew.
        """
        if self._latest is not None and self._latest[0] == plan and self._latest[2] > 0 and energy_j > 0:
            time_off = abs(math.log(time_s / self._latest[1]))
            if time_off <= _MAX_NOISE:
                self._times.append(time_off)
                self._energies.append(abs(math.log(energy_j / self._latest[2])))
        self._latest = (plan, time_s, energy_j)


def _deviation(differences: deque[float]) -> float:
    return _NORMAL * median(differences) if len(differences) >= _MIN_DIFFERENCES else _USUAL
