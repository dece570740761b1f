"""The promise at its limits: what the guard is told, what is given up first, when plans are probed or tried again."""

import math
from collections.abc import Sequence

import pytest
from fleets import fleet_enforcing
from test_enforcement_lateness_bounds import NOW_S, sweep, told
from test_enforcement_plan_choice_bounds import FULL, give_own_plan, job, report_slow, slow, switch_to, vary
from test_enforcement_switching_bounds import said, waiting
from test_planner_lifecycle import of_type, summary

from perseus_dist.messages.from_planner import Probe
from perseus_dist.messages.terms import NO_POINT
from perseus_dist.planner.job.guard import Breach, Waiting
from perseus_dist.planner.job.job import Phase
from perseus_dist.planner.lifecycle.enforcement.promise import (
    _is_later_than_stragglers,
    _is_waited_for,
    _waiting,
    guard_iteration,
    keep_promise,
)
from perseus_dist.planner.lifecycle.enforcement.switching import effective_iteration
from perseus_dist.planner.lifecycle.events import Send

AGAIN = "stragglers are waited for again"
OWN_AGAIN = "plans for pipelines with stragglers are tried again"


# ---- what the guard is told ------------------------------------------------------------------------------------------


def test_what_is_reported_during_a_sweep_says_nothing_until_clocks_are_free_of_it_for_sure() -> None:
    made = fleet_enforcing().job
    state, guard = made.members.ranks[0], made.enforcement.guard
    before = guard.swept_until
    guard_iteration(made, state, told(made.progress.iteration), NOW_S, is_planned=True)
    assert guard.swept_until == before
    sweep(made)
    guard_iteration(made, state, told(made.progress.iteration), NOW_S, is_planned=True)
    assert guard.swept_until == effective_iteration(made, NOW_S) + 1


@pytest.mark.parametrize(
    ("point", "is_planned", "excess"), [(0, True, 0.1), (0, False, 0.0), (NO_POINT, True, 0.0), (NO_POINT, False, 0.0)]
)
def test_computations_under_the_plan_alone_tell_of_its_clocks(point: int, excess: float, *, is_planned: bool) -> None:
    made = fleet_enforcing().job
    guard_iteration(made, made.members.ranks[0], told(100, 1.1, point=point), NOW_S, is_planned=is_planned)
    assert made.enforcement.guard.instruction_excess == pytest.approx(excess)


def test_full_clocks_are_known_as_of_the_second_settled_iteration_in_a_row() -> None:
    made = fleet_enforcing().job
    made.enforcement.measured_at_s = -math.inf
    seen = []
    for number in range(made.progress.iteration + 5, made.progress.iteration + 9):
        for rank in (0, 1):
            guard_iteration(
                made, made.members.ranks[rank], told(number, point=NO_POINT), float(number), is_planned=False
            )
        seen.append(made.enforcement.measured_at_s - made.progress.iteration)
    assert seen == [-math.inf, -math.inf, 7.0, 8.0]


# ---- probes and holds ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phase", "points", "falls", "expected"),
    [
        (Phase.ENFORCING, (NO_POINT, NO_POINT), False, Phase.RELEASED),
        (Phase.PLANNING, (NO_POINT, NO_POINT), False, Phase.PLANNING),
        (Phase.REPROFILING, (NO_POINT, NO_POINT), False, Phase.REPROFILING),
        (Phase.ENFORCING, (0, NO_POINT), False, Phase.RELEASED),
        (Phase.ENFORCING, (0, 0), True, Phase.RELEASED),
        (Phase.PLANNING, (0, 0), True, Phase.PLANNING),
        (Phase.REPROFILING, (0, 0), False, Phase.REPROFILING),
        (Phase.ENFORCING, (), False, Phase.ENFORCING),
    ],
)
def test_a_plan_in_breach_is_given_up_and_what_was_given_up_is_held_back(
    phase: Phase, points: tuple[int, ...], expected: Phase, *, falls: bool
) -> None:
    made = job()
    made.phase = phase
    switch_to(made, points=points)
    made.enforcement.switch = made.switch if points else None
    guard = made.enforcement.guard
    guard.guard.breach = Breach(reference_s=1.0, allowed_s=1.0, observed_s=1.1, lost_s=1.0)
    effects = keep_promise(made, NOW_S)
    assert bool(effects) == falls
    assert guard.num_falls == falls
    assert (guard.guard.breach is None) == falls
    assert made.phase is expected
    assert guard.is_holding == (expected is Phase.RELEASED or falls)
    assert made.point(0) == (NO_POINT if falls or not points else points[0])


@pytest.mark.parametrize(
    ("own", "t_prime_s", "is_reported", "given_up"),
    [
        (True, 0.9, False, "own plans"),
        (True, 1.0, False, "own plans"),
        (True, 1.01, False, "waiting"),
        (True, 0.0, False, "waiting"),
        (False, 0.9, False, "waiting"),
        (False, 0.9, True, "plan"),
        (False, 0.0, False, "plan"),
    ],
)
def test_first_whatever_makes_pipelines_wait_is_given_up_and_then_the_plan(
    t_prime_s: float, given_up: str, *, own: bool, is_reported: bool
) -> None:
    made = waiting(t_prime_s)
    made.detection.verdicts, made.detection.keeps_switch = (slow(degree=1.3),), given_up == "waiting"
    if own:
        give_own_plan(made, table=summary(fastest_s=1.3), is_followed=True)
    if is_reported:
        report_slow(made, 1.3)
    guard = made.enforcement.guard
    guard.guard.breach = Breach(reference_s=1.0, allowed_s=1.0, observed_s=1.1, lost_s=1.0)
    keep_promise(made, NOW_S)
    assert made.switch is not None
    falls = (guard.num_own_falls, guard.num_wait_falls, guard.num_plan_falls)
    assert falls == tuple(int(given_up == one) for one in ("own plans", "waiting", "plan"))
    if given_up == "own plans":
        assert made.switch.points == (2, FULL), "the others wait on"
    elif given_up == "waiting":
        assert (made.switch.t_prime_s, made.switch.points) == (0.0, (0, 0))
        assert not made.detection.verdicts
        assert not made.detection.keeps_switch


def test_own_plans_of_before_a_restart_are_given_up_though_the_switch_stays() -> None:
    """Nobody knows who is slow any more: what is not in breach stays."""
    made = waiting(0.9)
    made.detection.keeps_switch = True
    give_own_plan(made, table=summary(fastest_s=1.3), is_followed=True)
    assert made.switch is not None
    before = made.switch.points
    made.enforcement.guard.guard.breach = Breach(reference_s=1.0, allowed_s=1.0, observed_s=1.1, lost_s=1.0)
    (sentence,) = said(keep_promise(made, NOW_S))
    assert "at full clocks: all else stays until it is known again who is slow" in sentence
    assert made.switch.points == (before[0], FULL)
    assert made.switch.own_revisions == ()


@pytest.mark.parametrize(("ahead", "is_tried"), [(1, False), (0, True), (-1, True), (-99, True), (-100, False)])
def test_plans_for_stragglers_are_tried_again_once_after_their_hold(ahead: int, *, is_tried: bool) -> None:
    made = job()
    made.enforcement.guard.own_plans_held_until = until = made.progress.iteration + ahead
    assert any(OWN_AGAIN in one for one in said(keep_promise(made, NOW_S))) == is_tried
    assert made.enforcement.guard.own_plans_held_until == (0 if is_tried else until)


@pytest.mark.parametrize("case", ["", "held", "never held", "probing", "no straggler"])
def test_stragglers_are_waited_for_again_after_a_hold_where_there_are_any_and_no_probe_is_under_way(case: str) -> None:
    made = job()
    guard = made.enforcement.guard
    guard.held_until = made.progress.iteration + (case == "held")
    guard.is_holding = case != "never held"
    made.detection.verdicts = () if case == "no straggler" else (slow(),)
    if case == "probing":
        guard.guard.order_probe(made.progress.iteration)
    assert any(AGAIN in one for one in said(keep_promise(made, NOW_S))) == (case == "")
    assert guard.is_holding == (case in ("held", "probing"))


@pytest.mark.parametrize("has_power", [True, False])
def test_a_probe_is_ordered_as_far_ahead_as_messages_have_been_late_if_there_is_power(*, has_power: bool) -> None:
    made = job()
    vary(made, 1e-4)
    made.members.rank_of_stream = {7: 0, 8: 1}
    made.progress.iteration_at_s, made.enforcement.guard.probe_lead = NOW_S, 5
    made.holds_probes = not has_power
    effects = keep_promise(made, NOW_S)
    probe = Probe(first_iteration=106, num_iterations=3)
    assert of_type(effects, Send) == (
        [Send(stream=7, message=probe), Send(stream=8, message=probe)] if has_power else []
    )
    why = "probe at full clocks from iteration 106 on: 100 iterations have passed"
    assert said(effects) == ([why] if has_power else [])


# ---- who is waited for -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case", ["", "another rank", "no verdict", "not acted upon", "whole", "not waiting", "no switch"]
)
def test_pipelines_wait_for_a_slow_rank_while_they_are_told_to(case: str) -> None:
    made = waiting(0.0 if case == "not waiting" else 2.0)
    found = slow(is_acted_upon=case != "not acted upon", is_whole_pipeline=case == "whole")
    made.detection.verdicts = () if case == "no verdict" else (slow(0, is_acted_upon=False), found)
    if case == "no switch":
        made.enforcement.switch = None
    assert _is_waited_for(made, 3 if case == "another rank" else 2) == (case == "")


@pytest.mark.parametrize(
    ("case", "reference_s", "is_later"),
    [
        ("", 0.9, True),
        ("", 1 / 1.0104, True),
        ("", 1 / 1.0102, False),
        ("found since the probe", 0.9, False),
        ("not acted upon", 0.9, False),
        ("not waiting", 0.9, False),
    ],
)
def test_pipelines_wait_too_long_if_a_probe_beside_the_same_stragglers_took_clearly_less(
    case: str, reference_s: float, *, is_later: bool
) -> None:
    """By more than 1 %, and three standard errors of four iterations beside two at full clocks."""
    made = waiting(0.0 if case == "not waiting" else 2.0)
    vary(made, 1e-4)
    made.enforcement.guard.guard.reference_s = reference_s
    made.enforcement.measured_at_s = 2.0
    is_acted_upon, since_s = case != "not acted upon", 2.0 if case == "found since the probe" else 1.9
    found = slow(since_s=since_s, is_acted_upon=is_acted_upon)
    made.detection.verdicts = (slow(0, is_acted_upon=is_acted_upon), found, slow(0, since_s=3.0, is_acted_upon=False))
    assert _is_later_than_stragglers(made) == is_later


@pytest.mark.parametrize(
    ("t_prime_s", "fresh", "is_kept", "expected"),
    [
        (0.0, (True,), False, Waiting.NONE),
        (2.0, (True,), False, Waiting.SEEN),
        (2.0, (True, True), False, Waiting.SEEN),
        (2.0, (True, False), False, Waiting.BLIND),
        (2.0, (True,), True, Waiting.BLIND),
        (2.0, (), False, Waiting.BLIND),
    ],
)
def test_pipelines_wait_blindly_unless_all_stragglers_have_been_heard_of_lately(
    t_prime_s: float, fresh: Sequence[bool], expected: Waiting, *, is_kept: bool
) -> None:
    made = waiting(t_prime_s)
    made.detection.verdicts = tuple(slow(dp_rank, is_fresh=one) for dp_rank, one in enumerate(fresh))
    made.detection.keeps_switch = is_kept
    assert _waiting(made) is expected
