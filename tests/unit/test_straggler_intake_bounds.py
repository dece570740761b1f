"""Reports at the limits of what is taken, waited for, and followed elsewhere, and what an iteration is made of."""

import math
from dataclasses import replace

import numpy as np
import pytest
from test_straggler_intake import POLICY, intake, seen

from perseus_dist.straggler.evidence.intake import Intake, WholeIteration
from perseus_dist.straggler.layout import Layout, RankCoords

HALF = POLICY.max_ahead // 2


def only(made: Intake, now_s: float) -> WholeIteration:
    """The iteration that can be judged now, after which none can."""
    whole = made.next_complete_iteration(now_s)
    assert whole is not None
    return whole


@pytest.mark.parametrize(("num_ahead", "is_taken"), [(HALF - 1, False), (HALF, True)])
def test_a_rank_is_waited_for_until_the_others_are_half_of_the_room_ahead(num_ahead: int, *, is_taken: bool) -> None:
    made = intake(2)
    for rank in range(2):
        made.take(rank, seen(7), 1.0)
    only(made, 1.0)
    for iteration in range(8, 9 + num_ahead):
        assert made.take(0, seen(iteration), 1.0) == ""
    assert (made.next_complete_iteration(1.0) is not None) == is_taken


@pytest.mark.parametrize(("now_s", "is_waited_for"), [(1.0 + POLICY.stale_s, True), (1.25 + POLICY.stale_s, False)])
def test_a_rank_is_waited_for_until_it_is_silent(now_s: float, *, is_waited_for: bool) -> None:
    made = intake(2)
    for rank in range(2):
        made.take(rank, seen(7), 1.0)
    only(made, 1.0)
    made.take(0, seen(8), now_s)
    assert (made.next_complete_iteration(now_s) is None) == is_waited_for


def test_grace_is_counted_from_the_first_report_of_each_iteration() -> None:
    made = intake(3)
    for number, iteration in enumerate((7, 7 + POLICY.max_ahead)):  # in the same place of the memory
        begin_s = 1.0 + 5.0 * number
        made.take(0, seen(iteration), begin_s)
        made.take(1, seen(iteration), begin_s + 2.0)
        made.last_seen_s[2] = begin_s
        assert made.next_complete_iteration(begin_s + POLICY.grace_s - 0.25) is None
        assert only(made, begin_s + POLICY.grace_s).at_s == begin_s
        for passed in range(iteration + 1, iteration + POLICY.max_ahead if number == 0 else 0):
            made.take(0, seen(passed), begin_s)
            only(made, begin_s + POLICY.grace_s)


def test_an_iteration_is_judged_once_with_what_was_reported_then() -> None:
    made = intake(2)
    made.take(0, seen(7, 2.0), 1.0)
    first = only(made, 1.0 + POLICY.grace_s)
    np.testing.assert_allclose(first.log_ratios[:, 0], [math.log(2.0), math.nan])
    assert made.take(1, seen(7), 4.0).endswith(f"expected 8 to {7 + POLICY.max_ahead}; it is not judged")
    made.take(1, seen(7 + POLICY.max_ahead), 4.0)
    assert np.isnan(only(made, 30.0).log_ratios[0]).all(), "what another iteration left in the memory is gone"


def test_a_report_is_repeated_whatever_it_says_the_second_time() -> None:
    made = intake(1)
    for ratios in ((1.0, 2.0), (3.0, 3.0)):
        told = made.take(0, replace(seen(7), time_ratios=ratios), 1.0)
        assert bool(told) == (ratios == (3.0, 3.0))
    np.testing.assert_allclose(only(made, 1.0).log_ratios, np.log([[1.0, 2.0]]))


def test_iterations_that_nobody_reported_are_passed_over_up_to_the_newest() -> None:
    made = intake(1)
    made.take(0, seen(7), 1.0)
    only(made, 1.0)
    assert made.next_complete_iteration(1.0) is None
    made.take(0, seen(8 + POLICY.max_ahead - 1), 1.0)
    assert only(made, 1.0).iteration == 8 + POLICY.max_ahead - 1
    assert made.take(0, seen(8), 1.0) != "", "what was passed over is late now"


# ---- elsewhere -------------------------------------------------------------------------------------------------------


def elsewhere(num_ranks: int, num_there: int, begin: int = 500) -> Intake:
    """Ranks at iteration 7, of whom so many go on at another."""
    made = intake(num_ranks)
    for rank in range(num_ranks):
        made.take(rank, seen(7), 1.0)
    for iteration in (begin, begin + 1):
        for rank in range(num_there):
            made.take(rank, seen(iteration), 2.0)
    return made


@pytest.mark.parametrize(
    ("num_ranks", "num_there", "num_jumps"), [(4, 2, 0), (4, 3, 1), (5, 2, 0), (5, 3, 1), (1, 1, 1), (2, 1, 0)]
)
def test_training_is_followed_where_more_than_half_go_on(num_ranks: int, num_there: int, num_jumps: int) -> None:
    assert elsewhere(num_ranks, num_there).num_jumps == num_jumps


@pytest.mark.parametrize(("silence_s", "num_jumps"), [(POLICY.stale_s, 0), (POLICY.stale_s + 0.25, 1)])
def test_ranks_that_are_silent_do_not_count(silence_s: float, num_jumps: int) -> None:
    made = intake(4)
    for rank in range(4):
        made.take(rank, seen(7), 1.0)
    for iteration in (500, 501):
        for rank in range(2):
            made.take(rank, seen(iteration), 1.0 + silence_s)
    assert made.num_jumps == num_jumps


@pytest.mark.parametrize("begin", [500, 0], ids=["later", "earlier"])
def test_after_a_jump_iterations_are_taken_from_the_next_one_on(begin: int) -> None:
    made = intake(1)
    made.take(0, seen(100), 1.0)
    for iteration in (begin, begin + 1):
        assert made.take(0, seen(iteration), 2.0) != ""
    assert made.num_jumps == 1
    assert made.take(0, seen(begin + 1), 2.0) != ""
    assert made.take(0, seen(begin + 2, 3.0), 2.5) == ""
    whole = only(made, 2.5)
    assert (whole.iteration, whole.at_s) == (begin + 2, 2.5)
    np.testing.assert_allclose(whole.log_ratios, np.log([[3.0, 3.0]]))
    assert made.take(0, seen(begin + 3 + POLICY.max_ahead), 3.0) != ""
    assert made.take(0, seen(begin + 2 + POLICY.max_ahead), 3.0) == ""


def test_training_is_followed_from_after_the_median_of_where_ranks_are() -> None:
    made = intake(4)
    for rank in range(4):
        made.take(rank, seen(7), 1.0)
    for rank, last in enumerate((501, 503, 509)):
        for iteration in (last - 1, last):
            made.take(rank, seen(iteration), 2.0)
    assert made.num_jumps == 1
    assert made.take(0, seen(503), 3.0) != ""
    assert made.take(0, seen(504), 3.0) == ""


def test_a_rank_goes_on_elsewhere_only_while_its_iterations_ascend() -> None:
    made = intake(1)
    made.take(0, seen(1000), 1.0)
    for iteration in (500, 499, 400):
        made.take(0, seen(iteration), 2.0)
    assert made.num_jumps == 0
    assert "before; each is taken once" in made.take(0, seen(400), 2.0)
    made.take(0, seen(402), 2.0)
    assert made.num_jumps == 1
    assert made.refused == {"out of order": 4, "repeated": 1}


def test_a_report_that_can_be_taken_ends_what_was_elsewhere() -> None:
    made = intake(1)
    made.take(0, seen(100), 1.0)
    made.take(0, seen(5), 2.0)
    made.take(0, seen(101), 3.0)
    made.take(0, seen(6), 4.0)
    assert made.num_jumps == 0
    assert made.refused["repeated"] == 0


def test_a_report_from_elsewhere_shows_that_its_rank_lives() -> None:
    made = elsewhere(4, 1)
    assert made.last_seen_s.tolist() == [2.0, 1.0, 1.0, 1.0]


# ---- an iteration ----------------------------------------------------------------------------------------------------


def test_a_cell_is_as_slow_as_its_slowest_rank_and_a_pipeline_as_its_slowest_stage() -> None:
    places = [RankCoords(pp, dp, tp) for dp in range(2) for pp in range(2) for tp in range(2)]
    made = Intake(Layout.of(places), POLICY)
    for rank, place in enumerate(places):
        ratio = 1.0 + 0.1 * place.pp_rank + 0.01 * place.tp_rank + place.dp_rank
        report = seen(7, ratio, planned_time_s=2.0 + place.pp_rank, tokens=1.0 + rank, input_wait_s=0.1 * rank)
        report = replace(report, time_ratios=(ratio, 2 * ratio), requested_mhz=(1000 + place.pp_rank, 1100))
        report = replace(report, pipeline_time_s=3.0 - place.pp_rank + place.dp_rank)
        assert made.take(rank, report, 1.0) == ""
    whole = only(made, 1.0)
    slowest = np.array([1.01, 1.11, 2.01, 2.11])
    np.testing.assert_allclose(whole.log_ratios, np.log([slowest, 2 * slowest]).T)
    assert whole.requested_mhz.tolist() == [[1000, 1100], [1001, 1100]] * 2
    np.testing.assert_allclose(whole.log_tokens, np.log([2, 4, 6, 8]))
    assert (whole.pipeline_s.tolist(), whole.planned_s.tolist()) == ([3.0, 4.0], [3.0, 3.0])
    np.testing.assert_allclose(whole.input_wait_s, [0.3, 0.7])


@pytest.mark.parametrize("num_kinds", [1, 2, 3, 5])
def test_an_iteration_is_of_as_many_kinds_as_the_layout_has(num_kinds: int) -> None:
    kinds = [f"K{number}" for number in range(num_kinds)]
    made = Intake(Layout.of([RankCoords(0, 0)], kinds=kinds), POLICY)
    ratios, clocks = tuple(1.0 + number for number in range(num_kinds)), tuple(range(1000, 1000 + num_kinds))
    report = replace(seen(7, planned_time_s=1.5, tokens=3.0), time_ratios=ratios, requested_mhz=clocks)
    assert made.take(0, report, 1.0) == ""
    whole = only(made, 1.0)
    np.testing.assert_allclose(whole.log_ratios, [np.log(ratios)])
    assert whole.requested_mhz.tolist() == [list(clocks)]
    assert (whole.pipeline_s[0], whole.planned_s[0], math.exp(whole.log_tokens[0])) == pytest.approx((2.0, 1.5, 3.0))


def test_what_is_zero_or_left_out_is_not_known() -> None:
    made = intake(2)
    made.take(0, replace(seen(7), pipeline_time_s=0.0), 1.0)
    made.take(1, replace(seen(7), tokens=0.5, planned_time_s=0.5, input_wait_s=0.0), 1.0)
    whole = only(made, 1.0)
    np.testing.assert_allclose(whole.pipeline_s, [math.nan, 2.0])
    np.testing.assert_allclose(whole.planned_s, [math.nan, 0.5])
    np.testing.assert_allclose(whole.log_tokens, [math.nan, math.log(0.5)])
    np.testing.assert_allclose(whole.input_wait_s, [math.nan, 0.0])


def test_a_pipelines_time_is_not_known_where_one_of_its_stages_says_nothing() -> None:
    made = Intake(Layout.of([RankCoords(pp, dp) for dp in range(2) for pp in range(2)]), POLICY)
    for rank in range(3):
        made.take(rank, replace(seen(7), planned_time_s=1.5), 1.0)
    whole = only(made, 1.0 + POLICY.grace_s)
    np.testing.assert_allclose(whole.pipeline_s, [2.0, math.nan])
    np.testing.assert_allclose(whole.planned_s, [1.5, 1.5])


@pytest.mark.parametrize(("rank", "iteration", "what"), [(2, 9, "rank 2 has reported iteration 9 before")])
def test_a_refusal_says_who_reported_what(rank: int, iteration: int, what: str) -> None:
    made = intake(3)
    made.take(rank, seen(iteration), 1.0)
    assert made.take(rank, seen(iteration), 1.0).startswith(what)
    wrong = made.take(rank, replace(seen(iteration + 1), tokens=math.nan), 1.0)
    assert wrong.startswith("rank 2, iteration 10: saw nan tokens")
    begin = f"expected 9 to {9 + POLICY.max_ahead - 1}; it is not judged"
    assert made.take(rank, seen(8), 1.0) == f"rank 2 reported iteration 8, {begin}"
