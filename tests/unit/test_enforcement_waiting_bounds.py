"""How long pipelines wait for a straggler, by what is known of it, and the slack that they keep for noise."""

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import NormalDist

import pytest
from test_enforcement_plan_choice_bounds import FULL, TABLE, exactly, give_own_plan, job, report_slow, slow
from test_lifecycle_baseline_bounds import iteration
from test_planner_lifecycle import S, summary

from perseus_dist.planner.lifecycle.enforcement.plan_choice import choose
from perseus_dist.planner.lifecycle.enforcement.waiting_slack import slack_beside_straggler
from perseus_dist.planning.frontier.noise_margin import TOLERATED
from perseus_dist.straggler.verdicts.verdict import Degree

TAILED = replace(TABLE, tail_ps=S // 5)  # a straggler slows the other 0.8 s alone


@pytest.mark.parametrize(
    ("own", "measured", "recent_s", "dp", "num_seen", "expected"),
    [
        ("", exactly(1.3), (), 2, 0, 1.3),
        ("", exactly(1.3), (1.0,), 2, 0, 1.25),
        ("", exactly(1.3), (0.4, 1.0, 9.0), 2, 0, 1.25),
        ("", exactly(1.3), (1.0,), 1, 0, 1.25),
        ("", exactly(1.3), (0.5,), 2, 0, 1.0),
        ("", Degree(value=1.4, low=1.25, high=2.5), (1.0,), 2, 0, 2.0),  # no less than what its rank takes
        ("", None, (1.0,), 2, 0, 2.0),
        ("asked", exactly(1.2), (1.0,), 2, 3, 1.5),
        ("followed", Degree(value=1.4, low=1.2, high=1.6), (), 2, 0, 1.4),
        ("followed", Degree(value=1.7, low=1.6, high=1.8), (), 2, 0, 1.6),
        ("followed", Degree(value=1.7, low=1.2, high=1.8), (), 2, 0, 1.5),
        ("followed", Degree(value=1.4, low=1.3, high=1.6), (1.0,), 2, 2, 1.25),
        ("followed", None, (1.0,), 2, 2, 1.5),
        ("followed", None, (1.0,), 2, 3, 1.25),
        ("followed", None, (), 2, 3, 1.5),
        ("followed", exactly(1.2), (1.0,), 1, 2, 1.5),
        ("followed", exactly(1.2), (1.0,), 1, 3, 1.25),
    ],
)
def test_a_straggler_costs_what_its_own_plan_says_within_what_was_measured_and_no_more_than_it_takes_now(
    own: str, measured: Degree | None, recent_s: Sequence[float], dp: int, num_seen: int, expected: float
) -> None:
    """Measured beside pipelines without stragglers alone; and under plans of their own after three iterations."""
    made = job(dp=dp, table=TAILED)
    made.detection.verdicts = (slow(dp - 1, pipeline=measured),)
    if own:
        give_own_plan(made, dp - 1, table=summary(fastest_s=1.4), is_followed=own == "followed")
    made.progress.pipelines[-1].recent_times_s.extend(recent_s)
    made.measured.enforced.extend(iteration(number) for number in range(num_seen))
    choice = choose(made)
    assert choice.selection.pipelines[-1].time_s == pytest.approx(0.2 + 0.8 * expected)
    if dp == 2:
        assert (choice.selection.t_prime_s or 1.0) == pytest.approx(0.2 + 0.8 * expected)


@pytest.mark.parametrize(("degree", "point"), [(1.2, 0), (1.4, 0), (1.44, 1), (1.6, 2), (2.0, 3)])
def test_pipelines_with_plans_of_their_own_wait_for_one_that_is_slower(degree: float, point: int) -> None:
    made = job(dp=3)
    made.detection.verdicts = (slow(1, 1.3), slow(2, degree))
    own = give_own_plan(made, table=summary(fastest_s=1.3))
    choice = choose(made)
    assert choice.points == (2 if degree < 1.4 else 3, point, FULL)
    assert choice.own_revisions == (0, own.revision, 0)


@pytest.mark.parametrize(
    ("t_prime_s", "own_noise", "late", "point"),
    [
        (1.203, 0.0, 0.0, 2),
        (1.199, 0.0, 0.0, 1),
        (1.203, 0.01, 0.0, 1),  # 0.5 % earlier
        (1.207, 0.01, 0.0, 2),
        (1.19, 0.0, 0.02, 2),
        (1.17, 0.0, 0.02, 1),
    ],
)
def test_pipelines_wait_until_the_mean_of_the_slowest_less_the_slack_that_noise_needs(
    t_prime_s: float, own_noise: float, late: float, point: int
) -> None:
    made = job(table=replace(TABLE, own_noise=own_noise))
    made.detection.verdicts = (slow(pipeline=exactly(t_prime_s)),)
    if late:
        give_own_plan(made, table=replace(summary(fastest_s=t_prime_s), late_by=(late, 0.0, 0.0, 0.0)))
    assert choose(made).points[0] == point


@pytest.mark.parametrize(("factor", "is_reported", "point"), [(1.0, False, 2), (1.1, False, 1), (1.1, True, 2)])
def test_a_pipeline_that_may_meet_a_slow_link_waits_less_long_but_for_an_operators_word(
    factor: float, point: int, *, is_reported: bool
) -> None:
    made = job(table=replace(TABLE, slowest_case_ps=round(factor * S)))
    if is_reported:
        report_slow(made, 1.25)
    else:
        made.detection.verdicts = (slow(pipeline=exactly(1.25)),)
    assert choose(made).points[0] == point


@pytest.mark.parametrize(("own_noise", "num_waiting"), [(0.0064, 1), (0.009, 1), (0.009, 5), (0.03, 5), (0.03, 63)])
def test_slack_leaves_as_much_lateness_of_all_that_wait_as_is_tolerated(own_noise: float, num_waiting: int) -> None:
    apart, normal = math.sqrt(2) * own_noise, NormalDist()
    z = slack_beside_straggler(own_noise, num_waiting) / apart
    assert 0 < z < 8
    later = normal.pdf(z) - z * (1 - normal.cdf(z))  # of one, on the mean, where it is
    assert num_waiting * apart * later == pytest.approx(TOLERATED)


def test_pipelines_that_are_hardly_ever_late_need_no_slack() -> None:
    assert slack_beside_straggler(0.0062, 1) == 0.0
    assert slack_beside_straggler(0.0031, 2) == 0.0
