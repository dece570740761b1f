"""One iteration of a rank in every detail, as ``timeline-<rank>.jsonl`` has it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from perseus_dist.messages.terms import NO_POINT


class TimedRun(NamedTuple):
    """One instruction that ran.

    Attributes:
        begin_ns, end_ns: CLOCK_MONOTONIC.
        requested_mhz: Asked for while it ran; 0 for none.
        observed_mhz: Last seen since that was asked for; 0 where it was not.
    """

    chunk: int
    kind: str
    microbatch: int
    begin_ns: int
    end_ns: int
    requested_mhz: int
    observed_mhz: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedIteration:
    """One iteration of the rank.

    Attributes:
        begin_ns, end_ns: CLOCK_MONOTONIC.
        planned_clocks_mhz: (num_instructions) in the rank's order, 0 leaves the clock as it is; None without a plan.
    """

    iteration: int
    table_revision: int
    point: int
    begin_ns: int
    end_ns: int
    planned_clocks_mhz: tuple[int, ...] | None
    runs: tuple[TimedRun, ...]

    @property
    def is_planned(self) -> bool:
        """Whether it ran under a plan."""
        return self.point != NO_POINT


def mean_clock_mhz(kept: Iterable[TimedIteration]) -> float | None:
    """[MHz] weighted by how long each computation took, where constants have no clock; None without any."""
    runs = [run for one in kept for run in one.runs if len(run.kind) == 1 and (run.observed_mhz or run.requested_mhz)]
    total_ns = sum(run.end_ns - run.begin_ns for run in runs)
    if not total_ns:
        return None
    return sum((run.observed_mhz or run.requested_mhz) * (run.end_ns - run.begin_ns) for run in runs) / total_ns
