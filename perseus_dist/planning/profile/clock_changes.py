"""How long changes of clocks take, by the clock that is asked for.

The time depends mostly on the target clock and little on the clock before it (LATEST, arXiv 2502.20075), and a GPU
model can take many times as long to some targets as to others.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from perseus_dist.planning.profile.profile_csv import Row
from perseus_dist.planning.schedule.instruction import CLOCK_CHANGE
from perseus_dist.planning.value_equality import ValueEquality
from perseus_dist.units import FloatArray, IntArray, ps_from_s


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClockChanges(ValueEquality):
    """Latencies of the GPUs of one stage.

    Attributes:
        clocks_mhz: (num_targets) [MHz] descending.
        times_s: (num_targets) [s] median from asking for the clock to having it.
        p90_s: (num_targets) [s] what nine in ten changes take no longer than; NaN where unknown.
        num_samples: (num_targets) changes behind each figure.
        line: Where in the file they first stand.
    """

    clocks_mhz: IntArray
    times_s: FloatArray
    p90_s: FloatArray
    num_samples: FloatArray
    line: int = 0

    def latencies_ps(self, clocks_mhz: IntArray) -> IntArray:
        """(num_clocks) [ps] to each of these clocks: the median of the target measured that is nearest."""
        return ps_from_s(self.times_s[self.nearest(clocks_mhz)])

    def nearest(self, clocks_mhz: IntArray) -> IntArray:
        """(num_clocks) index of the target measured that is nearest to each of these clocks."""
        nearest: IntArray = np.abs(clocks_mhz[:, None] - self.clocks_mhz).argmin(axis=1)
        return nearest


def clock_changes_of(rows: Iterable[Row]) -> ClockChanges:
    """Join rows of one stage; several of one clock count by their samples.

    Args:
        rows: At least one, all of kind ``CLOCK_CHANGE``.
    """
    of_clock: defaultdict[int, list[Row]] = defaultdict(list)
    for row in rows:
        of_clock[row.clock_mhz].append(row)
    clocks_mhz = sorted(of_clock, reverse=True)
    figures = np.empty((3, len(clocks_mhz)))
    for c, clock_mhz in enumerate(clocks_mhz):
        same = of_clock[clock_mhz]
        counts = np.array([row.samples for row in same])
        shares = counts / counts.sum()  # 1 of a single row, whose figures stay as they are to the last bit
        times_s, p90_s = shares @ np.array([(row.time_s, row.time_p90_s) for row in same])
        figures[:, c] = times_s, p90_s, counts.sum()
    return ClockChanges(
        clocks_mhz=np.array(clocks_mhz, dtype=np.int64),
        times_s=figures[0],
        p90_s=figures[1],
        num_samples=figures[2],
        line=min(row.line for same in of_clock.values() for row in same),
    )


def rows_of(changes: ClockChanges, stage: int) -> list[Row]:
    """The rows that ``clock_changes_of`` joins to the same figures."""
    columns = (changes.clocks_mhz, changes.times_s, changes.p90_s, changes.num_samples)
    return [
        Row(
            line=0,
            stage=stage,
            kind=CLOCK_CHANGE,
            clock_mhz=int(clock_mhz),
            time_s=float(time_s),
            energy_j=0.0,
            samples=int(num),
            time_p90_s=float(p90_s),
        )
        for clock_mhz, time_s, p90_s, num in zip(*columns, strict=True)
    ]
