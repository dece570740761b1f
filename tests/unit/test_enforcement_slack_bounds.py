"""Slack for noise at its limits: how late and how noisy iterations are that need more, or that need less."""

from dataclasses import replace

import pytest
from test_enforcement_lateness_bounds import compute, timed
from test_enforcement_plan_choice_bounds import TABLE
from test_lifecycle_baseline_bounds import iteration
from test_lifecycle_transfers_bounds import snapshot

from perseus_dist.messages.terms import T_MIN, Target
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.lifecycle.enforcement.promise import excess_over_target
from perseus_dist.planner.lifecycle.enforcement.slack import _is_sure, slack_to_plan


def late(share: float = 0.005, *, noise: float = 0.002, margin: float = 0.0, target: Target = T_MIN) -> Job:
    """Under a plan with such a margin."""
    made = timed(share, noise=noise, target=target, allowed_s=target.slowdown or 1.0)
    assert made.plan is not None
    made.plan = replace(made.plan, summary=replace(TABLE, margin=margin))
    return made


# ---- more ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("share", "margin", "wanted"),
    [
        (0.0029, 0.0, 0.0),
        (0.0031, 0.0, 0.25),
        (0.0039, 0.0, 0.25),
        (0.0041, 0.0, 0.5),
        (0.0149, 0.0, 0.5),
        (0.0151, 0.0, 0.0),
        (0.005, 0.25, 0.75),
        (0.005, 0.5, 1.0),
        (0.005, 0.75, 1.0),
        (0.005, 1.0, 0.0),
    ],
)
def test_a_plan_that_is_late_gets_the_next_margin_and_one_that_is_clearly_late_the_one_behind_it(
    share: float, margin: float, wanted: float
) -> None:
    made = late(share, margin=margin)
    assert bool(slack_to_plan(made)) == (wanted > 0)
    assert (made.planning.margin, made.planning.num_slack_changes) == (wanted, int(wanted > 0))
    assert made.planning.late_then == pytest.approx(share if wanted else 0.0)


@pytest.mark.parametrize(("share", "is_noise"), [(0.0079, True), (0.0081, False), (0.0104, False)])
def test_lateness_of_four_times_the_noise_at_most_is_explained_by_it_and_ends_with_it(
    share: float, *, is_noise: bool
) -> None:
    made = late(share)
    why = slack_to_plan(made)
    assert made.planning.seen_noise == pytest.approx(0.002 if is_noise else 0.0)
    cause = "as the noise of instructions makes them" if is_noise else "and no rank's instructions do so"
    told = f"iterations take {100 * share:.1f} % longer than the target allows, {cause}"
    assert why == f"{told}: planning with a margin of 0.5"


@pytest.mark.parametrize(
    "why",
    ["faster plans", "misstated", "a slow rank", "a probe", "transfers", "nothing"],
)
def test_no_slack_is_added_for_what_may_have_another_cause(why: str) -> None:
    made = late(target=Target(slowdown=1.1) if why == "faster plans" else T_MIN)
    guard = made.enforcement.guard
    if why == "misstated":
        guard.misstated[0] = 0.05
    elif why == "a slow rank":
        compute(made, (1.0, 1.02))
    elif why == "a probe":
        guard.guard.order_probe(made.progress.iteration)
    elif why == "transfers":
        made.measured.snapshots.append(snapshot(20.0))
        guard.guard.reference_s = 1.0
    assert bool(slack_to_plan(made)) == (why == "nothing")


@pytest.mark.parametrize(("before", "is_more"), [(None, True), (0.0070, False), (0.0072, True)])
def test_a_margin_that_has_left_most_of_the_lateness_is_not_made_larger(before: float | None, *, is_more: bool) -> None:
    """More than 0.7 of it."""
    made = late()
    made.planning.late_then = before or excess_over_target(made) / 0.7
    assert bool(slack_to_plan(made)) == is_more


@pytest.mark.parametrize(
    ("num_full", "share", "is_sure"), [(100, 0.0031, True), (100, 0.0033, False), (4, 0.0019, True), (4, 0.002, False)]
)
def test_lateness_is_sure_beyond_four_errors_of_how_iterations_vary_just_now(
    num_full: int, share: float, *, is_sure: bool
) -> None:
    """Twelve that vary by this share around 2.01 s, beside so many at full clocks."""
    made = timed(0.0, num=0, num_full=num_full, full_s=2.0)
    made.measured.enforced.extend(iteration(number, 2.01 * (1 + share * (-1) ** number)) for number in range(12))
    assert _is_sure(made, 0.005) == is_sure


@pytest.mark.parametrize(("num", "is_known", "is_sure"), [(1, True, False), (2, True, True), (2, False, False)])
def test_nothing_is_sure_by_one_iteration_or_without_full_clocks(num: int, *, is_known: bool, is_sure: bool) -> None:
    made = timed(0.005, num=num)
    if not is_known:
        made.measured.saving.full = None
    assert _is_sure(made, 0.005) == is_sure


@pytest.mark.parametrize(("newest", "is_over"), [(0.9975, False), (0.9965, True)])
def test_lateness_of_which_the_newest_iterations_have_lost_half_is_over(newest: float, *, is_over: bool) -> None:
    made = timed(0.0, num=0, noise=0.002)
    made.measured.enforced.extend(iteration(number, 1.006 * (1 if number < 16 else newest)) for number in range(24))
    assert bool(slack_to_plan(made)) != is_over


# ---- less ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("noise", "planned", "margin", "share", "num", "is_less"),
    [
        (0.0015, 0.004, 0.5, 0.0, 65, True),
        (0.0017, 0.004, 0.5, 0.0, 65, False),
        (0.0099, 0.004, 0.5, 0.0, 65, False),
        (0.0101, 0.004, 0.5, 0.0, 65, True),
        (0.0101, 0.004, 0.5, 0.02, 65, False),  # late: it is not common to all instructions
        (0.0015, 0.004, 0.5, 0.0, 64, False),
        (0.0015, 0.004, 0.0, 0.0, 65, False),
        (0.0015, 0.0, 0.5, 0.0, 65, False),
        (0.0035, 0.0098, 0.5, 0.0, 65, True),
        (0.0101, 0.0, 0.5, 0.0, 65, False),
    ],
)
def test_slack_is_taken_back_where_sixty_four_pairs_of_iterations_vary_by_less_or_all_alike(
    noise: float, planned: float, margin: float, share: float, num: int, *, is_less: bool
) -> None:
    made = timed(share, noise=noise, num_varied=num)
    assert made.plan is not None
    made.plan = replace(made.plan, summary=replace(TABLE, margin=margin, noise=planned))
    made.planning.margin = made.planning.late_then = 0.01
    why = slack_to_plan(made)
    if is_less:
        assert why.startswith(
            f"iterations vary by {100 * noise:.2f} %, and the plan keeps slack for {100 * planned:.2f} %: "
        )
        assert made.planning.seen_noise == pytest.approx(noise)
    assert bool(why) == is_less
    assert (made.planning.margin, made.planning.late_then) == ((0.0, 0.0) if is_less else (0.01, 0.01))
