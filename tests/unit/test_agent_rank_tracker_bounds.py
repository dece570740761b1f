"""What a rank's agent makes of marks, of clocks that nobody has read, and of a planner that never was."""

import pytest
from test_agent_core import SCHEDULE, S, connect, make_world, switch, table, tell

from perseus_dist.agent.core.rank_tracker import _MAX_BACKLOG_NS, _late_ns
from perseus_dist.boundaries.record import Event
from perseus_dist.messages.from_agent import RunTimes
from perseus_dist.messages.from_planner import Attached

ROW = (1410, 1200, 1200, 1410, 1005, 1005)


def test_a_trainer_that_asks_for_its_clocks_has_them_until_the_next_iteration() -> None:
    world = make_world()
    connect(world, table(1, ((1200,) * 6,)), switch())
    world.iterate(0, 2)
    assert world.requests[-1][1] == 1200
    world.pass_boundary(Event.MARK, "release")
    assert world.requests[-1] == (world.now, None)
    world.iterate(2, 1)
    assert world.requests[-1][1] == 1200


def test_what_comes_behind_an_iteration_that_failed_is_none_of_it() -> None:
    """The trainer recovers for two minutes, and trains one more iteration before it publishes again."""
    world = make_world()
    connect(world, table(1, ((1200,) * 6,)), switch())
    world.iterate(0, 4)
    world.pass_boundary(Event.ITERATION_BEGIN, iteration=4)
    world.run("F", 0)
    world.pass_boundary(Event.MARK, "release")
    world.advance(world.now + 120 * S, 80.0)
    world.iterate(6, 4)
    world.advance(world.now + 3 * S, 80.0)
    assert [report.iteration for report in world.kept] == [0, 1, 2, 3, 6, 7, 8]
    assert max(report.time_s for report in world.kept) < 2


def test_a_mark_that_says_nothing_of_clocks_changes_none() -> None:
    world = make_world()
    connect(world, table(1, ((1200,) * 6,)), switch())
    world.iterate(0, 2)
    num_requests = len(world.requests)
    world.pass_boundary(Event.MARK, "grad_sync")
    world.pass_boundary(Event.MARK, "something of a later version")
    assert len(world.requests) == num_requests


def test_no_planner_is_missed_that_never_was_there() -> None:
    world = make_world()
    world.iterate(0, 2)
    assert world.warned == []


def test_clocks_of_timed_iterations_are_those_requested_where_none_was_read() -> None:
    world = make_world(pp_size=2)
    world.is_control_hung = True
    connect(world)
    tell(world, Attached(phase="enforcing", table_revision=0, acked_samples=0, wants_timelines=True))
    tell(world, table(1, (ROW,)), switch())
    world.iterate(0, 40)
    told = [times.clocks_mhz for times in world.of_type(RunTimes) if times.clocks_mhz]
    assert told
    assert len(told[0]) == len(SCHEDULE.split())
    assert {clock for clocks in told for clock in clocks} <= {*ROW}
    assert any(clocks == ROW for clocks in told)


@pytest.mark.parametrize(
    ("time_ns", "looked_ns", "late_ns"),
    [(90, 70, 30), (90, 100, 0), (90, None, 0), (100 - _MAX_BACKLOG_NS, None, 0), (99 - _MAX_BACKLOG_NS, None, None)],
)
def test_a_boundary_is_at_most_as_late_as_the_look_before(
    time_ns: int, looked_ns: int | None, late_ns: int | None
) -> None:
    assert _late_ns(time_ns, 100, looked_ns) == (_MAX_BACKLOG_NS + 1 if late_ns is None else late_ns)
