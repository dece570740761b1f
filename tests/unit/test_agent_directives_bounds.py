"""Which iterations a rank tells the planner times of, and for how long it stays released in a probe, at the edges."""

import pytest
from test_agent_clock_directives import CLOCKS_MHZ, orders, points

from perseus_dist.agent.core.actions import LogDebug, Send
from perseus_dist.messages.from_agent import SwitchSeen
from perseus_dist.messages.from_planner import Probe, Sweep, Switch
from perseus_dist.messages.terms import NO_POINT


def switch(number: int, point: int = 0, effective_iteration: int = 6) -> Switch:
    return Switch(table_revision=1, point=point, effective_iteration=effective_iteration, switch_revision=number)


def test_times_of_iterations_under_a_plan_are_wanted_where_the_planner_has_asked_for_them() -> None:
    made = orders()
    assert not any(made.is_timed(iteration) for iteration in range(1, 1000))
    made.wants_timelines = True
    wanted = [iteration for iteration in range(1, 1000) if made.is_timed(iteration)]
    assert wanted
    assert wanted[0] >= 2, "the plan begins there"
    made.apply(Probe(first_iteration=wanted[1], num_iterations=2), 0)
    still = [iteration for iteration in range(1, 1000) if made.is_timed(iteration)]
    assert wanted[1] not in still
    assert wanted[1] + 1 in still, "the last of a probe"


@pytest.mark.parametrize(("begun", "first_free"), [(3, 5), (4, 5), (5, 6), (6, 7), (7, None)])
def test_a_probe_begins_behind_what_has_begun(begun: int, first_free: int | None) -> None:
    made = orders()
    made.apply(Probe(first_iteration=5, num_iterations=3), begun)
    free = [iteration for iteration in range(4, 12) if made.is_free(iteration)]
    assert free == ([] if first_free is None else [*range(first_free, 8)])


def test_clocks_of_a_sweep_are_those_of_all_instructions() -> None:
    made = orders()
    made.apply(Sweep(sweep_id=1, first_iteration=3, iterations_per_clock=2, clocks_mhz=CLOCKS_MHZ[:2]), 1)
    assert [made.row(iteration).clocks_mhz for iteration in (3, 4, 5, 6)] == [(1400, 1400)] * 2 + [(1200, 1200)] * 2
    assert points(made, range(2, 8)) == [1, NO_POINT, NO_POINT, NO_POINT, NO_POINT, 1]


def test_a_switch_is_answered_when_it_is_followed_and_when_it_is_said_again() -> None:
    made = orders()
    first = made.apply(switch(2), 3)
    assert first[0] == Send(SwitchSeen(table_revision=1, switch_revision=2))
    assert isinstance(first[1], LogDebug)
    assert made.apply(switch(2), 3) == [first[0]]
    assert made.apply(switch(1, point=1, effective_iteration=2), 3) == [first[0]], (
        "who sends an older one knows no newer"
    )
    assert points(made, range(4, 8)) == [1, 1, 0, 0]
