"""Shapes that a job may come back in."""

from dataclasses import replace

from perseus_dist.fingerprint import Fingerprint
from perseus_dist.planner.shapes.likely_shapes import MAX_SHAPES, Shape, likely_shapes
from perseus_dist.planner.shapes.stage import StageWork
from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.planning.schedule.schedule_text import parse_schedule

HEAD = 10


def works(pp: int, layers: int = 48, *, of_layer: int = 7) -> tuple[StageWork, ...]:
    each = layers // pp
    return tuple(
        StageWork(
            index=stage,
            num_stages=pp,
            parameters=of_layer * each + (HEAD if stage == pp - 1 else 0),
            layers=each,
            fingerprint=Fingerprint(gpu_name="A100"),
        )
        for stage in range(pp)
    )


def shape(pp: int, microbatches: int) -> Shape:
    return Shape(schedule=one_f_one_b(pp=pp, microbatches=microbatches), works=works(pp))


def found(now: Shape, dp: int, ranks_of_node: int = 0, left: Shape | None = None) -> list[tuple[int, int]]:
    """Stages and microbatches of each."""
    shapes = likely_shapes(now, dp_size=dp, tp_size=1, ranks_of_node=ranks_of_node, left=left)
    assert len(shapes) <= MAX_SHAPES
    for one in shapes:
        assert one.works == works(one.schedule.num_ranks), "each stage holds as many layers, with head and all"
    return [(one.schedule.num_ranks, one.schedule.num_microbatches) for one in shapes]


def test_a_pipeline_less_has_the_batch_divided_or_each_pipelines_microbatches() -> None:
    assert found(shape(4, 8), dp=4) == [(4, 11), (4, 8), (3, 8)]
    assert found(shape(4, 8), dp=2) == [(4, 16), (4, 8), (3, 8)]


def test_a_node_less_costs_the_pipelines_that_its_ranks_make() -> None:
    assert found(shape(4, 8), dp=4, ranks_of_node=8) == [(4, 11), (4, 8), (4, 16), (2, 8)]
    assert found(shape(4, 8), dp=1, ranks_of_node=2) == [(2, 8), (3, 8)]
    assert found(shape(4, 8), dp=4, ranks_of_node=16)[0] == (4, 11), "all on one node, which takes the job along"


def test_a_job_goes_back_to_the_shape_that_it_has_left() -> None:
    assert (4, 8) in found(shape(4, 11), dp=3, left=shape(4, 8))
    assert found(shape(3, 8), dp=1, left=shape(4, 8)) == [(4, 8), (2, 8)]


def test_no_stage_is_guessed_that_does_not_follow() -> None:
    now = shape(4, 8)
    for others in (
        works(4, 44),  # which three stages do not divide
        tuple(replace(one, layers=0) for one in now.works),
        (replace(now.works[0], layers=3), *now.works[1:]),
        (replace(now.works[0], fingerprint=Fingerprint(gpu_name="A40")), *now.works[1:]),
    ):
        shapes = likely_shapes(replace(now, works=others), dp_size=1, tp_size=1, ranks_of_node=0, left=None)
        assert not shapes or [one.schedule.num_ranks for one in shapes] == [2]
    unknown = Shape(schedule=parse_schedule("0F0 0F1 0B1 0B0\n1F0 1B0 1F1 1B1\n"), works=works(2))
    assert likely_shapes(unknown, dp_size=2, tp_size=1, ranks_of_node=0, left=None) == [unknown]
