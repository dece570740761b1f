"""Steps in a profile that was swept clock by clock: GPUs that were slow for a part of the sweep.

At a lower clock a computation takes no less time, and no longer than in proportion to the clock: that holds for the
published profiles of real GPUs within 0.6 % from one clock to the next. What slows all GPUs of a stage for a while
breaks it where it begins and where it is over, for all kinds of computations alike. One replica alone that is slow is
left out of the profile, and makes no step.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

_LEAST_SHARE = 0.015
_NOISE_SHARE = 0.03  # three standard deviations of a computation's time, of which a clock's is a mean


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockTime:
    """A computation at one clock.

    Attributes:
        clock_mhz: [MHz] above 0.
        time_s: [s] above 0.
        num_runs: Runs that ``time_s`` is the mean of.
    """

    clock_mhz: int
    time_s: float
    num_runs: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepStep:
    """Where times are not what they can be.

    Attributes:
        stage: Of the pipeline.
        clock_mhz: [MHz] the first clock beyond it, downwards.
        share: By how much times there are at least too long beside those at the clock above; negative where too short.
    """

    stage: int
    clock_mhz: int
    share: float


def largest_step(times: Mapping[tuple[int, str], Sequence[ClockTime]]) -> SweepStep | None:
    """The largest step of a profile; None where there is none that noise does not explain.

    Args:
        times: By stage and kind, at each clock once.
    """
    by_stage: defaultdict[int, list[dict[int, float]]] = defaultdict(list)
    for (stage, _), of_clocks in times.items():
        by_stage[stage].append(_excesses(of_clocks))
    steps = [
        SweepStep(stage=stage, clock_mhz=clock_mhz, share=share)
        for stage, kinds in by_stage.items()
        for clock_mhz in set.intersection(*map(set, kinds))
        if (share := _of_all([kind[clock_mhz] for kind in kinds]))
    ]
    return max(steps, key=lambda step: abs(step.share), default=None)


def _excesses(of_clocks: Sequence[ClockTime]) -> dict[int, float]:
    """By clock but the highest, how much longer (or shorter, below 0) it takes than it can beside the clock above."""
    found = {}
    for above, below in pairwise(sorted(of_clocks, key=lambda one: one.clock_mhz, reverse=True)):
        doubt = _LEAST_SHARE + _NOISE_SHARE * math.sqrt(1 / max(1, above.num_runs) + 1 / max(1, below.num_runs))
        change, most = math.log(below.time_s / above.time_s), math.log(above.clock_mhz / below.clock_mhz)
        found[below.clock_mhz] = max(0.0, change - most - doubt) + min(0.0, change + doubt)
    return found


def _of_all(excesses: Sequence[float]) -> float:
    """Share that all kinds of a stage have in common; 0 where they have none."""
    least, most = min(excesses), max(excesses)
    return max(0.0, least) + min(0.0, most)
