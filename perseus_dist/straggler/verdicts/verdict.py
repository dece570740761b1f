"""A verdict of the detector: who is slow, by how much, why, since when, and the sentence for operators."""

import math
from dataclasses import dataclass, field

from perseus_dist.straggler.layout import StragglerError
from perseus_dist.straggler.verdicts.causes import Cause

_CAUSE_TEXT = {
    Cause.THERMAL: "its GPU is throttled by heat",
    Cause.POWER_CAP: "its GPU is at its power cap",
    Cause.POWER_BRAKE: "its GPU is slowed by a power brake",
    Cause.SLOW_COMPUTE: "its instructions are slow, and NVML names no reason",
    Cause.SLOW_INPUT: "it waits for input data",
    Cause.SLOW_NETWORK: "no instruction is slow and input is there, which leaves the network",
    Cause.UNKNOWN: "the cause is not known",
}
BELOW_CLOCK = 0.98
"""Of the clock requested: a GPU that runs below this share does not reach it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Degree:
    """Time over the time expected, with the interval that it lies in.

    Raises:
        StragglerError: The numbers are not in order, or not finite.
    """

    value: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.value <= self.high < math.inf:
            seen = f"{self.value} within {self.low} to {self.high}"
            raise StragglerError(f"saw a degree of {seen}; give finite numbers above 0 with low <= value <= high")

    def __str__(self) -> str:
        return f"{_percent(self.value)} ({_percent(self.low)} to {_percent(self.high)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A straggler. Two verdicts are equal where nothing differs that anybody would act upon.

    Attributes:
        rank: The slow rank; where NVML names none of a tensor-parallel group, its first; the first of the pipeline
            where that is late as a whole.
        pp_rank, dp_rank: Where it stands.
        degree: Of the rank's instructions at requested clocks; of the pipeline's time where that is late as a whole.
        pipeline_degree: Of its pipeline's time until gradient synchronisation; None where that is not known.
        cause: Why.
        since_s: [s] the first iteration, or reading of NVML, that was slow.
        is_whole_pipeline: The pipeline is late, and none of its ranks stands out.
        is_predicted: NVML alone says so; times do not speak yet.
        is_flapping: It has come and gone too often to be acted upon.
        is_acted_upon: Whether the other pipelines should wait for it.
        is_fresh: Whether its evidence is recent.
        num_held_up: Ranks of its tensor-parallel group, which are as slow because they wait for it.
        at_s: [s] when this was judged.
        requested_mhz, observed_mhz: [MHz] of its GPU; 0 where not known.
        throttled_mhz: [MHz] that its GPU reaches while NVML says that it is throttled; 0 where it does not.
        temperature_c: [degrees Celsius] of its GPU; 0 where not known.
    """

    rank: int
    pp_rank: int
    dp_rank: int
    degree: Degree
    pipeline_degree: Degree | None
    cause: Cause
    since_s: float
    is_whole_pipeline: bool
    is_predicted: bool
    is_flapping: bool
    is_acted_upon: bool
    num_held_up: int = 0
    is_fresh: bool = field(default=True, compare=False)
    at_s: float = field(compare=False)
    requested_mhz: int = field(default=0, compare=False)
    observed_mhz: int = field(default=0, compare=False)
    throttled_mhz: int = field(default=0, compare=False)
    temperature_c: float = field(default=0.0, compare=False)

    @property
    def sentence(self) -> str:
        """All this for an operator, without a full stop."""
        who = f"rank {self.rank} (stage {self.pp_rank}, pipeline {self.dp_rank})"
        if self.is_whole_pipeline:
            who = f"pipeline {self.dp_rank}"
        elif self.num_held_up:
            who += f", with the {self.num_held_up} of its tensor-parallel group that wait for it,"
        verb = "will be" if self.is_predicted else "is"
        measured = []
        if 0 < self.observed_mhz < BELOW_CLOCK * self.requested_mhz:
            measured.append(f"{self.observed_mhz} MHz of {self.requested_mhz} MHz requested")
        if self.cause is Cause.THERMAL and self.temperature_c > 0:
            measured.append(f"{self.temperature_c:.0f} degrees Celsius")
        why = _CAUSE_TEXT[self.cause] + (f" ({', '.join(measured)})" if measured else "")
        flaps = "; it comes and goes too often to be acted upon" if self.is_flapping else ""
        age_s = max(0.0, self.at_s - self.since_s)
        return f"{who} {verb} slower than its likes by {self.degree}, for {age_s:.0f} s now: {why}{flaps}"


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):.1f} %"
