"""The prediction against the job at its limits: what is compared, what is said, and what is learnt of it."""

from dataclasses import replace

import pytest
from test_enforcement_lateness_bounds import compute, sweep
from test_enforcement_plan_choice_bounds import TABLE, job, report_slow, slow, switch_to, vary
from test_enforcement_switching_bounds import said
from test_lifecycle_baseline_bounds import iteration
from test_lifecycle_transfers_bounds import snapshot
from test_planner_lifecycle import S, summary

from perseus_dist.messages.terms import NO_ITERATION, T_MIN, Target
from perseus_dist.planner.job.frontier_summary import FrontierSummary
from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.job.saving.full_clocks import FullClocks
from perseus_dist.planner.lifecycle.enforcement.prediction_check import (
    _at_full_clocks,
    _has_been_well,
    _under_plan,
    compare_prediction,
    learn,
)

NOW_S = 1000.0


def measured(
    full_s: float = 0.0,
    plan_s: float = 0.0,
    *,
    num: int = 12,
    num_full: int = 100,
    noise: float = 1e-4,
    table: FrontierSummary = TABLE,
    target: Target = T_MIN,
) -> Job:
    """Iterations at full clocks and under the fastest plan took so long; 0 for those that are not known."""
    made = job(table=table, target=target)
    vary(made, noise)
    if full_s:
        made.measured.saving.begin(FullClocks(time_s=full_s, energy_j=100.0, num_iterations=num_full, weight=16.0))
    made.measured.enforced.extend(iteration(number, plan_s) for number in range(num if plan_s else 0))
    return made


def compared(made: Job) -> tuple[bool, bool]:
    """Whether full clocks and the plan are known of the newest comparison."""
    latest = made.measured.self_check.latest
    return latest.full is not None, latest.plan is not None


# ---- compared --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("why", ["kept", "T'", "verdict", "report", "nothing", "no switch"])
def test_while_a_rank_is_slow_or_waited_for_earlier_figures_stand(why: str) -> None:
    made = measured(1.05, 1.05)
    made.detection.keeps_switch = why == "kept"
    made.detection.verdicts = (slow(is_acted_upon=False),) if why == "verdict" else ()
    if why == "report":
        report_slow(made, 1.5)
    elif why == "no switch":
        made.enforcement.switch = None
    elif why == "T'":
        switch_to(made, t_prime_s=0.5)
    effects, is_well = compare_prediction(made, NOW_S), why in ("nothing", "no switch")
    assert compared(made) == (is_well, why == "nothing")
    assert len(said(effects)) == made.num_changes == made.history.num_events == is_well
    assert made.measured.slow_at == (NO_ITERATION if is_well else made.progress.iteration)
    assert bool(learn(made, NOW_S)) == (why == "nothing")


@pytest.mark.parametrize(
    ("case", "phase", "full_s", "plan_s", "expected"),
    [
        ("", Phase.ENFORCING, 1.05, 1.05, (True, True)),
        ("", Phase.RELEASED, 1.05, 1.05, (True, True)),
        ("", Phase.PLANNING, 1.05, 1.05, (False, False)),
        ("sweep", Phase.ENFORCING, 1.05, 1.05, (False, False)),
        ("no plan", Phase.ENFORCING, 1.05, 1.05, (False, False)),
        ("", Phase.ENFORCING, 1.05, 0.0, (True, False)),
        ("", Phase.ENFORCING, 0.0, 1.05, (False, True)),
        ("", Phase.ENFORCING, 0.0, 0.0, (False, False)),
    ],
)
def test_full_clocks_and_plan_are_compared_as_far_as_they_are_known_where_no_other_plan_is_made(
    case: str, phase: Phase, full_s: float, plan_s: float, expected: tuple[bool, bool]
) -> None:
    made = measured(full_s, plan_s)
    made.phase = phase
    if case == "sweep":
        sweep(made)
    elif case == "no plan":
        made.plan = None
    compare_prediction(made, NOW_S)
    assert compared(made) == expected


@pytest.mark.parametrize(("phase", "is_kept"), [(Phase.ENFORCING, True), (Phase.RELEASED, False)])
def test_figures_under_the_plan_stand_until_there_are_new_ones_unless_clocks_are_released(
    phase: Phase, *, is_kept: bool
) -> None:
    made = measured(1.05, 1.05)
    compare_prediction(made, NOW_S)
    made.measured.enforced.pop()
    made.phase = phase
    compare_prediction(made, NOW_S)
    assert compared(made) == (True, is_kept)
    made.measured.enforced.append(iteration(12, 1.05))
    made.measured.saving.full = None
    compare_prediction(made, NOW_S)
    assert compared(made) == (False, True)


@pytest.mark.parametrize(
    ("factor", "gained", "measured_s", "predicted_s"),
    [
        (1.0, 0.0, 1.05, 1.0),
        (1.1, 0.0, 0.9, 1.0),
        (1.1, 0.0, 1.05, 1.05),
        (1.1, 0.0, 1.2, 1.1),
        (1.0, 0.1, 1.05, 0.9),
    ],
)
def test_iterations_are_to_take_what_they_do_within_the_cases_that_plans_are_on_time_in(
    factor: float, gained: float, measured_s: float, predicted_s: float
) -> None:
    table = replace(TABLE, slowest_case_ps=round(factor * S), gained_ps=round(gained * S))
    made = measured(measured_s, 1.1 * measured_s, table=table)
    switch_to(made, points=(0, 1))  # the latest pipeline's plan takes 1.1 s
    full, plan = _at_full_clocks(made), _under_plan(made)
    assert full is not None
    assert plan is not None
    assert (full.predicted_s, plan.predicted_s) == pytest.approx((predicted_s, 1.1 * predicted_s))
    assert (full.predicted_j, plan.predicted_j) == pytest.approx((2000e-6, (800 + 700 + 10) * 1e-6))


# ---- learnt ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "why",
    [
        "no plan",
        "a frontier to come",
        "a plan to come",
        "heat",
        "sweep",
        "slow just now",
        "a probe",
        "transfers",
        "misstated",
        "off the profile",
        "no full clocks",
        "full clocks alone",
        "full clocks alone, with a deadline",
        "nothing",
    ],
)
def test_longer_iterations_teach_nothing_where_they_may_be_over_or_explained_or_a_plan_is_made_anyway(why: str) -> None:
    target = Target(deadline_s=1.2) if "deadline" in why else T_MIN
    made = measured(0.0 if why == "no full clocks" else 1.05, 0.0 if "alone" in why else 1.05, target=target)
    guard = made.enforcement.guard
    assert made.plan is not None
    if why == "no plan":
        made.plan = None
    elif why == "a frontier to come":
        made.plan = replace(made.plan, is_first=True)
    elif why == "a plan to come":
        made.planning.pending = 1
    elif why == "heat":
        made.profiling.held_back_s = 0.5
    elif why == "sweep":
        sweep(made)
    elif why == "slow just now":
        made.measured.slow_at = 0
    elif why == "a probe":
        guard.guard.order_probe(made.progress.iteration)
    elif why == "transfers":
        made.measured.snapshots.append(snapshot(20.0))
        guard.guard.reference_s = 1.05
    elif why == "misstated":
        guard.misstated[0] = 0.05
    elif why == "off the profile":
        compute(made, (1.0, 0.98))
    is_learnt = why in ("nothing", "full clocks alone, with a deadline")
    assert bool(learn(made, NOW_S)) == is_learnt
    assert made.planning.num_lessons == is_learnt


@pytest.mark.parametrize(
    ("num_lessons", "after_s"), [(1, 30.0), (2, 60.0), (3, 120.0), (13, 30.0 * 4096), (14, 30.0 * 4096)]
)
def test_a_lesson_comes_after_twice_the_time_between_the_two_before(num_lessons: int, after_s: float) -> None:
    for now_s, is_learnt in ((NOW_S + after_s - 1, False), (NOW_S + after_s, True)):
        made = measured(1.05, 1.05)
        made.planning.num_lessons, made.planning.learnt_at_s = num_lessons, NOW_S
        assert bool(learn(made, now_s)) == is_learnt
        assert made.planning.learnt_at_s == (now_s if is_learnt else NOW_S)


@pytest.mark.parametrize(
    ("full_s", "plan_s", "known_s", "extra_s", "why"),
    [
        (1.05, 1.05, 0.0, 0.05, "50.0 ms longer than instructions and transfers explain, whatever the clocks: "),
        (1.05, 1.05, 0.02, 0.07, "50.0 ms longer than"),
        (0.97, 0.97, 0.05, 0.02, "30.0 ms shorter than"),
        (0.95, 0.95, 0.02, 0.0, "20.0 ms shorter than"),
    ],
)
def test_what_is_learnt_is_told_and_added_to_what_was_known_and_never_below_none(
    full_s: float, plan_s: float, known_s: float, extra_s: float, why: str
) -> None:
    made = measured(full_s, plan_s)
    assert made.plan is not None
    made.plan = replace(made.plan, extra_s=known_s)
    told = learn(made, NOW_S)
    assert told.startswith(f"iterations take {why}")
    assert told.endswith(f": planning with {1e3 * extra_s:.1f} ms at the end of each")
    assert made.planning.extra_s == pytest.approx(extra_s)


@pytest.mark.parametrize(
    ("num_full", "noise", "within"), [(100, 1e-4, 0.01005), (4, 0.002, 0.015013), (1, 0.002, 0.020027)]
)
def test_machines_in_another_state_than_was_measured_for_long_teach_nothing(
    num_full: int, noise: float, within: float
) -> None:
    for share, is_learnt in ((0.998, True), (1.002, False), (-0.998, True), (-1.002, False)):
        made = measured(1.1, 1.1, num_full=num_full, noise=noise)
        made.enforcement.guard.guard.reference_s = 1.1 * (1 + share * within)
        assert bool(learn(made, NOW_S)) == is_learnt, share


@pytest.mark.parametrize("share", [0.0179, 0.0181, -0.0179, -0.0181])
def test_a_newest_iteration_under_the_plan_that_is_another_one_teaches_nothing(share: float) -> None:
    made = measured(1.05, 1.05, num=11, noise=0.002)
    made.measured.enforced.append(iteration(11, 1.05 * (1 + share)))
    assert bool(learn(made, NOW_S)) == (abs(share) < 0.018)


@pytest.mark.parametrize(
    ("full_s", "known_s", "is_learnt"),
    [(1.49, 0.0, True), (1.5, 0.0, True), (1.51, 0.0, False), (1.19, 0.2, True), (1.21, 0.2, False)],
)
def test_more_than_half_of_what_the_profile_says_is_other_work(
    full_s: float, known_s: float, *, is_learnt: bool
) -> None:
    """What was learnt before is part of an iteration's second, and none of the profile."""
    made = measured(full_s, full_s)
    assert made.plan is not None
    made.plan = replace(made.plan, extra_s=known_s)
    assert bool(learn(made, NOW_S)) == is_learnt


@pytest.mark.parametrize(
    ("num_full", "found_s", "is_learnt"),
    [(100, 0.0257, False), (100, 0.0259, True), (4, 0.029, False), (4, 0.031, True)],
)
def test_a_difference_within_one_percent_and_noise_teaches_nothing(
    num_full: int, found_s: float, *, is_learnt: bool
) -> None:
    """Of 2 s; the fewer the iterations, on either side, the more of it is in doubt."""
    made = measured(2.0 + found_s, 2.0 + found_s, num_full=num_full, noise=0.002, table=summary(fastest_s=2.0))
    assert bool(learn(made, NOW_S)) == is_learnt


@pytest.mark.parametrize(
    ("slow_at", "probed", "num_since", "is_well"),
    [
        (NO_ITERATION, (), 0, True),
        (50, (51,), 12, True),
        (50, (51,), 11, False),
        (50, (50,), 12, False),
        (50, (49, 60), 12, True),
        (50, (), 12, False),
    ],
)
def test_a_job_has_been_well_since_a_straggler_after_a_probe_and_twelve_iterations(
    slow_at: int, probed: tuple[int, ...], num_since: int, *, is_well: bool
) -> None:
    made = job()
    made.measured.slow_at = slow_at
    made.measured.probed.extend(iteration(number) for number in probed)
    made.measured.enforced.extend(iteration(number) for number in range(40, 51 + num_since))
    assert _has_been_well(made) == is_well


def test_a_job_whose_training_went_back_is_well_after_as_many_iterations_as_any() -> None:
    """Those of before count for nothing, whatever their numbers."""
    made = job()
    made.measured.slow_at = 90
    made.measured.probed.append(iteration(95))
    made.measured.enforced.extend(iteration(number) for number in range(80, 103))
    made.measured.go_back(40)
    assert not _has_been_well(made)
    made.measured.enforced.extend(iteration(number) for number in range(41, 53))
    assert not _has_been_well(made)
    made.measured.probed.append(iteration(53))
    assert _has_been_well(made)
