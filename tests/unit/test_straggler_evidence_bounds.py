"""What times say at the limits: enough points, slopes, levels, windows; what is waited for, forgotten, contradicted."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from test_evidence_series import NOBODY, POLICY, series, taken

from perseus_dist.straggler.evidence.baseline_offset import BaselineOffset
from perseus_dist.straggler.evidence.intake import WholeIteration
from perseus_dist.straggler.evidence.noise import Noise
from perseus_dist.straggler.evidence.series import EvidenceSeries
from perseus_dist.straggler.evidence.time_evidence import TimeEvidence
from perseus_dist.straggler.evidence.work import WorkModel
from perseus_dist.straggler.layout import Layout, RankCoords
from perseus_dist.units import FloatArray

NEED = math.log(POLICY.min_degree)


# ---- work ------------------------------------------------------------------------------------------------------------


def learned(slope: float, num_places: int = 24, num_times: int = 1) -> WorkModel:
    """Of one group, whose values are so many times the covariate."""
    model = WorkModel(np.zeros(num_places, dtype=np.intp))
    covariate = np.linspace(-0.5, 0.5, num_places)
    for _ in range(num_times):
        model.learn(covariate, slope * covariate, np.ones(num_places, dtype=bool))
    return model


@pytest.mark.parametrize(("num_places", "is_known"), [(23, False), (24, True)])
def test_work_explains_something_from_enough_points_on(num_places: int, *, is_known: bool) -> None:
    assert math.isnan(learned(1.0, num_places).correction(np.ones(1))[0]) != is_known


def test_points_are_forgotten_where_none_come_after_them() -> None:
    model = learned(1.0)
    model.learn(np.ones(24), np.ones(24), np.zeros(24, dtype=bool))
    assert np.isnan(model.correction(np.ones(24))).all()


@pytest.mark.parametrize(("slope", "explained"), [(-1.0, 0.0), (0.5, 0.5), (2.9, 2.9), (4.0, 3.0)])
def test_more_work_explains_that_nothing_is_faster_and_no_more_than_three_times_itself(
    slope: float, explained: float
) -> None:
    model = learned(slope, num_times=20)
    covariate = np.linspace(-1.0, 1.0, 24)
    np.testing.assert_allclose(model.correction(covariate), explained * covariate, rtol=0.01)


def test_only_what_is_usual_and_known_is_learned() -> None:
    model = WorkModel(np.zeros(50, dtype=np.intp))
    covariate = np.linspace(-0.5, 0.5, 50)
    values = covariate.copy()
    usual = np.arange(50) % 2 == 0
    values[~usual] = 10.0 * covariate[~usual]
    covariate[0], values[2] = math.nan, math.nan
    for _ in range(3):
        model.learn(covariate, values, usual)
    assert model.correction(np.ones(1))[0] == pytest.approx(1.0, abs=0.01)


def test_a_group_of_few_points_is_explained_as_all_groups_are_and_one_of_many_by_its_own() -> None:
    groups = np.array([0] * 40 + [1])
    model = WorkModel(groups)
    covariate = np.full(41, 0.2)
    covariate[1::2] = -0.2
    values = np.where(groups == 0, 1.0, 2.0) * covariate
    model.learn(covariate, values, np.ones(41, dtype=bool))
    many, few = model.correction(np.ones(41))[[0, 40]]
    assert many == pytest.approx(1.0, abs=0.02)
    assert 1.02 < few < 1.2
    for _ in range(200):
        model.learn(covariate, values, np.ones(41, dtype=bool))
    assert 1.6 < model.correction(np.ones(41))[40] < 1.9


# ---- levels ----------------------------------------------------------------------------------------------------------


def test_levels_move_by_less_the_more_they_know_and_never_by_less_than_a_little() -> None:
    level = BaselineOffset(1, POLICY)
    steps = []
    for number in range(200):
        before = level.offset[0]
        level.learn(np.array([0.001 * (-1) ** number]), np.array([True]))
        steps.append(abs(level.offset[0] - before))
    assert all(later < earlier for earlier, later in pairwise(steps[:65]))
    assert steps[64:] == pytest.approx([steps[64]] * 136)
    assert steps[0] == pytest.approx(9 * steps[64])


@pytest.mark.parametrize("sign", [1, -1])
def test_one_outlier_moves_a_level_as_much_as_a_hundredth_does(sign: int) -> None:
    offsets = []
    for value in (0.01, 0.02, 5.0):
        level = BaselineOffset(1, POLICY)
        level.learn(np.array([sign * value]), np.array([True]))
        offsets.append(level.offset[0])
    assert offsets == pytest.approx([offsets[0]] * 3)
    assert sign * offsets[0] > 0


@pytest.mark.parametrize("sign", [1, -1])
def test_a_level_is_bounded_both_ways(sign: int) -> None:
    level = BaselineOffset(1, POLICY)
    for _ in range(400):
        level.learn(np.array([sign * 0.1]), np.array([True]))
    assert level.offset[0] == pytest.approx(sign * POLICY.max_offset)


def test_what_is_not_learned_does_not_make_a_level_slower_to_move() -> None:
    frozen, fresh = BaselineOffset(2, POLICY), BaselineOffset(2, POLICY)
    for _ in range(50):
        frozen.learn(np.array([0.01, math.nan]), np.array([False, True]))
    for level in (frozen, fresh):
        level.learn(np.array([0.01, 0.01]), np.array([True, True]))
    np.testing.assert_array_equal(frozen.offset, fresh.offset)


# ---- series ----------------------------------------------------------------------------------------------------------


def test_missing_values_are_not_known_and_the_known_ones_are_counted_up_to_the_longest_window() -> None:
    made = series()
    counts = []
    for number in range(24):
        made.take(np.array([0.1, math.nan if number % 2 else 0.1]), NOBODY)
        counts.append((made.num_known(0), made.num_known(1)))
    assert [both for both, _ in counts] == [min(number, 16) for number in range(1, 25)]
    assert [half for _, half in counts] == [(number + 1) // 2 for number in range(1, 25)]


def test_evidence_must_suffice_twice_in_a_row() -> None:
    made = taken(*[0.0] * 60)
    raised = []
    for value in [0.5] * 6 + [0.0] * 2:
        made.take(np.array([value, 0.0]), NOBODY)
        raised.append(bool(made.is_raised(NOBODY)[0]))
    assert raised == [False] * 3 + [True] * 4 + [False], "the median of five is slow from the third on"


@pytest.mark.parametrize(("excess", "is_raised"), [(0.2, False), (1.0, True)])
def test_in_a_noisy_job_a_short_window_must_show_far_more_than_noise(excess: float, *, is_raised: bool) -> None:
    random = np.random.default_rng(13)
    made = series()
    for row in (*random.normal(0, 0.06, (80, 2)), *[[excess, 0.0]] * 5):
        made.take(np.array(row), NOBODY)
    assert made.estimate(5).lower(POLICY.interval_z)[0] > NEED
    assert made.is_raised(NOBODY)[0] == is_raised


@pytest.mark.parametrize(("share", "is_suspect"), [(0.98, False), (1.02, True)])
def test_one_unusual_value_makes_a_place_suspect(share: float, *, is_suspect: bool) -> None:
    assert taken(*[0.0] * 80, share * NEED).is_suspect.tolist() == [is_suspect, False]


@pytest.mark.parametrize("num_missing", [0, 1])
def test_medians_are_of_the_middle_or_between_the_two_in_the_middle(num_missing: int) -> None:
    values = [0.5, 0.1, 0.9, 0.2, 0.4]
    made = taken(*[math.nan] * num_missing, *values[num_missing:])
    assert made.estimate(5).median[0] == pytest.approx(np.median(values[num_missing:]))
    assert made.estimate(5).error[0] > made.estimate(5).error[1] or num_missing == 0


def test_an_error_shrinks_with_the_root_of_the_values_that_are_there() -> None:
    made = taken(*[0.1, math.nan] * 2, *[0.1] * 12)
    four, sixteen = made.estimate(4), made.estimate(16)
    assert four.error[0] == pytest.approx(math.sqrt(14 / 4) * sixteen.error[0])


def test_counting_back_ends_at_a_value_that_is_not_above() -> None:
    assert taken(0.3, 0.1, 0.3, 0.3).since(0, 0.1) == 2
    assert taken(*[0.3] * 30).since(0, 0.1) == POLICY.windows[-1]


# ---- noise -----------------------------------------------------------------------------------------------------------


def noise_of(values: FloatArray, groups: list[int] | None = None, is_straggler: bool = False) -> Noise:  # noqa: FBT001, FBT002
    num_places = values.shape[1]
    noise = Noise(np.array(groups or [0] * num_places, dtype=np.intp))
    for row in values:
        noise.take(row, NEED, np.full(num_places, is_straggler))
    return noise


def test_a_place_that_was_hardly_seen_is_as_noisy_as_its_group_and_one_that_was_as_it_is() -> None:
    random = np.random.default_rng(7)
    values = random.normal(0, 0.01, (200, 9))
    values[:, 8] *= 3
    often = noise_of(values).sigma
    assert often[8] == pytest.approx(0.03, rel=0.25)
    assert often[:8].mean() == pytest.approx(0.01, rel=0.3)
    values[:-2, 8] = math.nan
    seldom = noise_of(values).sigma
    assert seldom[8] < 0.02


def test_groups_have_noise_of_their_own() -> None:
    random = np.random.default_rng(8)
    values = random.normal(0, 1.0, (300, 4)) * np.array([0.005, 0.005, 0.05, 0.05])
    sigma = noise_of(values, [0, 0, 1, 1]).sigma
    assert sigma == pytest.approx([0.005, 0.005, 0.05, 0.05], rel=0.3)


def test_a_quiet_place_in_a_loud_group_is_held_to_be_half_as_noisy_at_least() -> None:
    random = np.random.default_rng(9)
    values = random.normal(0, 0.05, (400, 4))
    values[:, 0] = 0.0
    sigma = noise_of(values).sigma
    assert sigma[0] / np.sqrt((sigma**2).mean()) == pytest.approx(math.sqrt(0.5), abs=0.06)


def test_one_outlier_widens_noise_by_no_more_than_a_bounded_one() -> None:
    values = np.random.default_rng(10).normal(0, 0.01, (100, 2))
    sigmas = []
    for outlier in (0.0, 1.0, 100.0):
        values[90, 0] = outlier
        sigmas.append(noise_of(values).sigma[0])
    assert sigmas[1] == pytest.approx(sigmas[2])
    assert sigmas[0] < sigmas[1] < 1.25 * sigmas[0]


def test_values_that_alternate_are_no_less_noisy_in_the_mean_than_those_without_a_pattern() -> None:
    values = np.tile([[0.01], [-0.01]], (100, 4))
    noise = noise_of(values)
    assert noise.variance_of_mean == pytest.approx(noise.sigma**2)


# ---- evidence of times -----------------------------------------------------------------------------------------------


def whole(iteration: int, num_pipelines: int = 4, at_s: float | None = None) -> WholeIteration:
    """As the profile says, one stage each."""
    ones = np.ones(num_pipelines)
    return WholeIteration(
        iteration=iteration,
        at_s=float(iteration) if at_s is None else at_s,
        log_ratios=np.zeros((num_pipelines, 2)),
        requested_mhz=np.full((num_pipelines, 2), 1400.0),
        log_tokens=ones * math.nan,
        pipeline_s=ones * 2.0,
        planned_s=ones * 2.0,
        input_wait_s=ones * math.nan,
    )


def evidence(num_pipelines: int = 4) -> TimeEvidence:
    return TimeEvidence(Layout.of([RankCoords(0, dp_rank) for dp_rank in range(num_pipelines)]), POLICY)


def take(times: TimeEvidence, *wholes: WholeIteration) -> None:
    for one in wholes:
        nobody = np.zeros(len(one.pipeline_s), dtype=bool)
        times.take(one, nobody, nobody, nobody)


def waiting(iteration: int, *waits_s: float) -> WholeIteration:
    return replace(whole(iteration, len(waits_s)), input_wait_s=np.array(waits_s))


def test_waiting_for_input_counts_beyond_the_others_and_as_a_share_of_the_iteration() -> None:
    times = evidence()
    assert np.isnan(times.input_share).all()
    take(times, waiting(1, 0.5, 0.1, 0.1, 0.1))
    np.testing.assert_allclose(times.input_share, [0.2, 0.0, 0.0, 0.0], atol=1e-12)
    take(times, waiting(2, 0.1, 0.1, 0.1, 0.1))
    np.testing.assert_allclose(times.input_share, [0.1, 0.0, 0.0, 0.0], atol=1e-12)
    take(times, waiting(3, math.nan, math.nan, math.nan, math.nan), waiting(4, math.nan, 0.1, 0.1, 0.1))
    np.testing.assert_allclose(times.input_share, [0.1, 0.0, 0.0, 0.0], atol=1e-12)


def test_a_pipeline_by_itself_waits_for_all_of_its_input() -> None:
    times = evidence(1)
    take(times, waiting(1, 0.5))
    np.testing.assert_allclose(times.input_share, [0.25])


def test_instants_and_iterations_are_kept_for_the_longest_window() -> None:
    times = evidence()
    take(times, *[whole(number, at_s=10.0 + number) for number in range(20)])
    assert times.iterations == [*range(4, 20)]
    assert times.at_s == [10.0 + number for number in range(4, 20)]


@pytest.mark.parametrize(
    ("since_s", "since_iteration", "is_contradicted"),
    [(29.0, 28, True), (27.0, 26, True), (27.0, 27, False), (27.25, 26, False), (0.0, -1, True)],
    ids=["two after", "just after", "had begun", "reported before", "long ago"],
)
def test_times_contradict_where_enough_iterations_began_after_an_instant(
    since_s: float, since_iteration: int, *, is_contradicted: bool
) -> None:
    times = evidence()
    take(times, *[whole(number) for number in range(30)])
    if since_s > 27.25:
        take(times, whole(30), whole(31))
    found = times.contradicts(np.full(4, since_s), np.full(4, float(since_iteration)))
    assert found.tolist() == [is_contradicted] * 4


def test_fewer_iterations_than_a_median_needs_contradict_nothing() -> None:
    times = evidence()
    take(times, *[whole(number) for number in range(POLICY.latest_window - 1)])
    assert not times.contradicts(np.full(4, -math.inf), np.full(4, -1.0)).any()


def test_iterations_up_to_the_one_that_is_over_say_nothing_until_training_goes_back() -> None:
    times = evidence()
    take(times, *[whole(number) for number in range(12)])
    times.forget_cell(1, 14)
    times.forget_cell(1, 13)
    assert (times.direct.num_known(0), times.direct.num_known(1)) == (12, 0)
    assert (times.pipeline_direct.num_known(0), times.pipeline_direct.num_known(1)) == (12, 0)
    take(times, whole(13), whole(14))
    assert (times.direct.num_known(1), times.pipeline_direct.num_known(1)) == (0, 0)
    take(times, whole(15))
    assert (times.direct.num_known(1), times.pipeline_direct.num_known(1)) == (1, 1)
    times.forget_cell(2, 40)
    take(times, whole(16))
    assert (times.direct.num_known(2), times.pipeline_direct.num_known(2)) == (0, 0)
    take(times, whole(3))
    assert (times.direct.num_known(2), times.pipeline_direct.num_known(2)) == (1, 1)


def test_tokens_explain_times_and_what_they_leave_is_a_places_own() -> None:
    times, random = evidence(16), np.random.default_rng(12)
    for number in range(30):
        work = random.normal(0, 0.1, 16)
        own = np.where(np.arange(16) == 5, 0.2 * (number >= 27), 0.0)
        ratios = np.repeat((work + own)[:, None], 2, axis=1)
        take(times, replace(whole(number, 16), log_ratios=ratios, log_tokens=math.log(4096.0) + work))
        if number in (26, 29):
            expected = np.where(np.arange(16) == 5, 0.2 * (number == 29), 0.0)
            assert times.adjusted.estimate(3).median == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize("kind", ["flagged", "late", "throttled", "usual"])
def test_levels_are_learned_of_what_is_usual_alone(kind: str) -> None:
    times = evidence(5)
    first, nobody = np.arange(5) == 0, np.zeros(5, dtype=bool)
    excess = np.where(first, 0.015, 0.0)
    flags = [first if kind == name else nobody for name in ("flagged", "late", "throttled")]
    for number in range(30):
        one = replace(whole(number, 5), log_ratios=np.repeat(excess[:, None], 2, axis=1), pipeline_s=2 * np.exp(excess))
        times.take(one, *flags)
    cell, pipeline = times.direct.estimate(3).median[0], times.pipeline_direct.estimate(3).median[0]
    assert (cell > 0.01495) == (kind in ("flagged", "throttled"))
    assert (pipeline > 0.01495) == (kind == "late")


def test_levels_are_not_learned_of_what_may_be_evidence() -> None:
    times = evidence(5)
    excess = np.where(np.arange(5) == 0, 0.2, 0.0)
    for number in range(7):
        one = replace(whole(number, 5), log_ratios=np.repeat(excess[:, None], 2, axis=1), pipeline_s=2 * np.exp(excess))
        take(times, one)
    for known in (times.direct, times.pipeline_direct):
        assert known.estimate(3).median[0] == pytest.approx(0.2, abs=0.0015)


def test_a_pipeline_is_forgotten_without_its_cells() -> None:
    times = evidence()
    take(times, *[whole(number) for number in range(12)])
    times.forget_pipeline(2, 13)
    take(times, whole(12), whole(13), whole(14))
    assert times.direct.num_known(2) == 15
    assert times.pipeline_direct.num_known(2) == 1
    assert times.pipeline_adjusted.num_known(1) >= times.pipeline_adjusted.num_known(2)


@pytest.mark.parametrize("planned_s", [4.0, 0.25])
def test_a_pipeline_alone_at_its_plan_is_held_against_what_it_took_before(planned_s: float) -> None:
    times = evidence(2)
    plans_s = np.array([planned_s, 2.0])
    for ratio, numbers in ((1.0, range(20)), (1.2, range(20, 24))):
        for number in numbers:
            take(times, replace(whole(number, 2), pipeline_s=plans_s * np.array([ratio, 1.0]), planned_s=plans_s))
    assert times.pipeline_direct.estimate(3).median[0] == pytest.approx(math.log(1.2), abs=0.01)


def test_series_are_of_places_that_are_apart() -> None:
    made = EvidenceSeries(np.array([0, 1]), POLICY)
    for _ in range(12):
        made.take(np.array([0.4, 0.0]), NOBODY)
    assert made.is_raised(NOBODY).tolist() == [True, False]
