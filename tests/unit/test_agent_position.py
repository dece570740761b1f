"""Following a rank's order through whatever boundaries come."""

import pytest

from perseus_dist.agent.following.position import BoundaryEffect, Position
from perseus_dist.agent.following.rank_program import rank_order, schedule_digest
from perseus_dist.boundaries.record import Boundary, Event
from perseus_dist.errors import ScheduleError
from perseus_dist.planning.schedule.schedule import format_schedule, interleaved, joint_exchanges, one_f_one_b
from perseus_dist.planning.schedule.schedule_text import parse_schedule

ORDER = rank_order("0F0 0F1 0LOAD 0B0 0B1\n", 0)


def boundary(event: Event, kind: str = "", microbatch: int = -1, chunk: int = 0, iteration: int = 0) -> Boundary:
    return Boundary(0, event, kind, chunk, microbatch, iteration, 0, 0)


def follow(position: Position, *events: tuple[Event, str, int]) -> list[BoundaryEffect]:
    return [position.step(boundary(e, kind, mb), 10 * i) for i, (e, kind, mb) in enumerate(events)]


def whole_iteration(position: Position, iteration: int) -> list[BoundaryEffect]:
    happened = [position.step(boundary(Event.ITERATION_BEGIN, iteration=iteration), 0)]
    for k, work in enumerate(ORDER):
        happened.append(position.step(boundary(Event.BEGIN, work.kind, work.microbatch), 100 * k + 10))
        happened.append(position.step(boundary(Event.END, work.kind, work.microbatch), 100 * k + 90))
    happened.append(position.step(boundary(Event.ITERATION_END, iteration=iteration), 500))
    return happened


def test_an_iteration_in_order() -> None:
    position = Position(ORDER)
    happened = whole_iteration(position, 7)
    runs = [BoundaryEffect.BEGAN, BoundaryEffect.ENDED] * len(ORDER)
    assert happened == [BoundaryEffect.ITERATION_BEGAN, *runs, BoundaryEffect.ITERATION_ENDED]
    assert position.iteration == 7
    assert position.in_step
    assert not position.in_iteration
    assert position.last_run is not None
    assert (position.last_run.begin.time_ns, position.last_run.duration_ns, position.last_run.idle_ns) == (410, 80, 20)


def test_a_wrong_boundary_puts_out_of_step_until_the_next_iteration() -> None:
    position = Position(ORDER)
    begin = (Event.ITERATION_BEGIN, "", -1)
    wrong = follow(position, begin, (Event.BEGIN, "F", 1), (Event.END, "F", 1), (Event.BEGIN, "B", 0))
    assert wrong[1:] == [BoundaryEffect.OUT_OF_STEP, BoundaryEffect.NOTHING, BoundaryEffect.NOTHING]
    assert not position.in_step
    assert position.mismatch == (
        "iteration 0: saw the begin of F of microbatch 1 in chunk 0, expected F of microbatch 0 in chunk 0 next"
    )
    assert position.num_mismatched == 1
    whole_iteration(position, 1)
    assert position.in_step
    assert position.num_mismatched == 0


@pytest.mark.parametrize(
    "events",
    [
        [(Event.END, "F", 0)],
        [(Event.BEGIN, "F", 0), (Event.BEGIN, "F", 1)],
        [(Event.BEGIN, "F", 0), (Event.END, "F", 1)],
        [(Event.BEGIN, "F", 0), (Event.END, "F", 0), (Event.BEGIN, "W", 0)],
        [(Event.BEGIN, "F", 0), (Event.END, "F", 0), (Event.ITERATION_END, "", -1)],
    ],
)
def test_whatever_does_not_fit_is_noticed(events: list[tuple[Event, str, int]]) -> None:
    position = Position(ORDER)
    assert follow(position, (Event.ITERATION_BEGIN, "", -1), *events)[-1] is BoundaryEffect.OUT_OF_STEP


def test_before_the_first_iteration_nothing_is_known() -> None:
    position = Position(ORDER)
    assert follow(position, (Event.BEGIN, "F", 1), (Event.END, "F", 1)) == [BoundaryEffect.NOTHING] * 2
    assert not position.in_step


def test_constants_may_go_unreported_or_unscheduled() -> None:
    position = Position(ORDER)
    events = [(Event.ITERATION_BEGIN, "", -1), (Event.BEGIN, "RECV", -1), (Event.END, "RECV", -1)]
    for kind, microbatch in (("F", 0), ("F", 1), ("B", 0), ("B", 1)):
        events += [(Event.BEGIN, kind, microbatch), (Event.END, kind, microbatch)]
    happened = follow(position, *events, (Event.ITERATION_END, "", -1))
    assert BoundaryEffect.OUT_OF_STEP not in happened
    assert happened[1:3] == [BoundaryEffect.NOTHING] * 2


def test_a_trainer_may_not_know_the_microbatch() -> None:
    position = Position(ORDER)
    happened = follow(position, (Event.ITERATION_BEGIN, "", -1), (Event.BEGIN, "F", -1), (Event.END, "F", -1))
    assert happened[-1] is BoundaryEffect.ENDED


def test_chunks_count_the_stages_of_a_rank() -> None:
    schedule = interleaved(pp=2, microbatches=2, chunks=2)
    order = rank_order(format_schedule(schedule), 1)
    assert [(w.chunk, w.kind, w.microbatch) for w in order] == [
        (i.stage // 2, i.kind, i.microbatch) for i in schedule.ranks[1]
    ]


def test_joint_exchanges_are_no_part_of_a_ranks_order() -> None:
    schedule = interleaved(pp=2, microbatches=4, chunks=2)
    joint = joint_exchanges(schedule)
    assert rank_order(format_schedule(joint), 1) == rank_order(format_schedule(schedule), 1)
    assert schedule_digest(format_schedule(joint)) == joint.digest() != schedule.digest()


def test_the_digest_is_the_schedules() -> None:
    schedule = one_f_one_b(pp=2, microbatches=3)
    text = format_schedule(schedule)
    assert schedule_digest(text) == schedule.digest()
    assert schedule_digest("# captured\n" + text.replace(" ", ", ") + "\n") == schedule.digest()


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("0F0 + 0B0", r"line 1, column 5: '\+' is not an instruction"),
        ("0F0++ 0B0", r"line 1, column 1: '0F0\+\+' is not an instruction"),
        ("0F0 0B+0", r"line 1, column 5: '0B\+0' is not an instruction"),
        (",,", "no instructions: give it a stage, or leave"),
    ],
)
def test_a_ranks_line_is_read_as_the_whole_schedule_is(line: str, seen: str) -> None:
    with pytest.raises(ScheduleError, match=seen):
        parse_schedule(line)
    with pytest.raises(ScheduleError, match=seen):
        rank_order(line, 0)
    with pytest.raises(ScheduleError, match="pp_rank 0 has no instructions"):
        rank_order(",, # idle\n0F0 0B0", 0)
    assert len(rank_order(",, # idle\n0F0 0B0", 1)) == 2, "the line of commas is a pp_rank's"


def test_whether_an_exchange_can_be_joint_is_the_planners_business() -> None:
    assert [work.kind for work in rank_order("0F0 0B0+", 0)] == ["F", "B"]
    with pytest.raises(ScheduleError, match=r"column 5: 0B0\+ cannot exchange jointly"):
        parse_schedule("0F0 0B0+")


def test_a_schedule_without_this_rank_is_refused() -> None:
    with pytest.raises(ScheduleError, match="none for pp_rank 1"):
        rank_order("0F0 0B0\n", 1)
