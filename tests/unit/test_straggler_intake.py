"""Reports of iterations as ranks send them: late, twice, from quite another iteration, or never."""

import math

import numpy as np
import pytest

from perseus_dist.straggler.evidence.intake import Intake
from perseus_dist.straggler.evidence.observation import IterationObservation
from perseus_dist.straggler.layout import Layout, RankCoords
from perseus_dist.straggler.policy import StragglerPolicy

POLICY = StragglerPolicy()


def intake(num_ranks: int = 4) -> Intake:
    return Intake(Layout.of([RankCoords(0, dp_rank) for dp_rank in range(num_ranks)]), POLICY)


def seen(iteration: int, ratio: float = 1.0, **others: float) -> IterationObservation:
    return IterationObservation(
        iteration=iteration, time_ratios=(ratio, ratio), requested_mhz=(1400, 1400), pipeline_time_s=2.0, **others
    )


def test_an_iteration_is_whole_when_all_ranks_that_live_have_reported_it() -> None:
    made = intake()
    for rank in range(4):
        made.take(rank, seen(6), 9.5)
    assert made.next_complete_iteration(9.5) is not None
    for rank in range(4):
        assert made.next_complete_iteration(10.0 + 0.1 * rank) is None
        assert made.take(rank, seen(7, 1.0 + rank), 10.0 + 0.1 * rank) == ""
    whole = made.next_complete_iteration(10.4)
    assert whole is not None
    assert (whole.iteration, whole.at_s) == (7, 10.0)
    np.testing.assert_allclose(whole.log_ratios[:, 0], np.log([1.0, 2.0, 3.0, 4.0]))
    assert made.next_complete_iteration(10.4) is None


def test_a_report_is_taken_once_and_a_wrong_one_never() -> None:
    made = intake()
    assert made.take(0, seen(7), 1.0) == ""
    assert "before" in made.take(0, seen(7), 1.0)
    assert "times the profile" in made.take(1, seen(7, POLICY.max_ratio + 1), 1.0)
    assert made.refused == {"repeated": 1, "impossible": 1}
    assert np.isneginf(made.last_seen_s[1]), "what cannot be true says nothing"


@pytest.mark.parametrize(("iteration", "is_taken"), [(7, True), (7 + 63, True), (7 + 64, False), (6, False)])
def test_reports_are_taken_as_far_ahead_as_there_is_room(iteration: int, *, is_taken: bool) -> None:
    made = intake()
    made.take(0, seen(7), 1.0)
    assert (made.take(1, seen(iteration), 1.0) == "") == is_taken
    assert made.refused["out of order"] == (not is_taken)
    assert made.last_seen_s[1] == 1.0


def test_training_is_followed_elsewhere_once_most_ranks_have_gone_on_there() -> None:
    made = intake()
    for rank in range(4):
        made.take(rank, seen(500), 1.0)
    for rank in range(3):
        made.take(rank, seen(20), 2.0)
    assert made.num_jumps == 0, "one report each may be a late one"
    for rank in range(2):
        made.take(rank, seen(21), 2.1)
    assert made.num_jumps == 0, "two of four are not most"
    assert "before" in made.take(1, seen(21), 2.1)
    made.take(2, seen(21), 2.2)
    assert made.num_jumps == 1
    assert made.take(0, seen(22), 2.3) == "", "the one behind what most have reported"
    assert made.take(3, seen(21), 2.3) != "", "that one would never be whole"
    assert made.take(3, seen(500), 2.3) != ""


def test_a_pipeline_is_as_late_as_its_latest_stage_and_its_time_known_once_all_have_told() -> None:
    """Two pipelines of two stages, of groups of two; the last stage of the second one has never told."""
    places = [RankCoords(pp_rank, dp_rank, tp_rank) for dp_rank in (0, 1) for pp_rank in (0, 1) for tp_rank in (0, 1)]
    made = Intake(Layout.of(places), POLICY)
    for rank in range(6):
        one = IterationObservation(
            iteration=3,
            time_ratios=(1.0, 1.0 + rank),
            requested_mhz=(1400, 1300 + rank),
            pipeline_time_s=2.0 + rank,
            planned_time_s=1.0 + rank,
            tokens=100.0 + rank,
            input_wait_s=0.1 * rank,
        )
        assert made.take(rank, one, 10.0) == ""
    whole = made.next_complete_iteration(10.0)
    assert whole is not None
    np.testing.assert_allclose(whole.pipeline_s, [5.0, np.nan])
    np.testing.assert_allclose(whole.planned_s, [4.0, 6.0])
    np.testing.assert_allclose(whole.log_ratios[:, 1], np.log([2.0, 4.0, 6.0, np.nan]))
    np.testing.assert_allclose(whole.requested_mhz[:, 1], [1301, 1303, 1305, np.nan])
    np.testing.assert_allclose(whole.log_tokens, np.log([101.0, 103.0, 105.0, np.nan]))


def test_ranks_that_say_nothing_are_waited_for_a_while() -> None:
    made = intake()
    for rank in range(4):
        made.take(rank, seen(7), 1.0)
    assert made.next_complete_iteration(1.0) is not None
    for rank in range(3):
        made.take(rank, seen(8), 2.0)
    assert made.next_complete_iteration(2.0 + POLICY.grace_s - 0.01) is None
    whole = made.next_complete_iteration(2.0 + POLICY.grace_s)
    assert whole is not None
    assert whole.iteration == 8
    assert np.isnan(whole.log_ratios[3]).all()
    for rank in range(3):
        made.take(rank, seen(9), 1.1 + POLICY.stale_s)
    assert made.next_complete_iteration(1.1 + POLICY.stale_s) is not None, "the fourth has been silent for too long"


def test_an_iteration_that_no_rank_has_reported_is_passed_over() -> None:
    made = intake(1)
    for iteration in (7, 9):
        made.take(0, seen(iteration, math.e, tokens=math.e, input_wait_s=0.5), 1.0)
    found = [made.next_complete_iteration(1.0), made.next_complete_iteration(1.0)]
    assert [whole.iteration for whole in found if whole is not None] == [7, 9]
    assert made.next_complete_iteration(1.0) is None
    whole = found[0]
    assert whole is not None
    np.testing.assert_allclose(whole.log_ratios, [[1.0, 1.0]])
    np.testing.assert_allclose((whole.log_tokens[0], whole.pipeline_s[0], whole.input_wait_s[0]), (1.0, 2.0, 0.5))
    assert np.isnan(whole.planned_s[0])
