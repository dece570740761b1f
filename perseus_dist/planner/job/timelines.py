"""The newest iteration of each of the first pipelines whose computations ranks have timed: for those who watch."""

from dataclasses import dataclass, field

from perseus_dist.messages.from_agent import RunTimes

MAX_PIPELINES = 4
"""Pipelines do the same; more of them make a page no wiser, but larger."""


@dataclass(slots=True)
class Timelines:
    """Ranks of one iteration, joined.

    Attributes:
        whole: (pp_size) of ranks by dp_rank, all of the same iteration and plan.
    """

    whole: dict[int, tuple[RunTimes, ...]] = field(default_factory=dict)
    _open: dict[int, dict[int, RunTimes]] = field(default_factory=dict)  # by dp_rank and pp_rank

    def take(self, dp_rank: int, pp_rank: int, pp_size: int, times: RunTimes) -> bool:
        """A rank has told its times. Returns whether those of its pipeline are whole by that."""
        if dp_rank >= MAX_PIPELINES:
            return False
        ranks = self._open.setdefault(dp_rank, {})
        if any(_key(known) != _key(times) for known in ranks.values()):
            ranks.clear()
        ranks[pp_rank] = times
        if len(ranks) < pp_size:
            return False
        self.whole[dp_rank] = tuple(ranks[one] for one in range(pp_size))
        ranks.clear()
        return True


def _key(times: RunTimes) -> tuple[int, int, int]:
    return times.iteration, times.table_revision, times.point
