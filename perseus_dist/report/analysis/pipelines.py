"""A run's iterations pipeline by pipeline, side by side, and which switch each of them followed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perseus_dist.messages.job_status import JobEvent
from perseus_dist.messages.terms import NO_POINT
from perseus_dist.report.analysis.iterations import Iterations
from perseus_dist.runlog.events import KeptEvent
from perseus_dist.units import FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PipelineIterations:
    """Iterations that every rank of some pipelines has reported, ascending.

    Attributes:
        dp_ranks: (num_pipelines) ascending.
        number: (num_iterations)
        time_s: (num_iterations) [s] the longest of all ranks'.
        own_time_s: (num_pipelines, num_iterations) [s] until a pipeline waits for gradient synchronisation.
        energy_j: (num_pipelines, num_iterations) [J]; NaN where it is not known.
        table_revision, point: (num_pipelines, num_iterations) as in ``Iterations``.
    """

    dp_ranks: tuple[int, ...]
    number: IntArray
    time_s: FloatArray
    own_time_s: FloatArray
    energy_j: FloatArray
    table_revision: IntArray
    point: IntArray

    @property
    def follows_plan(self) -> NDArray[np.bool_]:
        """(num_iterations) whether every pipeline followed a plan."""
        return np.asarray((self.point > NO_POINT).all(axis=0))

    def rows_of(self, dp_ranks: Sequence[int]) -> list[int]:
        """Where these pipelines stand, those that are known."""
        return [self.dp_ranks.index(dp_rank) for dp_rank in dp_ranks if dp_rank in self.dp_ranks]


def side_by_side(pipelines: Mapping[int, Iterations]) -> PipelineIterations:
    """Put pipelines side by side; iterations that one of them lacks are left out.

    Args:
        pipelines: By dp_rank.
    """
    dp_ranks = tuple(sorted(pipelines))
    number = np.array([], dtype=np.int64)
    if dp_ranks:
        number = np.array(sorted(set.intersection(*(set(pipelines[d].number.tolist()) for d in dp_ranks))), np.int64)
    at = [np.searchsorted(pipelines[d].number, number) for d in dp_ranks]
    shape = len(dp_ranks), len(number)

    def rows(name: str) -> NDArray[np.generic]:
        return np.array([getattr(pipelines[d], name)[here] for d, here in zip(dp_ranks, at, strict=True)])

    return PipelineIterations(
        dp_ranks=dp_ranks,
        number=number,
        time_s=rows("time_s").reshape(shape).astype(np.float64).max(axis=0, initial=0.0),
        own_time_s=rows("own_time_s").reshape(shape).astype(np.float64),
        energy_j=rows("energy_j").reshape(shape).astype(np.float64),
        table_revision=rows("table_revision").reshape(shape).astype(np.int64),
        point=rows("point").reshape(shape).astype(np.int64),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedSwitch:
    """A switch, and the iterations under it.

    Attributes:
        event: As it was received.
        first_iteration: In which every rank followed it for the first time; None if there was none.
        last_iteration: Before the next one took effect, or the newest of the run.
    """

    event: JobEvent
    first_iteration: int | None
    last_iteration: int


def followed_switches(events: Sequence[KeptEvent], pipelines: PipelineIterations) -> tuple[FollowedSwitch, ...]:
    """Every switch of a run in the order in which they took effect.

    Args:
        events: Of the run.
        pipelines: Of the run.
    """
    switches = [event for _, event in events if event.kind == "switch"]
    begins = [event.effective_iteration if event.effective_iteration >= 0 else event.iteration for event in switches]
    newest = int(pipelines.number.max(initial=-1))
    ends = [min(later, newest + 1) for later in [*begins, newest + 1][1:]]
    followed = []
    for event, begin, end in zip(switches, begins, ends, strict=True):
        at = np.flatnonzero((pipelines.number >= begin) & (pipelines.number < end) & _follows(event, pipelines))
        first = int(pipelines.number[at[0]]) if len(at) else None
        followed.append(FollowedSwitch(event=event, first_iteration=first, last_iteration=end - 1))
    return tuple(followed)


def _follows(event: JobEvent, pipelines: PipelineIterations) -> NDArray[np.bool_]:
    """(num_iterations) whether every pipeline is at its point of a switch."""
    if not pipelines.dp_ranks or pipelines.dp_ranks[-1] >= len(event.points):
        return np.zeros(len(pipelines.number), dtype=bool)
    points = np.array([event.points[dp_rank] for dp_rank in pipelines.dp_ranks])
    return np.asarray((pipelines.point == points[:, None]).all(axis=0) & pipelines.follows_plan)
