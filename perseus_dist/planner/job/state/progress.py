"""Iterations of a run, as far as ranks have reported them."""

from collections import deque
from dataclasses import dataclass, field

from perseus_dist.messages.terms import NO_ITERATION, NO_POINT

MIXED = (0, NO_POINT - 1)
"""Stands for (table revision, point) of a pipeline whose ranks did not all follow the same."""

NUM_RECENT = 15  # iterations behind an estimate of the iteration time
NUM_RECENT_PIPELINE = 3  # the same, of what a pipeline takes just now


@dataclass(slots=True)
class Iteration:
    """One iteration of a pipeline or of the whole job, as far as it has been reported.

    Attributes:
        num_parts: Ranks, or pipelines, that have reported it.
        time_s: [s] the longest of theirs.
        pipeline_time_s: [s] the same, until gradient synchronisation.
        energy_j: [J] of all theirs; None once one is not known.
        is_released: Whether all of them ran without a plan.
        is_planned: Whether all of them followed a plan, of the switch in force or of another.
        followed: By dp_rank, the table revision and the point that its ranks say they followed, or ``MIXED``.
        is_live: Whether all agents saw it live; otherwise its figures say nothing.
    """

    number: int
    num_parts: int
    time_s: float
    pipeline_time_s: float
    energy_j: float | None
    is_released: bool
    is_planned: bool
    followed: dict[int, tuple[int, int]]
    is_live: bool


@dataclass(slots=True, kw_only=True)
class Pipeline:
    """One data-parallel replica.

    Attributes:
        iteration: The newest that any of its ranks reported.
        time_s: [s] that it took.
        latest: The newest that all its ranks reported.
        recent_times_s: [s] of the latest of those, until gradient synchronisation.
        unfinished: Iterations that some rank has not reported yet, by number.
    """

    num_attached: int = 0
    iteration: int = NO_ITERATION
    time_s: float = 0.0
    latest: Iteration | None = None
    recent_times_s: deque[float] = field(default_factory=lambda: deque(maxlen=NUM_RECENT_PIPELINE))
    unfinished: dict[int, Iteration] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Progress:
    """Position of training, and the times of its latest iterations.

    Attributes:
        iteration: Newest that any rank has begun.
        iteration_at_s: [s] when that was learnt.
        recent_times_s: [s] times of ranks' latest iterations.
        unfinished: Iterations that some pipeline has not reported, by number.
        began_at_iteration: The first iteration that was heard of in this run; None before there is one.
        began_at_s: [s] when that was.
        released_number: The newest whole iteration that ran without a plan.
        pipelines: By dp_rank.
    """

    iteration: int = NO_ITERATION
    iteration_at_s: float = 0.0
    recent_times_s: deque[float] = field(default_factory=lambda: deque(maxlen=NUM_RECENT))
    unfinished: dict[int, Iteration] = field(default_factory=dict)
    began_at_iteration: int | None = None
    began_at_s: float = 0.0
    released_number: int = NO_ITERATION
    pipelines: list[Pipeline] = field(default_factory=list)

    def of_next_run(self) -> "Progress":
        """The state that a new run begins with: attached ranks, and where they are."""
        return Progress(
            iteration=self.iteration,
            iteration_at_s=self.iteration_at_s,
            pipelines=[Pipeline(num_attached=pipeline.num_attached) for pipeline in self.pipelines],
        )
