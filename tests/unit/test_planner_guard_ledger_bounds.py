"""The guard's ledger at its limits, and what iterations say of the plan, of the machine, and of a change."""

import math
from dataclasses import replace

import pytest
from test_planner_guard_bounds import A_LITTLE, EXACT, FREE, LEAST_NOISE, MIXED, PLANNED, USUAL, Training, least_after

from perseus_dist.planner.job.guard import Waiting

SPENT = "the budget of lost time may be spent"


def budgeted(iterations: float, *, share: float = 0.0, factor: float = 1.0) -> Training:
    """Of a plan that losses alone can end, and make somebody look at."""
    policy = replace(EXACT, tolerance=100.0, suspicion=100.0, first_gap=1000, max_gap=1000)
    return Training(replace(policy, budget_iterations=iterations, budget_share=share), factor=factor)


@pytest.mark.parametrize(("beyond", "is_spent"), [(0.0, False), (A_LITTLE, True)])
def test_a_probe_is_wanted_once_more_than_the_budget_may_be_lost(beyond: float, is_spent: bool) -> None:  # noqa: FBT001
    training = budgeted(2.0).plan(1.5, 1.5, 1.5, 1.5 + beyond)
    assert (training.wanted(0) == SPENT) == is_spent
    assert training.guard.lost_s == 0.0, "no probe has confirmed it"


def test_the_budget_is_of_iterations_as_the_target_allows_them() -> None:
    training = budgeted(2.0, factor=2.0).plan(*[2.5] * 8)
    assert not training.wanted(), "4 s of 2 iterations of 2 s"
    training.take(PLANNED, 2.5)
    assert training.wanted() == SPENT
    training = budgeted(2.0, factor=2.0).plan(*[2.5] * 8)
    assert training.probe(1.0, 1.0, 1.0).breach is None


def test_the_share_that_may_be_lost_is_not_counted() -> None:
    training = budgeted(1.0, share=0.25).plan(*[1.5] * 4)
    assert not training.wanted(), "a quarter of each iteration"
    training.take(PLANNED, 1.5)
    assert training.wanted() == SPENT


@pytest.mark.parametrize(
    ("waiting", "is_wanted"), [(Waiting.NONE, True), (Waiting.BLIND, True), (Waiting.SEEN, False)], ids=str
)
def test_time_that_pipelines_lose_for_a_straggler_that_is_seen_is_no_loss_of_the_plans(
    waiting: Waiting,
    is_wanted: bool,  # noqa: FBT001
) -> None:
    training = budgeted(1.0).plan(*[1.5] * 6)
    assert (training.wanted(0, waiting) == SPENT) == is_wanted


def test_what_was_lost_before_a_probe_and_after_it_adds_up_to_the_budget() -> None:
    training = budgeted(3.0).plan(*[1.5] * 6)
    assert training.probe(1.0, 1.0, 1.0).breach is None, "3 s of 3"
    assert training.guard.lost_s == 3.0
    training.take(PLANNED, *[1.25] * 4)
    assert training.wanted() == SPENT
    breach = training.probe(1.0, 1.0, 1.0).breach
    assert breach is not None
    assert (breach.lost_s, training.guard.lost_s) == (4.0, 4.0)
    training.guard.begin_plan(training.number)
    training.take(PLANNED, *[1.5] * 6)
    assert training.probe(1.0, 1.0, 1.0).breach is None, "the ledger was cleared by the breach"
    assert training.guard.lost_s == 7.0, "the sum was not"


def test_a_plan_that_is_faster_than_allowed_makes_up_for_losses_but_saves_nothing_for_later() -> None:
    training = budgeted(3.0).plan(*[1.5] * 6)
    training.probe(1.0, 1.0, 1.0)
    training.take(PLANNED, *[0.5] * 20)
    training.probe(1.0, 1.0, 1.0)
    assert training.guard.lost_s == 3.0
    training.guard.begin_plan(training.number)
    training.take(PLANNED, *[1.5] * 6)
    assert training.probe(1.0, 1.0, 1.0).breach is None
    training.take(PLANNED, 1.5)
    assert training.probe(1.0, 1.0, 1.0).breach is not None


def test_losses_are_counted_by_a_reference_that_has_become_slower_meanwhile() -> None:
    assert budgeted(1e9).plan(*[2.5] * 4).probe(2.0, 2.0, 2.0).lost_s == 4 * (2.5 - 2.0)


@pytest.mark.parametrize("num_probed", [2, 3, 5])
@pytest.mark.parametrize(("before_s", "slower_s"), [(2.0, 2.0), (0.5, 0.5), (0.25, 0.5), (0.0, 0.5)])
def test_losses_are_counted_by_the_slower_of_the_references_before_and_in_the_probe(
    before_s: float, slower_s: float, num_probed: int
) -> None:
    """0 for none that is known: it is the newest."""
    training = Training(replace(EXACT, tolerance=100.0, num_probe_iterations=num_probed))
    training.take(FREE, *[before_s] * (8 if before_s else 0))
    training.guard.begin_plan(training.number)
    training.take(PLANNED, *[2.5] * 4)
    assert training.probe(*[0.5] * num_probed).lost_s == 4 * (2.5 - slower_s)
    training.take(PLANNED, *[2.5] * 4)
    assert training.probe(*[0.25] * num_probed).lost_s == 4 * (2.5 - slower_s) + 4 * (2.5 - 0.5)


def test_nothing_may_be_lost_any_more_once_a_probe_has_shown_what_was() -> None:
    training = budgeted(1.0).plan(*[1.5] * 8)
    assert training.wanted() == SPENT
    training.probe(1.5, 1.5, 1.5)
    training.take(MIXED, *[1.5] * 6)
    training.take(PLANNED, 1.5)
    assert not training.wanted()


def test_a_pause_counts_as_one_iteration_and_a_tenth() -> None:
    training = budgeted(1e9).plan(*[2.0] * 4, 50.0)
    assert training.probe(1.0, 1.0, 1.0).lost_s == pytest.approx(4 * 1.0 + 1.1 * 2.0 - 1.0)


def test_the_ledger_of_unjudged_iterations_is_of_the_plan_in_force_alone() -> None:
    training = budgeted(1e9).plan(*[1.5] * 4)
    training.guard.begin_plan(training.number)
    training.take(PLANNED, *[1.5] * 2)
    assert training.probe(1.0, 1.0, 1.0).lost_s == 1.0


def test_a_probe_right_behind_a_switch_counts_losses_and_judges_nothing() -> None:
    training = Training(replace(EXACT, budget_iterations=0.0)).plan(1.5)
    assert training.probe(1.0, 1.0, 1.0).breach is None
    assert training.guard.lost_s == 0.5
    training.take(PLANNED, 1.5, 1.5)
    assert training.probe(1.0, 1.0, 1.0).breach is not None


@pytest.mark.parametrize(
    ("newest_s", "sentence"),
    [
        (1.0 + 0.125, ""),
        (1.0 + 0.125 + A_LITTLE, "iterations take 12.5 % longer than before"),
        (1.0 - 0.125, ""),
        (1.0 - 0.125 - A_LITTLE, "iterations take 12.5 % shorter than before"),
    ],
)
def test_three_iterations_that_take_another_time_than_expected_are_suspicious(newest_s: float, sentence: str) -> None:
    training = Training(replace(EXACT, suspicion=0.125)).plan(*[1.0] * 8)
    training.probe(1.0, 1.0, 1.0)
    training.take(PLANNED, newest_s, newest_s)  # the first is not settled, and one of three is
    assert not training.wanted(5)
    training.take(PLANNED, newest_s, 1.0)
    assert training.wanted(1) == sentence


def test_noise_of_four_deviations_is_no_change() -> None:
    for share, is_suspicious in ((3.9, False), (4.1, True)):
        training = Training(replace(EXACT, suspicion=0.0)).plan(*[1.0] * 8)
        training.probe(1.0, 1.0, 1.0)
        training.take(PLANNED, *[1.0 + share * LEAST_NOISE] * 4)
        assert training.guard.noise == LEAST_NOISE
        assert bool(training.wanted(5)) == is_suspicious, share


def test_a_change_that_was_told_is_what_is_expected_from_then_on() -> None:
    training = Training(replace(EXACT, suspicion=0.125, first_gap=1000, max_gap=1000)).plan(*[1.0] * 8)
    training.probe(1.0, 1.0, 1.0)
    training.take(PLANNED, *[1.5] * 4)
    training.guard._suspicion = ""  # as if it had been looked at, and no time had been lost
    training.take(PLANNED, *[1.5] * 20)
    assert not training.wanted(10)
    training.take(PLANNED, *[1.0] * 4)
    assert training.wanted(10) == "iterations take 33.3 % shorter than before"


def test_iterations_before_a_change_are_not_counted_with_those_after_it() -> None:
    training = Training(replace(EXACT, suspicion=0.125)).plan(*[1.0] * 8)
    training.probe(1.0, 1.0, 1.0)
    training.take(PLANNED, *[1.5] * 3)
    breach = training.probe(1.0, 1.0, 1.0).breach
    assert breach is not None
    assert breach.observed_s == 1.5, "though seven of ten took 1 s"


@pytest.mark.parametrize(("time_s", "kept_share"), [(1 + 0.01 + 0.03, 1.0), (1 + 0.01 + 0.03 + A_LITTLE, 0.0)])
def test_an_iteration_keeps_the_promise_within_tolerance_and_noise(time_s: float, kept_share: float) -> None:
    training = Training(USUAL)
    training.take(FREE, 1.0, 1.0)
    training.guard.begin_plan(2)
    training.take(PLANNED, time_s, time_s)
    assert training.guard.noise == 0.01
    assert training.guard.kept_share == kept_share


def test_the_share_of_kept_promises_is_of_the_newest_thirty_two() -> None:
    training = Training().plan(1.0, *[1.0] * 30, *[1.5] * 10)
    assert training.guard.kept_share == 22 / 32
    assert Training().guard.kept_share == 0.0


@pytest.mark.parametrize(("num_slow", "is_trusting"), [(8, True), (9, False)])
def test_a_plan_is_trusted_that_has_kept_the_promise_three_times_in_four(num_slow: int, is_trusting: bool) -> None:  # noqa: FBT001
    training = Training().plan(*[1.0] * 8)
    for _ in range(3):
        training.probe(1.0, 1.0, 1.0)
        training.take(PLANNED, *[1.0] * 33)
    training.take(PLANNED, *[1.5] * num_slow)
    assert training.guard.is_trusting == is_trusting


@pytest.mark.parametrize(("num_probes", "is_trusting"), [(2, False), (3, True)])
def test_a_plan_is_trusted_that_three_probes_have_found_nothing_of(num_probes: int, is_trusting: bool) -> None:  # noqa: FBT001
    training = Training().plan(*[1.0] * 8)
    for _ in range(num_probes):
        training.probe(1.0, 1.0, 1.0)
        training.take(PLANNED, *[1.0] * 3)
    assert training.guard.is_trusting == is_trusting


@pytest.mark.parametrize(("beyond", "gap"), [(-A_LITTLE, 2 * USUAL.first_gap), (A_LITTLE, USUAL.first_gap)])
def test_probes_become_no_rarer_where_a_plan_may_be_later_than_twice_what_is_tolerated(beyond: float, gap: int) -> None:
    doubt, excess = 1.5 * EXACT.tolerance, 0.5 * EXACT.tolerance + beyond
    z = doubt / (LEAST_NOISE * math.sqrt(math.pi / 2 * (1 / 8 + 1 / 2)))
    training = Training(replace(EXACT, z=z)).plan(*[1.0 + excess] * 9)
    training.probe(1.0, 1.0, 1.0)
    training.take(PLANNED, *[1.0 + excess] * 3)
    assert least_after(training) == gap - 3


@pytest.mark.parametrize(("num_planned", "is_known"), [(1, False), (2, True)])
def test_a_clear_excess_is_of_two_iterations_at_least(num_planned: int, is_known: bool) -> None:  # noqa: FBT001
    training = Training().plan(*[1.5] * (1 + num_planned))
    assert training.guard.clear_excess(training.allowed_s) == (0.5 if is_known else 0.0)
    unknown = Training()
    unknown.guard.begin_plan(0)
    unknown.take(PLANNED, 1.0, 1.0, 1.0)
    assert unknown.guard.clear_excess(unknown.allowed_s) == 0.0


@pytest.mark.parametrize(("longest_s", "is_steady"), [(1.02, True), (1.02 + A_LITTLE, False)])
def test_full_clocks_are_steady_where_times_differ_by_a_fiftieth_but_for_one(longest_s: float, is_steady: bool) -> None:  # noqa: FBT001
    training = Training()
    training.take(FREE, *[1.01] * 12, 1.0, longest_s, 7.0)
    assert training.guard.noise == LEAST_NOISE
    assert training.guard.is_steady == is_steady


@pytest.mark.parametrize(("share", "is_steady"), [(5.9, True), (6.1, False)])
def test_full_clocks_of_noisy_iterations_are_steady_within_six_deviations(share: float, is_steady: bool) -> None:  # noqa: FBT001
    step = 0.01
    training = Training()
    training.take(FREE, *[1.0, math.exp(step)] * 20)
    training.take(FREE, 1.0 + share * training.guard.noise, 7.0)
    assert training.guard.is_steady == is_steady


def slowly_faster(after_s: float, *, num: int = 8, then_s: float = 1.0) -> Training:
    """Full clocks that take 1 s, and then less; before the last switch they took what ``then_s`` says."""
    training = Training()
    training.take(FREE, *[then_s] * 12)
    training.guard.begin_plan(training.number)
    training.take(FREE, *[1.0] * 3, *[after_s] * num)
    return training


@pytest.mark.parametrize(("after_s", "is_faster"), [(0.98, False), (0.98 - A_LITTLE, True)])
def test_full_clocks_are_faster_that_take_a_fiftieth_less_in_eight_iterations(after_s: float, is_faster: bool) -> None:  # noqa: FBT001
    assert slowly_faster(after_s).guard.has_become_faster == is_faster
    assert not slowly_faster(after_s, num=7).guard.has_become_faster


def test_full_clocks_are_faster_than_before_the_switch_from_the_eighth_iteration_on() -> None:
    for num, is_faster in ((4, False), (5, True)):
        assert slowly_faster(1.0, num=num, then_s=1.1).guard.has_become_faster == is_faster, num
    unknown = Training()
    unknown.guard.begin_plan(0)
    assert not unknown.take(FREE, *[0.5] * 9).has_become_faster, "there was no reference, nor a slower iteration"


def test_what_full_clocks_took_first_is_the_median_of_three() -> None:
    for first_s, is_faster in (((1.1, 1.1, 1.0), True), ((1.1, 1.0, 1.0), False)):
        training = Training()
        training.take(FREE, 1.0, 1.0, 1.0)
        training.guard.begin_plan(training.number)
        training.take(FREE, *first_s, *[1.0] * 8)
        assert training.guard.has_become_faster == is_faster, first_s


@pytest.mark.parametrize(("share", "is_faster"), [(5.9, False), (6.1, True)])
def test_noisy_full_clocks_are_faster_beyond_six_deviations(share: float, is_faster: bool) -> None:  # noqa: FBT001
    training = Training()
    training.take(FREE, *[1.0, math.exp(0.01)] * 40, *[1.0] * 8)
    training.guard.begin_plan(training.number)
    training.take(FREE, *[1.0] * 3, *[1.0 - share * training.guard.noise] * 8)
    assert training.guard.has_become_faster == is_faster
