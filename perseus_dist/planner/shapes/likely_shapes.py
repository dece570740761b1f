"""Shapes that a job may come back in: a pipeline less, a node less, a stage less, or as it was before.

What the other pipelines get is the batch of the job divided among fewer, or as many microbatches as before; which, the
trainers' own settings decide, so that both are likely. The number of pipelines itself is no part of a shape: all of
them run the same plan.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from perseus_dist.planner.shapes.stage import StageWork
from perseus_dist.planning.schedule.resized import resized
from perseus_dist.planning.schedule.schedule import Schedule, format_schedule

MAX_SHAPES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A pipeline as a job may run it.

    Attributes:
        schedule: What it runs.
        works: (num_stages) what its stages hold.
    """

    schedule: Schedule
    works: tuple[StageWork, ...]

    @property
    def schedule_text(self) -> str:
        """As a trainer sends it."""
        return format_schedule(self.schedule)


def likely_shapes(now: Shape, *, dp_size: int, tp_size: int, ranks_of_node: int, left: Shape | None) -> list[Shape]:
    """The likeliest shapes after this one, the likeliest first; ``MAX_SHAPES`` at most.

    Args:
        now: The job's.
        dp_size: Its pipelines.
        tp_size: GPUs that share each of its instructions.
        ranks_of_node: Ranks of the node that runs most of them; 0 where that is not known.
        left: The shape that the job had before, or None.
    """
    found: list[Shape] = []
    for shape in (
        *_with_pipelines(now, dp_size, _pipelines_left(now, dp_size, tp_size, ranks_of_node)),
        *([] if left is None else [left]),
        *_with_stages(now, _stages_left(now, dp_size, tp_size, ranks_of_node)),
    ):
        if shape not in found:
            found.append(shape)
    return found[:MAX_SHAPES]


def _pipelines_left(now: Shape, dp_size: int, tp_size: int, ranks_of_node: int) -> Iterator[int]:
    """Where one pipeline is lost, or a node whose other ranks make as many whole pipelines as they can."""
    of_pipeline = now.schedule.num_ranks * tp_size
    yield dp_size - 1
    yield (dp_size * of_pipeline - ranks_of_node) // of_pipeline


def _stages_left(now: Shape, dp_size: int, tp_size: int, ranks_of_node: int) -> Iterator[int]:
    """Where a node, or one stage, of every pipeline is lost."""
    pp_size = now.schedule.num_ranks
    yield (dp_size * pp_size * tp_size - ranks_of_node) // (dp_size * tp_size)
    yield pp_size - 1


def _with_pipelines(now: Shape, dp_size: int, sizes: Iterable[int]) -> Iterator[Shape]:
    for size in sizes:
        if 1 <= size < dp_size:
            all_microbatches = dp_size * now.schedule.num_microbatches
            divided = resized(now.schedule, microbatches=-(-all_microbatches // size))
            if divided is not None:
                yield replace(now, schedule=divided)
            yield now


def _with_stages(now: Shape, sizes: Iterable[int]) -> Iterator[Shape]:
    for size in sizes:
        works = _split_among(now.works, size) if 1 < size < now.schedule.num_ranks else None
        if works is None:
            continue
        schedule = resized(now.schedule, microbatches=now.schedule.num_microbatches, pp=size)
        if schedule is not None and schedule.num_stages == size:
            yield Shape(schedule=schedule, works=works)


def _split_among(works: Sequence[StageWork], num_stages: int) -> tuple[StageWork, ...] | None:
    """The model in fewer stages of as many layers each; None where that does not follow from the stages there are."""
    layers = sum(work.layers for work in works)
    is_even = len({work.layers for work in works}) == 1 and works[0].layers > 0
    is_alike = all(work.fingerprint == works[0].fingerprint for work in works)
    if not is_even or not is_alike or len(works) < 3 or layers % num_stages:
        return None
    each, between = layers // num_stages, works[1]
    found = []
    for index in range(num_stages):
        of_role = works[0] if index == 0 else works[-1] if index == num_stages - 1 else between
        more = (each - of_role.layers) * between.parameters // between.layers
        parameters = of_role.parameters + more if of_role.parameters and between.parameters else 0
        found.append(replace(of_role, index=index, num_stages=num_stages, layers=each, parameters=parameters))
    return tuple(found)
