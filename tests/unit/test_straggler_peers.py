"""Medians of others, usual levels, corrections for work, and the noise that medians are held against."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseus_dist.straggler.evidence.baseline_offset import BaselineOffset
from perseus_dist.straggler.evidence.peer_baseline import PeerBaseline
from perseus_dist.straggler.evidence.peers import median_of_others
from perseus_dist.straggler.evidence.series import EvidenceSeries
from perseus_dist.straggler.evidence.work import WorkModel
from perseus_dist.straggler.policy import StragglerPolicy

VALUES = st.one_of(st.just(math.nan), st.floats(-10, 10))
POLICY = StragglerPolicy()


def usual(num_places: int) -> np.ndarray:
    """(num_places) differences that are more than the noise of a quiet job."""
    return np.full(num_places, math.log(POLICY.min_degree))


@given(st.lists(st.tuples(VALUES, st.integers(0, 3), st.booleans()), max_size=24))
def test_median_of_others_is_what_numpy_says(drawn: list[tuple[float, int, bool]]) -> None:
    values, groups = np.array([v for v, _, _ in drawn]), np.array([g for _, g, _ in drawn], dtype=np.int64)
    medians, num_others = median_of_others(values, groups, np.array([out for _, _, out in drawn], dtype=bool))
    for index, (value, group, _) in enumerate(drawn):
        others = [
            v for i, (v, g, out) in enumerate(drawn) if i != index and g == group and not out and not math.isnan(v)
        ]
        expected = np.median(others) if others and not math.isnan(value) else math.nan
        assert medians[index] == pytest.approx(expected, nan_ok=True)
        assert num_others[index] == (0 if math.isnan(value) else len(others))


def test_levels_are_learned_slowly_and_within_limits() -> None:
    level = BaselineOffset(3, POLICY)
    for _ in range(500):
        level.learn(np.array([0.01, 0.5, math.nan]) - level.offset, np.array([True, True, True]))
    assert level.offset == pytest.approx([0.01, POLICY.max_offset, 0.0], abs=0.001)
    level.learn(np.array([1.0, 1.0, 1.0]), np.array([False, False, True]))
    assert level.offset[2] == pytest.approx(0.01 / 8)


def test_work_explains_by_stage() -> None:
    rng = np.random.default_rng(0)
    stages = np.array([0, 1] * 16)
    model = WorkModel(stages)
    assert np.isnan(model.correction(np.ones(32))).all()
    for _ in range(30):
        work = rng.normal(0, 0.1, 32)
        values = work * np.where(stages == 0, 0.5, 1.8) + rng.normal(0, 0.005, 32)
        model.learn(work, values, np.ones(32, dtype=bool))
    assert model.correction(np.ones(32))[:2] == pytest.approx([0.5, 1.8], abs=0.05)
    assert np.isnan(model.correction(np.full(32, math.nan))).all()


def test_quiet_work_explains_little() -> None:
    rng = np.random.default_rng(0)
    model = WorkModel(np.zeros(16, dtype=np.intp))
    for _ in range(30):
        work = rng.normal(0, 0.001, 16)
        model.learn(work, work, np.ones(16, dtype=bool))
    assert model.correction(np.ones(1))[0] < 0.1


def test_sigma_is_that_of_single_values_and_blind_to_what_comes_and_stays() -> None:
    rng = np.random.default_rng(0)
    series = EvidenceSeries(np.zeros(8, dtype=np.intp), POLICY)
    for t in range(100):
        values = rng.normal(0, 0.01, 8)
        values[3] += 0.3 * (t >= 60)
        series.take(values, np.zeros(8, dtype=bool))
    assert series.noise.sigma == pytest.approx(np.full(8, 0.01), rel=0.25)
    estimate = series.estimate(16)
    assert estimate.median[3] == pytest.approx(0.3, abs=0.01)
    assert series.is_raised(np.zeros(8, dtype=bool)).tolist() == [place == 3 for place in range(8)]
    series.forget(3)
    assert not series.is_raised(np.zeros(8, dtype=bool)).any()
    assert math.isnan(series.estimate(3).median[3])


NOBODY = np.zeros(1, dtype=bool)


def test_medians_need_half_of_their_window() -> None:
    series = EvidenceSeries(np.zeros(1, dtype=np.intp), POLICY)
    for value in (math.nan, 1.0, math.nan, 3.0, math.nan):
        series.take(np.array([value]), NOBODY)
    assert math.isnan(series.estimate(5).median[0])
    series.take(np.array([2.0]), NOBODY)
    assert series.estimate(5).median[0] == 2.0


def test_peers_are_of_the_same_stage_kind_and_clock() -> None:
    reference = PeerBaseline(np.array([0, 0, 0, 0, 0, 1]), np.array([0.5, 0.5]), POLICY)
    values = np.array([[0.0, 0.0]] * 4 + [[0.4, 0.2]] + [[5.0, 5.0]])
    clocks = np.full((6, 2), 1410.0)
    nobody = np.zeros(6, dtype=bool)
    above, _ = reference.deviations(values, clocks, nobody, nobody, usual(6))
    assert above[:5] == pytest.approx([0, 0, 0, 0, 0.3])
    assert reference.num_others.tolist() == [4, 4, 4, 4, 4, 0]
    clocks[4, 1] = 1200
    reference.deviations(values, clocks, nobody, nobody, usual(6))
    assert reference.num_others.tolist() == [3, 3, 3, 3, 0, 0]


def compared(times: list[list[float]]) -> np.ndarray:
    """(num_iterations, 2) deviations of two replicas of a stage, given logarithms of time over the profile."""
    two = PeerBaseline(np.zeros(2, dtype=np.intp), np.ones(1), POLICY)
    none = np.zeros(2, dtype=bool)
    clocks = np.full((2, 1), 1410.0)
    return np.array([two.deviations(np.array([row]).T, clocks, none, none, usual(2), none)[0] for row in times])


def test_the_profile_says_which_of_two_has_been_slow_from_the_beginning() -> None:
    found = compared([[0.2, 0.0]] * 4)
    assert found[:, 0] == pytest.approx(0.2)
    assert np.isnan(found[:, 1]).all()


def test_a_profile_that_is_wrong_for_both_of_two_makes_neither_slow() -> None:
    assert np.isnan(compared([[0.2, 0.2]] * 4)).all()
    assert np.isnan(compared([[0.0, -0.2]] * 4)).all()


def test_stragglers_that_are_all_there_is_are_over_where_the_profile_says_so() -> None:
    """Heat of all GPUs of a stage has been there from the beginning, and each was held to be slow."""
    three = PeerBaseline(np.zeros(3, dtype=np.intp), np.ones(1), POLICY)
    everyone, none = np.ones(3, dtype=bool), np.zeros(3, dtype=bool)
    clocks = np.full((3, 1), 1410.0)
    agreed, _ = three.deviations(np.full((3, 1), 0.2), clocks, everyone, everyone, usual(3), everyone)
    assert np.all(agreed > 0.1)
    for _ in range(3):
        agreed, _ = three.deviations(np.full((3, 1), 0.2), clocks, everyone, everyone, usual(3), none)
        assert np.isnan(agreed).all()
    agreed, _ = three.deviations(np.array([[0.001], [0.2], [-0.002]]), clocks, everyone, everyone, usual(3), none)
    assert agreed[[0, 2]] == pytest.approx([0.001, -0.002])
    assert np.isnan(agreed[1])


def test_a_straggler_without_a_history_is_over_where_its_only_peer_and_the_profile_say_so() -> None:
    two = PeerBaseline(np.zeros(2, dtype=np.intp), np.ones(1), POLICY)
    flagged, throttled, none = np.array([True, False]), np.array([True, False]), np.zeros(2, dtype=bool)
    same, other = np.full((2, 1), 1410.0), np.array([[1410.0], [1005.0]])
    slow = np.array([[0.3], [0.0]])
    for _ in range(4):  # slow from the first iteration on: nothing usual is learned of it
        agreed, _ = two.deviations(slow, same, flagged, flagged, usual(2), throttled)
        assert agreed[0] == pytest.approx(0.3)
    agreed, _ = two.deviations(np.zeros((2, 1)), other, flagged, flagged, usual(2), none)
    assert np.isnan(agreed[0])  # it is well, and has no peer
    agreed, _ = two.deviations(np.zeros((2, 1)), same, flagged, flagged, usual(2), none)
    assert agreed[0] == 0.0  # in a probe it has one
    agreed, _ = two.deviations(slow, same, flagged, flagged, usual(2), none)
    assert agreed[0] == pytest.approx(0.3)  # and is held to be slow where both say that


def test_replicas_that_are_slow_alike_at_another_clock_are_none_slower_than_the_others() -> None:
    """All meet a power cap, which slows them at the maximum clock more than at a plan's: their own likes say so."""
    stages = np.repeat([0, 1], 3)
    reference = PeerBaseline(stages, np.ones(1), POLICY)
    none = np.zeros(6, dtype=bool)
    planned = np.where(stages == 0, 1700.0, 1980.0)[:, None]
    for _ in range(10):
        reference.deviations(np.zeros((6, 1)), planned, none, none, usual(6), none)
    capped = np.where(stages == 0, 0.05, 0.1)[:, None]
    at_cap = np.array([True, True, True, False, False, False])
    for _ in range(3):
        reference.deviations(capped, planned, none, at_cap, usual(6), at_cap)
    at_highest = np.full((6, 1), 1980.0)
    above, _ = reference.deviations(np.full((6, 1), 0.1), at_highest, none, none, usual(6), none)
    assert not (above[:3] > math.log(POLICY.min_degree)).any()


def test_nothing_is_learned_of_a_stage_most_of_whose_replicas_have_become_slow() -> None:
    """Four of six: the two that are well looked fast, then usual, so that the four were held to be twice as slow."""
    reference = PeerBaseline(np.zeros(6, dtype=np.intp), np.ones(1), POLICY)
    none = np.zeros(6, dtype=bool)
    together = np.full((6, 1), 1410.0)
    for _ in range(10):
        reference.deviations(np.full((6, 1), 0.01), together, none, none, usual(6), none)
    slow = np.array([0.11] * 4 + [0.01] * 2)[:, None]
    for _ in range(10):
        reference.deviations(slow, together, none, none, usual(6), none)
    apart = np.linspace(1005, 1410, 6)[:, None]
    flagged = slow[:, 0] > 0.1
    for _ in range(3):
        above, _ = reference.deviations(slow, apart, flagged, flagged, usual(6), none)
    assert above[:4] == pytest.approx(0.1, abs=0.02)
    assert np.isnan(above[4:]).all() or above[4:] == pytest.approx(0.0, abs=0.02)


def test_a_history_of_few_iterations_does_not_learn_the_begin_of_something() -> None:
    """Two of five are no stragglers yet, and one is slow: half of that was held to be usual."""
    reference = PeerBaseline(np.zeros(5, dtype=np.intp), np.ones(1), POLICY)
    clocks = np.array([1410.0, 1410.0, 1305.0, 1305.0, 1305.0])[:, None]
    flagged = np.array([False, False, True, True, False])
    usually, slow = np.zeros((5, 1)), np.array([0.1, 0.0, 0.1, 0.1, 0.0])[:, None]
    for times in [usually] * 4 + [slow] * 4 + [usually] * 6 + [slow]:
        above, _ = reference.deviations(times, clocks, flagged, flagged, usual(5))
    assert above[0] == pytest.approx(0.1, abs=0.01)


def test_a_history_that_begins_while_the_whole_job_is_slow_is_of_the_job_as_it_was() -> None:
    """Two of six have been at their clocks since before: they were held to be slower than the four that begin anew."""
    stages = np.array([0, 1] * 3)
    reference = PeerBaseline(stages, np.ones(1), POLICY)
    none = np.zeros(6, dtype=bool)
    full, planned = np.full((6, 1), 1980.0), np.where(stages == 0, 1860.0, 1980.0)[:, None]
    has_reported = np.array([True] * 4 + [False] * 2)
    for _ in range(2 * POLICY.history_settle):
        reference.deviations(np.where(has_reported, 0.0, math.nan)[:, None], full, none, none, usual(6), none)
    for clocks in [full] * 2 + [planned] * (2 * POLICY.history_settle):
        above, alone = reference.deviations(np.full((6, 1), 0.18), clocks, none, none, usual(6), none)
        assert np.nanmax(above, initial=0.0) < 0.01
        assert np.nanmax(alone, initial=0.0) < 0.01
    assert not np.isnan(alone).any()


def test_a_straggler_is_none_the_slower_where_all_others_recover_from_what_slowed_the_job() -> None:
    """Plans have the two replicas of each stage run at different clocks: how it was last compared is all there is."""
    stages = np.array([0, 1, 2, 3] * 2)
    reference = PeerBaseline(stages, np.ones(1), POLICY)
    none, first = np.zeros(8, dtype=bool), np.arange(8) == 0
    alike, apart = np.full((8, 1), 1740.0), np.where(np.arange(8) < 4, 1740.0, 1200.0)[:, None]
    well, slow = np.zeros((8, 1)), np.full((8, 1), 0.25)
    for _ in range(2 * POLICY.history_settle):
        reference.deviations(well, alike, none, none, usual(8), none)
    for _ in range(2 * POLICY.history_settle):  # as under a power cap of the whole job
        reference.deviations(slow, alike, first, first, usual(8), none)
    found = [reference.deviations(well, apart, first, first, usual(8), none)[0][0] for _ in range(4)]
    assert max(found) < math.log(POLICY.min_degree)
