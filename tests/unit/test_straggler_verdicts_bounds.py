"""Verdicts at their limits: when a degree moves, when a straggler has recovered, what the sentence leaves out."""

import math
from dataclasses import replace

import numpy as np
import pytest
from test_open_verdict import POLICY, opened

from perseus_dist.straggler.evidence.gpu_evidence import (
    REASON_HW_SLOWDOWN,
    REASON_HW_THERMAL,
    REASON_POWER_BRAKE,
    REASON_POWER_CAP,
    REASON_SW_THERMAL,
)
from perseus_dist.straggler.evidence.series import EvidenceSeries
from perseus_dist.straggler.layout import StragglerError
from perseus_dist.straggler.verdicts.causes import (
    Cause,
    cause_of_late_pipeline,
    cause_of_slow_cell,
    cause_of_throttling,
)
from perseus_dist.straggler.verdicts.open_verdict import FlapLimit, OpenVerdict, degree_of
from perseus_dist.straggler.verdicts.verdict import Degree, Verdict

NEED = math.log(POLICY.min_degree)


def quiet_series(*values: float) -> EvidenceSeries:
    """One place, as usual for long and then with these values."""
    series = EvidenceSeries(np.zeros(1, dtype=np.intp), POLICY)
    for value in (*[0.0] * 80, *values):
        series.take(np.array([value]), np.array([False]))
    return series


def standing(series: EvidenceSeries, excess: float, num_rows: int = 3) -> OpenVerdict:
    """A verdict of so much excess, in logarithms, that times stand behind."""
    value = math.exp(excess)
    return replace(
        opened(), series=series, degree=Degree(value=value, low=value - 0.01, high=value + 0.01), num_rows=num_rows
    )


def follow(verdict: OpenVerdict, *values: float) -> OpenVerdict:
    """Iterations with these values."""
    assert verdict.series is not None
    for value in values:
        verdict.series.take(np.array([value]), np.array([True]))
        verdict.follow(POLICY, verdict.series)
    return verdict


@pytest.mark.parametrize(
    ("degree", "limit"),
    [(1.3, NEED), (1.06, NEED * 0.985), (1.04, math.log(1.04) / 2), (1.02, 0.015), (1.01, 0.015)],
    ids=["what matters", "half of it", "half of little", "what is nothing", "nothing of less"],
)
def test_a_straggler_has_recovered_where_less_is_left_than_half_and_than_matters(degree: float, limit: float) -> None:
    for share, is_recovered in ((0.97, True), (1.03, False)):
        verdict = standing(quiet_series(), math.log(degree))
        follow(verdict, *[share * limit] * 3)
        assert (verdict.num_recovered > 0) == is_recovered, share


def test_recovery_is_counted_from_the_first_again_once_it_was_interrupted() -> None:
    verdict = standing(quiet_series(), 0.2)
    follow(verdict, 0.0, 0.0, 0.0)
    assert verdict.num_recovered == 3
    follow(verdict, 0.2, 0.2)
    assert verdict.num_recovered == 0
    follow(verdict, 0.0, 0.0)
    assert verdict.num_recovered == 1


def test_nothing_is_published_of_a_straggler_that_looks_recovered() -> None:
    verdict = standing(quiet_series(*[0.2] * 3), 0.2)
    before = verdict.degree
    follow(verdict, 0.0, 0.0)
    assert verdict.num_recovered == 1
    assert verdict.degree == before


@pytest.mark.parametrize(("change", "num_late"), [(0.06, 0), (-0.06, 0), (0.03, 0), (0.018, 99), (-0.018, 99)], ids=str)
def test_a_degree_is_told_anew_from_the_latest_where_it_has_moved_by_more_than_noise(
    change: float, num_late: int
) -> None:
    verdict = standing(quiet_series(*[0.2] * 16), 0.2, num_rows=16)
    follow(verdict, *[0.2 + change] * 2)
    assert verdict.degree.value == pytest.approx(math.exp(0.2))
    follow(verdict, 0.2 + change)
    expected = 0.2 + change if num_late == 0 else 0.2
    assert verdict.degree.value == pytest.approx(math.exp(expected))
    assert verdict.num_rows == (POLICY.latest_window if num_late == 0 else 16)


def test_an_estimate_is_taken_over_one_iteration_more_each_time_up_to_the_longest_window() -> None:
    verdict = standing(quiet_series(*[0.2] * 3), 0.2)
    assert [follow(verdict, 0.2).num_rows for _ in range(14)] == [*range(4, 17), 16]


def test_where_the_series_has_nothing_to_say_the_plain_one_does() -> None:
    blind, plain = quiet_series(math.nan, math.nan, math.nan), quiet_series(0.0, 0.0, 0.0)
    verdict = standing(blind, 0.2)
    verdict.follow(POLICY, plain)
    assert (verdict.num_blind, verdict.num_recovered) == (0, 1)
    verdict.follow(POLICY, blind)
    assert (verdict.num_blind, verdict.num_recovered) == (1, 1)


@pytest.mark.parametrize(("num_slow", "num_rows"), [(1, 3), (3, 3), (4, 4), (16, 16), (20, 16)])
def test_times_are_believed_from_the_iteration_on_that_was_slow(num_slow: int, num_rows: int) -> None:
    verdict = opened()
    verdict.use(quiet_series(*[0.2] * num_slow), POLICY)
    assert verdict.num_rows == num_rows
    assert verdict.degree.value == pytest.approx(math.exp(0.2) if num_slow >= 2 else 1.0)


@pytest.mark.parametrize(("share", "num_rows"), [(0.49, 3), (0.51, 8)])
def test_an_iteration_is_slow_from_half_of_what_matters(share: float, num_rows: int) -> None:
    verdict = opened()
    verdict.use(quiet_series(*[share * NEED] * 6, 0.2, 0.2), POLICY)
    assert verdict.num_rows == num_rows


@pytest.mark.parametrize(("change", "moves"), [(0.0098, False), (0.0102, True), (-0.0098, False), (-0.0102, True)])
def test_a_published_degree_moves_by_steps(change: float, moves: bool) -> None:  # noqa: FBT001
    series = quiet_series(*[0.2] * 16)
    value = math.exp(0.2)
    verdict = standing(series, math.log(value - change))
    before = verdict.degree
    follow(verdict, 0.2)
    assert (verdict.degree != before) == moves
    if moves:
        assert verdict.degree.value == pytest.approx(value)


def test_a_degree_moves_at_once_where_that_makes_it_one_to_act_upon_or_no_more() -> None:
    series = quiet_series(*[0.045] * 16)
    found = degree_of(series, 3, 0, POLICY)
    assert found is not None
    assert found.low > POLICY.min_degree
    low_before = Degree(value=found.value - 0.001, low=POLICY.min_degree - 0.001, high=found.high)
    verdict = replace(opened(), series=series, degree=low_before, num_rows=3)
    follow(verdict, 0.045)
    assert verdict.degree.low > POLICY.min_degree
    slight = quiet_series(*[0.031] * 16)
    high_before = Degree(value=math.exp(0.031) + 0.001, low=POLICY.min_degree + 0.0001, high=1.1)
    verdict = replace(opened(), series=slight, degree=high_before, num_rows=3)
    follow(verdict, 0.031)
    assert verdict.degree.low < POLICY.min_degree


def test_times_that_are_believed_now_say_the_degree_however_near_it_was() -> None:
    verdict, series = opened(), quiet_series(*[0.2] * 8)
    verdict.degree = Degree(value=math.exp(0.2) + 0.002, low=1.1, high=1.3)
    verdict.use(series, POLICY)
    assert verdict.degree == degree_of(series, 8, 0, POLICY)


def test_the_interval_of_a_degree_is_that_of_its_estimate() -> None:
    series = EvidenceSeries(np.zeros(2, dtype=np.intp), POLICY)
    random = np.random.default_rng(5)
    for _ in range(40):
        series.take(random.normal(0.1, 0.01, 2), np.ones(2, dtype=bool), np.array([0.0, 0.03]))
    for place in range(2):
        degree, estimate = degree_of(series, 8, place, POLICY), series.estimate(8)
        assert degree is not None
        assert math.log(degree.value) == pytest.approx(estimate.median[place])
        assert math.log(degree.low) == pytest.approx(estimate.lower(POLICY.interval_z)[place])
        assert math.log(degree.high) == pytest.approx(estimate.upper(POLICY.interval_z)[place])
    series.forget(0)
    assert degree_of(series, 8, 0, POLICY) is None


def test_what_a_straggler_costs_its_pipeline_is_known_from_two_iterations_on() -> None:
    pipeline = EvidenceSeries(np.zeros(1, dtype=np.intp), POLICY)
    verdict = standing(quiet_series(), 0.2, num_rows=5)
    for is_known in (False, True):
        pipeline.take(np.array([0.15]), np.array([True]))
        verdict.follow_pipeline(pipeline, 0, POLICY)
        assert (verdict.pipeline_degree is not None) == is_known
    assert verdict.pipeline_degree is not None
    assert verdict.pipeline_degree.value == pytest.approx(math.exp(0.15))


def test_what_nvml_alone_says_tells_nothing_of_the_pipeline() -> None:
    verdict = opened()
    verdict.follow_pipeline(quiet_series(0.2, 0.2, 0.2), 0, POLICY)
    assert verdict.pipeline_degree is None


@pytest.mark.parametrize("end", ["value", "low", "high"])
@pytest.mark.parametrize("step", [0.0098, -0.0098, 0.0102, -0.0102], ids=str)
def test_what_a_pipeline_loses_is_told_anew_where_any_end_has_moved_by_a_step(end: str, step: float) -> None:
    series = EvidenceSeries(np.zeros(1, dtype=np.intp), POLICY)
    for _ in range(16):
        series.take(np.array([0.2]), np.array([True]), 0.05)
    now = degree_of(series, 8, 0, POLICY)
    assert now is not None
    verdict = standing(series, 0.2, num_rows=8)
    verdict.pipeline_degree = replace(now, **{end: getattr(now, end) + step})
    verdict.follow_pipeline(series, 0, POLICY)
    assert (verdict.pipeline_degree == now) == (abs(step) > POLICY.degree_step)


def test_raises_count_for_as_long_as_the_window_is_and_no_longer() -> None:
    begin_s = 5000.0
    for last_s, is_too_often in ((begin_s + POLICY.flap_window_s, True), (begin_s + POLICY.flap_window_s + 0.1, False)):
        flaps = FlapLimit(POLICY)
        raised = [flaps.raised("cell", 0, begin_s + number) for number in range(POLICY.max_raises)]
        assert not any(raised)
        assert flaps.raised("cell", 0, last_s) == is_too_often


# ---- causes and sentences --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reasons", "temperature_c", "cause"),
    [
        (REASON_HW_THERMAL | REASON_POWER_BRAKE, 40.0, Cause.THERMAL),
        (REASON_SW_THERMAL | REASON_POWER_CAP, 40.0, Cause.THERMAL),
        (REASON_POWER_BRAKE | REASON_HW_SLOWDOWN, 90.0, Cause.POWER_BRAKE),
        (REASON_HW_SLOWDOWN | REASON_POWER_CAP, 80.0, Cause.THERMAL),
        (REASON_HW_SLOWDOWN | REASON_POWER_CAP, 79.9, Cause.POWER_BRAKE),
        (REASON_POWER_CAP, 90.0, Cause.POWER_CAP),
        (0x1 | 0x2, 90.0, Cause.UNKNOWN),
        (0, 90.0, Cause.UNKNOWN),
    ],
)
def test_hardware_is_blamed_before_software_and_heat_before_power(
    reasons: int, temperature_c: float, cause: Cause
) -> None:
    assert cause_of_throttling(reasons, temperature_c) is cause


@pytest.mark.parametrize(
    ("is_whole", "is_below", "cause"),
    [
        (False, False, Cause.SLOW_COMPUTE),
        (True, False, Cause.UNKNOWN),
        (False, True, Cause.UNKNOWN),
        (True, True, Cause.UNKNOWN),
    ],
)
def test_a_gpu_is_blamed_for_itself_alone_at_its_clock(*, is_whole: bool, is_below: bool, cause: Cause) -> None:
    assert cause_of_slow_cell(is_whole_pipeline=is_whole, is_below_clock=is_below) is cause


@pytest.mark.parametrize(
    ("is_explained", "input_share", "cause"),
    [
        (False, 0.1, Cause.SLOW_INPUT),
        (False, 0.0999, Cause.SLOW_NETWORK),
        (False, -0.1, Cause.SLOW_NETWORK),
        (False, math.nan, Cause.UNKNOWN),
        (True, 0.1, Cause.UNKNOWN),
    ],
)
def test_input_is_blamed_for_half_of_what_a_pipeline_is_late(
    *, is_explained: bool, input_share: float, cause: Cause
) -> None:
    assert cause_of_late_pipeline(is_explained=is_explained, excess=0.2, input_share=input_share) is cause


VERDICT = Verdict(
    rank=5,
    pp_rank=1,
    dp_rank=2,
    degree=Degree(value=1.1, low=1.05, high=1.123),
    pipeline_degree=None,
    cause=Cause.THERMAL,
    since_s=100.0,
    is_whole_pipeline=False,
    is_predicted=False,
    is_flapping=False,
    is_acted_upon=True,
    at_s=107.0,
    requested_mhz=1000,
    observed_mhz=979,
    temperature_c=81.0,
)


def test_a_sentence_says_who_is_how_slow_for_how_long_and_why() -> None:
    assert VERDICT.sentence == (
        "rank 5 (stage 1, pipeline 2) is slower than its likes by 10.0 % (5.0 % to 12.3 %), for 7 s now: its GPU is "
        "throttled by heat (979 MHz of 1000 MHz requested, 81 degrees Celsius)"
    )


@pytest.mark.parametrize(
    ("changes", "said", "not_said"),
    [
        ({"observed_mhz": 980}, "(81 degrees Celsius)", "MHz"),
        ({"observed_mhz": 0}, "(81 degrees Celsius)", "MHz"),
        ({"observed_mhz": 1, "temperature_c": 0.0}, "(1 MHz of 1000 MHz requested)", "Celsius"),
        ({"temperature_c": 0.6}, "1 degrees Celsius", "0 degrees"),
        ({"cause": Cause.POWER_CAP}, "(979 MHz of 1000 MHz requested)", "Celsius"),
        ({"observed_mhz": 1000, "temperature_c": 0.0}, "by heat", "heat ("),
        ({"since_s": 108.0}, "for 0 s now", "-1 s"),
        ({"since_s": 107.0}, "for 0 s now", "1 s"),
        ({"num_held_up": 1}, "with the 1 of its tensor-parallel group", "flap"),
        ({"num_held_up": 0}, "rank 5", "tensor-parallel"),
        ({"is_whole_pipeline": True, "num_held_up": 3}, "pipeline 2 is slower", "tensor-parallel"),
        ({"is_predicted": True}, "will be slower", "is slower"),
        ({"is_flapping": True}, "comes and goes too often", "is throttled by heat;"),
    ],
    ids=str,
)
def test_a_sentence_leaves_out_what_is_not_known_or_not_so(
    changes: dict[str, object], said: str, not_said: str
) -> None:
    sentence = replace(VERDICT, **changes).sentence  # type: ignore[arg-type]
    assert said in sentence
    assert not_said not in sentence


@pytest.mark.parametrize("ends", [(1.0, 1.0, 1.0), (1e-9, 1.0, 1e9)])
def test_a_degree_may_be_known_exactly_or_hardly_at_all(ends: tuple[float, float, float]) -> None:
    low, value, high = ends
    assert str(Degree(value=value, low=low, high=high)).startswith("0.0 %")


@pytest.mark.parametrize(
    "ends", [(-0.1, 1.0, 1.1), (0.0, 1.0, 1.1), (1.01, 1.0, 1.1), (1.0, 1.11, 1.1), (1.0, 1.0, math.inf)], ids=str
)
def test_a_degree_outside_of_its_interval_is_refused(ends: tuple[float, float, float]) -> None:
    low, value, high = ends
    with pytest.raises(StragglerError, match="low <= value <= high"):
        Degree(value=value, low=low, high=high)
