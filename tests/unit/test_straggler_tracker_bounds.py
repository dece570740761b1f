"""Verdicts from the first reading to the last: how long they stand at least, what ends them, whom they name."""

import math
from dataclasses import replace

import numpy as np
import pytest
from test_gpu_evidence import CAPPED, HOT, POLICY, WELL

from perseus_dist.straggler.detector import Detector
from perseus_dist.straggler.evidence.gpu_evidence import GpuEvidence
from perseus_dist.straggler.evidence.intake import WholeIteration
from perseus_dist.straggler.evidence.observation import GpuObservation
from perseus_dist.straggler.evidence.time_evidence import TimeEvidence
from perseus_dist.straggler.layout import Layout, RankCoords, StragglerError
from perseus_dist.straggler.verdicts.causes import Cause
from perseus_dist.straggler.verdicts.describe import verdict_of_cell
from perseus_dist.straggler.verdicts.open_verdict import OpenVerdict
from perseus_dist.straggler.verdicts.verdict import Degree, Verdict
from perseus_dist.straggler.verdicts.verdict_tracker import VerdictTracker

SLOW = 0.2


class Tracked:
    """A tracker, and what it is told of a job without noise."""

    def __init__(self, dp_size: int = 4, pp_size: int = 2, tp_size: int = 1) -> None:
        places = [RankCoords(pp, dp, tp) for dp in range(dp_size) for pp in range(pp_size) for tp in range(tp_size)]
        self.layout = Layout.of(places)
        self.times, self.gpus = TimeEvidence(self.layout, POLICY), GpuEvidence(self.layout, POLICY)
        self.tracker = VerdictTracker(self.layout, self.times, self.gpus, POLICY)
        self.iteration = 0

    def run(self, num: int, slow: dict[int, float] | None = None, late: dict[int, float] | None = None) -> None:
        """Iterations a second apart with cells, and pipelines, that are slow by so many logarithms."""
        for _ in range(num):
            cells, pipelines = np.zeros(self.layout.num_cells), np.zeros(self.layout.dp_size)
            for cell, excess in (slow or {}).items():
                cells[cell] = excess
                pipelines[cell // self.layout.pp_size] = excess
            for dp_rank, excess in (late or {}).items():
                pipelines[dp_rank] = excess
            whole = WholeIteration(
                iteration=self.iteration,
                at_s=float(self.iteration),
                log_ratios=np.repeat(cells[:, None], 2, axis=1),
                requested_mhz=np.full((len(cells), 2), 1400.0),
                log_tokens=np.full(len(cells), math.nan),
                pipeline_s=2.0 * np.exp(pipelines),
                planned_s=np.full(len(pipelines), 2.0),
                input_wait_s=np.full(len(pipelines), math.nan),
            )
            tracker, now_s = self.tracker, self.iteration + 0.5
            self.times.take(whole, tracker.flagged_cells(), tracker.late_pipelines(), tracker.throttled_cells(now_s))
            tracker.judge_times(now_s)
            self.iteration += 1

    def read(self, begin_s: float, seen: GpuObservation, num: int = 3, rank: int = 2) -> None:
        """Readings of one rank a quarter of a second apart."""
        for number in range(num):
            self.gpus.take(rank, seen, begin_s + 0.25 * number)

    def verdicts(self, now_s: float) -> list[Verdict]:
        self.tracker.judge_gpus(now_s)
        return [*self.tracker.verdicts(now_s)]

    def stands(self, now_s: float) -> bool:
        return bool(self.verdicts(now_s))


def test_what_nvml_predicts_is_between_half_of_the_loss_and_all_of_it() -> None:
    job = Tracked()
    job.read(10.0, HOT)
    (verdict,) = job.verdicts(10.5)
    degree = verdict.degree
    assert (degree.low, degree.high) == pytest.approx((math.sqrt(1400 / 1200), 1400 / 1200))
    assert degree.low * degree.high == pytest.approx(degree.value**2)
    assert (verdict.rank, verdict.since_s, verdict.is_predicted, verdict.cause) == (2, 10.0, True, Cause.THERMAL)


@pytest.mark.parametrize(("observed_mhz", "moves"), [(1160, False), (1000, True), (1255, False), (1310, True)])
def test_a_prediction_moves_where_its_degree_leaves_the_interval(observed_mhz: int, *, moves: bool) -> None:
    job = Tracked()
    job.read(10.0, HOT)
    (before,) = job.verdicts(10.5)
    job.read(11.0, replace(HOT, observed_mhz=observed_mhz))
    (now,) = job.verdicts(11.5)
    assert (now.degree != before.degree) == moves


@pytest.mark.parametrize(("held_s", "stands"), [(POLICY.min_hold_s - 0.25, True), (POLICY.min_hold_s, False)])
def test_a_prediction_that_times_contradict_stands_for_the_shortest_hold(held_s: float, *, stands: bool) -> None:
    job = Tracked()
    job.run(12)
    job.read(12.0, HOT)
    assert job.stands(12.5)
    job.run(5)
    assert job.stands(12.5 + held_s) == stands
    told = "is throttled, but as fast as its likes" in " ".join(job.tracker.news)
    assert told != stands


@pytest.mark.parametrize(("held_s", "stands"), [(POLICY.gpu_hold_s - 0.25, True), (POLICY.gpu_hold_s, False)])
def test_a_verdict_that_nvml_explains_and_ends_stands_for_a_shorter_hold(held_s: float, *, stands: bool) -> None:
    job = Tracked()
    job.read(10.0, HOT)
    assert job.stands(10.5)
    job.read(10.6, WELL)
    assert job.stands(10.5 + held_s) == stands
    assert ("rank 2 (stage 0, pipeline 1) runs free again" in job.tracker.news) != stands


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (replace(HOT, observed_mhz=1350), "is throttled, but NVML no longer predicts it to be slower"),
        (None, "has had no useful reading of its GPU for 10 s"),
    ],
    ids=["throttled by less", "not read"],
)
def test_a_prediction_that_nvml_no_longer_makes_is_not_said_to_be_free(seen: GpuObservation | None, why: str) -> None:
    job = Tracked()
    job.read(10.0, HOT)
    assert job.stands(10.5)
    if seen is not None:
        job.read(11.0, seen, num=40)
    assert not job.stands(10.5 + POLICY.stale_s + 0.5)
    assert job.tracker.news[1:] == [f"rank 2 (stage 0, pipeline 1) {why}"]


def test_a_power_cap_that_is_gone_is_held_for_as_long_as_any_other_prediction() -> None:
    job = Tracked()
    for rank in (0, 4, 6):
        job.read(10.0, replace(WELL, power_w=400.0), rank=rank)
    job.read(10.0, CAPPED)
    assert job.stands(10.5)
    job.read(10.75, WELL)
    assert job.stands(10.5 + POLICY.min_hold_s - 0.25)
    assert not job.stands(10.5 + POLICY.min_hold_s)
    assert job.tracker.news[-1] == "rank 2 (stage 0, pipeline 1) runs free again"


def test_a_verdict_by_times_stands_whatever_nvml_says_of_others() -> None:
    job = Tracked()
    job.run(12)
    job.run(8, {0: SLOW})
    now_s = job.iteration + POLICY.min_hold_s
    assert [verdict.rank for verdict in job.verdicts(now_s)] == [0]
    job.read(now_s, HOT)
    assert [(one.rank, one.is_predicted) for one in job.verdicts(now_s + 0.5)] == [(0, False), (2, True)]
    assert [one.rank for one in job.verdicts(now_s + 9.0)] == [0, 2]


def test_times_that_nvml_explained_are_over_with_it_and_iterations_from_before_say_nothing() -> None:
    job = Tracked()
    job.run(12)
    job.read(11.0, HOT)
    job.run(6, {2: SLOW})
    (verdict,) = job.verdicts(18.0)
    assert not verdict.is_predicted
    job.read(19.0, replace(WELL, iteration=job.iteration + 1))
    assert not job.stands(19.5)
    job.run(2, {2: SLOW})
    assert job.times.direct.num_known(2) == 0
    job.run(1)
    assert job.times.direct.num_known(2) == 1


def test_a_gpu_that_is_throttled_beside_one_of_its_group_that_is_free_again_ends_nothing() -> None:
    job = Tracked(tp_size=2)
    for rank in (4, 5):
        job.read(10.0, replace(HOT, observed_mhz=1100 if rank == 4 else 1200), rank=rank)
    (verdict,) = job.verdicts(10.5)
    assert (verdict.rank, verdict.num_held_up) == (4, 1)
    job.read(11.0, WELL, rank=4)
    assert job.stands(12.5)
    job.read(13.0, WELL, rank=5)
    assert not job.stands(14.0)


def test_the_rank_that_loses_most_is_named_and_news_name_all_of_its_group() -> None:
    job = Tracked(tp_size=2)
    job.read(10.0, replace(HOT, observed_mhz=1100), rank=5)
    job.read(10.0, HOT, rank=4)
    (verdict,) = job.verdicts(10.5)
    assert (verdict.rank, verdict.pp_rank, verdict.dp_rank) == (5, 0, 1)
    assert verdict.degree.high == pytest.approx(1400 / 1100)
    assert job.tracker.news[0].startswith("one of the ranks 4, 5 (stage 0, pipeline 1) will be slower")


def test_a_verdict_by_times_begins_with_the_first_iteration_that_was_slow() -> None:
    job = Tracked()
    job.run(12)
    job.run(5, {3: SLOW})
    (verdict,) = job.verdicts(job.iteration)
    assert (verdict.rank, verdict.since_s, verdict.cause) == (3, 12.0, Cause.SLOW_COMPUTE)
    assert verdict.degree.value == pytest.approx(math.exp(SLOW), rel=0.01)
    assert job.tracker.flagged_cells().tolist() == [cell == 3 for cell in range(8)]
    assert job.tracker.late_pipelines().tolist() == [False, True, False, False]


def test_a_pipeline_that_is_late_by_itself_is_one_verdict_until_one_of_its_ranks_is_blamed() -> None:
    job = Tracked()
    job.run(12)
    job.run(8, late={2: SLOW})
    (verdict,) = job.verdicts(job.iteration)
    assert (verdict.is_whole_pipeline, verdict.dp_rank, verdict.rank, verdict.pp_rank) == (True, 2, 4, 0)
    assert job.tracker.late_pipelines().tolist() == [False, False, True, False]
    assert not job.tracker.flagged_cells().any()
    begun = len(job.tracker.news)
    job.run(8, {5: SLOW})
    (verdict,) = job.verdicts(job.iteration)
    assert (verdict.is_whole_pipeline, verdict.rank) == (False, 5)
    raised, over = job.tracker.news[begun:]
    assert raised.startswith("rank 5 (stage 1, pipeline 2) is slower than its likes by ")
    assert over == "pipeline 2 is slower because of one of its ranks"


def test_a_pipelines_verdict_that_has_been_worth_its_cost_counts_no_more_once_a_rank_is_blamed() -> None:
    job = Tracked()
    job.run(12)
    for _ in range(POLICY.max_raises + 1):
        for is_whole, slow, late in ((True, {}, {2: SLOW}), (False, {5: SLOW}, {})):
            job.run(8, slow, late)
            (verdict,) = job.verdicts(job.iteration)
            assert (verdict.is_whole_pipeline, verdict.is_flapping) == (is_whole, False)
            job.run(POLICY.worth_iterations, slow, late)
        job.run(24)
        assert job.verdicts(job.iteration) == []
    assert job.iteration < POLICY.flap_window_s


def test_a_cells_verdict_is_over_where_all_of_its_ranks_are_silent() -> None:
    job = Tracked(tp_size=2)
    job.read(10.0, HOT, rank=5)
    assert job.stands(10.5)
    is_live = np.arange(16) == 4
    job.tracker.end_silent(is_live)
    assert job.tracker.verdicts(11.0)
    job.tracker.end_silent(~(np.isin(np.arange(16), (4, 5))))
    assert not job.tracker.verdicts(11.0)
    assert job.tracker.news[-1] == "one of the ranks 4, 5 (stage 0, pipeline 1) has reported nothing for 10 s"


def test_a_pipelines_verdict_is_over_where_all_of_its_ranks_are_silent() -> None:
    job = Tracked()
    job.run(12)
    job.run(8, late={2: SLOW})
    for last in (4, 5):
        job.tracker.end_silent(np.arange(8) == last)
        assert job.tracker.verdicts(30.0)
    job.tracker.end_silent(~np.isin(np.arange(8), (4, 5)))
    assert not job.tracker.verdicts(30.0)
    assert job.tracker.news[-1] == "pipeline 2 has reported nothing for 10 s"


def test_a_verdict_that_is_resumed_is_as_it_was_and_acted_upon() -> None:
    job = Tracked()
    job.tracker.resume(3, 1.2, 5.0)
    (verdict,) = job.verdicts(6.0)
    assert (verdict.rank, verdict.pp_rank, verdict.dp_rank, verdict.since_s) == (3, 1, 1, 5.0)
    assert verdict.is_acted_upon
    assert not verdict.is_predicted
    step = POLICY.degree_step
    assert (verdict.degree.low, verdict.degree.value, verdict.degree.high) == pytest.approx(
        (1.2 - step, 1.2, 1.2 + step)
    )


def test_a_verdict_that_is_resumed_is_acted_upon_however_small_it_is() -> None:
    job = Tracked()
    job.tracker.resume(3, POLICY.min_degree + POLICY.degree_step / 2, 5.0)
    (verdict,) = job.verdicts(6.0)
    assert verdict.degree.low < POLICY.min_degree
    assert verdict.is_acted_upon


@pytest.mark.parametrize(("silence_s", "stands"), [(POLICY.stale_s, True), (POLICY.stale_s + 0.25, False)])
def test_a_verdict_stands_until_its_rank_is_silent(silence_s: float, *, stands: bool) -> None:
    detector = Detector(Tracked().layout, POLICY)
    detector.resume(1, 1, 1.2, 5.0)
    assert bool(detector.judge(5.0 + silence_s).verdicts) == stands


def test_a_pipelines_instructions_explain_its_time_and_what_they_leave_is_its_own() -> None:
    job, random = Tracked(dp_size=8), np.random.default_rng(11)
    for late in (0.0, 0.2):
        for _ in range(25 if late == 0.0 else 3):
            work = random.normal(0, 0.1, 8)
            job.run(
                1, dict(enumerate(np.repeat(work, 2).tolist())), {**dict(enumerate(work.tolist())), 3: work[3] + late}
            )
        found = job.times.pipeline_adjusted.estimate(3).median
        assert found == pytest.approx([0.0, 0.0, 0.0, late, 0.0, 0.0, 0.0, 0.0], abs=0.035)


def test_what_a_pipeline_has_always_been_late_by_is_usual() -> None:
    job = Tracked()
    job.run(60, late={2: 0.01})
    for series in (job.times.pipeline_direct, job.times.pipeline_adjusted):
        assert series.estimate(3).median == pytest.approx([0.0] * 4, abs=0.006)


def test_where_work_is_not_known_nothing_of_it_is_in_doubt() -> None:
    job = Tracked()
    job.run(12)
    assert not np.isnan(job.times.adjusted.estimate(3).median).any()
    assert job.times.adjusted.estimate(3).doubt.tolist() == [0.0] * 8


def test_what_another_plan_costs_a_pipeline_is_measured_from_its_first_iteration_on() -> None:
    job = Tracked()
    job.run(12)
    job.run(8, {0: SLOW, 3: SLOW})
    first, third = job.verdicts(job.iteration)
    assert first.pipeline_degree is not None
    assert third.pipeline_degree is not None
    job.tracker.change_plan(1, job.iteration + 1)
    first, third = job.verdicts(job.iteration)
    assert first.pipeline_degree is not None
    assert third.pipeline_degree is None
    known = []
    for _ in range(3):
        job.run(1, {0: SLOW, 3: SLOW})
        known.append(job.times.pipeline_direct.num_known(1))
    assert known == [0, 1, 2]
    assert job.verdicts(job.iteration)[1].pipeline_degree is not None


@pytest.mark.parametrize(("observed_mhz", "cause"), [(1371, Cause.UNKNOWN), (1372, Cause.SLOW_COMPUTE)])
def test_a_slow_gpu_below_its_clock_without_a_reason_is_not_blamed_for_its_computation(
    observed_mhz: int, cause: Cause
) -> None:
    job = Tracked()
    job.run(12)
    job.run(6, {2: SLOW})
    job.read(18.0, replace(WELL, observed_mhz=observed_mhz))
    (verdict,) = job.verdicts(18.5)
    assert (verdict.cause, verdict.observed_mhz, verdict.throttled_mhz) == (cause, observed_mhz, 0)


@pytest.mark.parametrize(
    ("share", "by_adjusted", "cause"),
    [
        (0.49, False, Cause.UNKNOWN),
        (0.51, False, Cause.SLOW_COMPUTE),
        (math.nan, False, Cause.SLOW_COMPUTE),
        (0.0, True, Cause.SLOW_COMPUTE),
    ],
    ids=["explained", "not explained", "not known", "by the cell itself"],
)
def test_no_gpu_is_blamed_where_its_pipeline_explains_more_than_half(
    *, share: float, by_adjusted: bool, cause: Cause
) -> None:
    job = Tracked()
    value = math.exp(SLOW)
    for _ in range(3):
        job.times.adjusted.take(np.where(np.arange(8) == 2, share * SLOW, 0.0), np.zeros(8, dtype=bool))
    case = OpenVerdict(
        place=2,
        raised_at_s=1.0,
        since_s=1.0,
        series=job.times.adjusted if by_adjusted else job.times.direct,
        degree=Degree(value=value, low=value, high=value),
        num_rows=3,
    )
    assert verdict_of_cell(case, job.layout, job.times, job.gpus, POLICY, 2.0).cause is cause


@pytest.mark.parametrize("shares", [(0.0, 1.0), (1.0, -1e-9), (1.0, math.nan), (1.0,), (1.0, 1.0, 1.0)], ids=str)
def test_kinds_without_a_share_above_nothing_are_refused(shares: tuple[float, ...]) -> None:
    with pytest.raises(StragglerError, match="give each kind one above 0"):
        Layout.of([RankCoords(0, 0)], kinds=("F", "B"), kind_shares=shares)


def test_shares_of_kinds_are_of_the_whole_and_a_small_one_counts() -> None:
    layout = Layout.of([RankCoords(0, 0)], kinds=("F", "B"), kind_shares=(1e-3, 3.999))
    np.testing.assert_allclose(layout.kind_shares, [0.00025, 0.99975])
    assert Layout.of([RankCoords(0, 0)]).kind_shares.tolist() == [0.5, 0.5]
