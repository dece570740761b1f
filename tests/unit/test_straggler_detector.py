"""The detector on invented jobs and instants: who is named, when, why, and what changes nothing."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perseus_dist.straggler.detector import Detector, Judgement
from perseus_dist.straggler.evidence.observation import GpuObservation, IterationObservation
from perseus_dist.straggler.layout import Layout, RankCoords, StragglerError
from perseus_dist.straggler.policy import StragglerPolicy
from perseus_dist.straggler.verdicts.causes import Cause
from perseus_dist.straggler.verdicts.verdict import Verdict

MAX_MHZ = 1410
GOOD = IterationObservation(iteration=30, time_ratios=(1.0, 1.0), requested_mhz=(MAX_MHZ, MAX_MHZ))
QUIET = 0.004  # [log] noise of one rank in a quiet job
HOT = GpuObservation(requested_mhz=MAX_MHZ, observed_mhz=1200, event_reasons=0x20, temperature_c=87.0, power_w=310.0)
COOL = GpuObservation(requested_mhz=MAX_MHZ, observed_mhz=MAX_MHZ, event_reasons=0x2, temperature_c=60.0, power_w=300.0)


@dataclass
class Job:
    """A job whose iterations take a second; ``factor`` says how slow a rank is."""

    dp_size: int = 8
    pp_size: int = 2
    tp_size: int = 1
    noise: float = QUIET
    work_noise: float = 0.0
    seed: int = 0
    clocks_mhz: dict[int, tuple[int, int]] = field(default_factory=dict)  # of a pipeline
    plan_s: dict[int, float] = field(default_factory=dict)  # of a pipeline
    silent: set[int] = field(default_factory=set)
    early_s: dict[int, float] = field(default_factory=dict)  # a stage ends so long before the first one
    late: dict[int, float] = field(default_factory=dict)  # a pipeline's own time, instructions apart
    input_wait_s: dict[int, float] | None = None
    knows_tokens: bool = False
    policy: StragglerPolicy = field(default_factory=StragglerPolicy)
    iteration: int = 0
    paused_s: float = 0.0

    def __post_init__(self) -> None:
        places = [
            RankCoords(pp_rank=s, dp_rank=d, tp_rank=t)
            for d in range(self.dp_size)
            for s in range(self.pp_size)
            for t in range(self.tp_size)
        ]
        self.layout = Layout.of(places)
        self.detector = Detector(self.layout, self.policy)
        self.rng = np.random.default_rng(self.seed)

    def step(self, slow: dict[int, float] | None = None, gpus: dict[int, GpuObservation] | None = None) -> Judgement:
        """One more iteration."""
        now_s = self.iteration + self.paused_s
        work = self.rng.normal(0, self.work_noise, self.dp_size) if self.work_noise else np.zeros(self.dp_size)
        cells = np.exp(self.rng.normal(0, self.noise, (self.layout.num_cells, 2)))
        for rank, degree in (slow or {}).items():
            cells[self.layout.cell_of[rank]] *= degree
        for rank in range(self.layout.num_ranks):
            dp_rank, stage = divmod(int(self.layout.cell_of[rank]), self.pp_size)
            if rank in self.silent:
                continue
            own = cells[dp_rank * self.pp_size : (dp_rank + 1) * self.pp_size].mean(axis=1)
            ratios = cells[self.layout.cell_of[rank]] * math.exp(work[dp_rank] * (1.0 + 0.5 * stage))
            planned_s = self.plan_s.get(dp_rank, 1.0)
            waits = self.input_wait_s
            seen = IterationObservation(
                iteration=self.iteration,
                time_ratios=tuple(ratios.tolist()),
                requested_mhz=self.clocks_mhz.get(dp_rank, (MAX_MHZ, MAX_MHZ)),
                pipeline_time_s=planned_s * float(own.max()) * math.exp(work[dp_rank]) * self.late.get(dp_rank, 1.0)
                - self.early_s.get(stage, 0.0),
                planned_time_s=planned_s,
                tokens=4096 * math.exp(0.5 * work[dp_rank]) if self.knows_tokens else 0.0,
                input_wait_s=None if waits is None else waits.get(dp_rank, 0.01),
            )
            assert self.detector.observe(rank, seen, now_s) == ""
        for rank, reading in (gpus or {}).items():
            assert self.detector.observe_gpu(rank, reading, now_s) == ""
        self.iteration += 1
        return self.detector.judge(now_s + 0.5)

    def run(self, num: int, slow: dict[int, float] | None = None, **more: dict[int, GpuObservation]) -> list[Judgement]:
        """So many more."""
        return [self.step(slow, **more) for _ in range(num)]


def only(judgement: Judgement) -> Verdict:
    assert len(judgement.verdicts) == 1, [verdict.sentence for verdict in judgement.verdicts]
    return judgement.verdicts[0]


def num_until(judgements: list[Judgement], is_so: Callable[[Judgement], bool]) -> int:
    """After how many iterations something is so for the first time."""
    return next((number for number, one in enumerate(judgements, start=1) if is_so(one)), 99)


# ---- time ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dp_size", [1, 2, 3, 4, 8])
def test_a_slow_rank_is_named_followed_and_forgotten(dp_size: int) -> None:
    job = Job(dp_size=dp_size)
    assert not any(judgement.verdicts for judgement in job.run(30))
    slow = job.run(10, {1: 1.1})
    assert num_until(slow, lambda judgement: bool(judgement.verdicts)) <= 5
    verdict = only(slow[-1])
    assert (verdict.rank, verdict.pp_rank, verdict.dp_rank) == (1, 1, 0)
    assert verdict.degree.low <= 1.1 <= verdict.degree.high
    assert verdict.degree.value == pytest.approx(1.1, abs=0.01)
    assert verdict.is_acted_upon
    assert not verdict.is_predicted
    assert verdict.cause is Cause.SLOW_COMPUTE
    assert verdict.since_s == pytest.approx(30, abs=1)
    assert "rank 1 (stage 1, pipeline 0) is slower than its likes by " in verdict.sentence
    after = job.run(10)
    assert num_until(after, lambda judgement: not judgement.verdicts) <= 3
    assert not any(judgement.verdicts for judgement in after[3:])


def test_five_percent_in_a_quiet_job() -> None:
    for seed in range(6):
        job = Job(seed=seed)
        job.run(30)
        slow = job.run(10, {5: 1.05})
        assert num_until(slow, lambda judgement: any(v.is_acted_upon for v in judgement.verdicts)) <= 10


def test_two_percent_is_not_acted_upon() -> None:
    job = Job()
    job.run(30)
    assert not any(v.is_acted_upon for judgement in job.run(40, {5: 1.02}) for v in judgement.verdicts)


def test_slow_from_the_beginning() -> None:
    assert only(Job().run(20, {3: 1.1})[-1]).rank == 3


@pytest.mark.parametrize(("dp_size", "pp_size"), [(1, 2), (2, 1), (2, 2), (8, 2), (4, 4)])
def test_who_becomes_faster_makes_no_straggler_of_another(dp_size: int, pp_size: int) -> None:
    job = Job(dp_size=dp_size, pp_size=pp_size, work_noise=0.006)
    job.run(30)
    assert not any(judgement.verdicts for judgement in job.run(20, {1: 0.85}))


def test_all_become_slower_and_nobody_straggles() -> None:
    job = Job(dp_size=4)
    job.run(30)
    assert not any(judgement.verdicts for judgement in job.run(20, dict.fromkeys(range(8), 1.2)))


def test_hiccups_of_any_length_are_no_straggler() -> None:
    job = Job()
    job.run(30)
    for _ in range(10):
        assert not job.step({4: 30.0}).verdicts
        assert not any(judgement.verdicts for judgement in job.run(4))


def test_two_stragglers_at_once() -> None:
    job = Job()
    job.run(30)
    verdicts = job.run(10, {2: 1.2, 13: 1.1})[-1].verdicts
    assert [(v.rank, round(v.degree.value, 1)) for v in verdicts] == [(2, 1.2), (13, 1.1)]


def test_worse_then_better_then_over() -> None:
    job = Job()
    job.run(30)
    found = [only(job.run(8, {2: degree})[-1]).degree.value for degree in (1.1, 1.3, 1.12)]
    assert found == pytest.approx([1.1, 1.3, 1.12], abs=0.015)
    assert not job.run(3)[-1].verdicts


def test_unequal_work_hides_a_slow_rank_from_its_peers_but_not_from_its_pipeline() -> None:
    job = Job(dp_size=16, work_noise=0.12)
    assert not any(judgement.verdicts for judgement in job.run(40))
    slow = job.run(10, {7: 1.1})
    assert only(slow[-1]).rank == 7
    assert num_until(slow, lambda judgement: bool(judgement.verdicts)) <= 8


def test_unequal_work_is_explained_by_tokens_where_there_is_one_stage() -> None:
    job = Job(dp_size=16, pp_size=1, work_noise=0.12, knows_tokens=True)
    assert not any(judgement.verdicts for judgement in job.run(40))
    assert only(job.run(10, {7: 1.1})[-1]).rank == 7


def test_an_own_plan_is_no_straggler_and_a_straggler_alone_at_its_clock_stays_one() -> None:
    for dp_size in (2, 8):
        job = Job(dp_size=dp_size)
        job.run(30)
        only(job.run(8, {1: 1.1})[-1])
        for dp_rank in range(1, dp_size):  # the others wait, at other clocks, at which the profile is wrong by 1 %
            job.clocks_mhz[dp_rank], job.plan_s[dp_rank] = (1200, 1215), 1.1
        profile_error = dict.fromkeys(range(2, 2 * dp_size), 1.01)
        waiting = job.run(20, {1: 1.1, **profile_error})
        assert {only(judgement).rank for judgement in waiting} == {1}
        assert num_until(job.run(6, profile_error), lambda judgement: not judgement.verdicts) <= 3
        job.clocks_mhz.clear()
        job.plan_s.clear()
        assert not any(judgement.verdicts for judgement in job.run(20))


def test_a_tensor_parallel_group_is_one_verdict_and_nvml_says_which_rank() -> None:
    job = Job(dp_size=4, tp_size=4)
    job.run(30)
    verdict = only(job.run(6, {4: 1.15})[-1])
    assert verdict.rank == 4
    assert "with the 3 of its tensor-parallel group that wait for it" in verdict.sentence
    assert only(job.run(4, {4: 1.15}, gpus={6: HOT})[-1]).rank == 6


# ---- pipelines that are late as a whole ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("waits", "cause"), [(None, Cause.UNKNOWN), ({2: 0.12}, Cause.SLOW_INPUT), ({}, Cause.SLOW_NETWORK)]
)
def test_a_late_pipeline_whose_instructions_are_as_fast_as_others(waits: dict[int, float] | None, cause: Cause) -> None:
    job = Job(input_wait_s=waits)
    job.run(30)
    job.late[2] = 1.1
    late = job.run(8)
    verdict = only(late[-1])
    assert (verdict.dp_rank, verdict.cause, verdict.is_whole_pipeline) == (2, cause, True)
    assert verdict.degree.value == pytest.approx(1.1, abs=0.01)
    assert verdict.sentence.startswith("pipeline 2 is slower than its likes by ")
    job.late.clear()
    assert not job.run(3)[-1].verdicts


def test_all_stages_of_a_pipeline_are_slow_and_no_one_gpu_is_blamed() -> None:
    job = Job(pp_size=4)
    job.run(30)
    verdicts = job.run(12, dict.fromkeys(range(4, 8), 1.1))[-1].verdicts
    assert {verdict.dp_rank for verdict in verdicts} == {1}
    assert {verdict.cause for verdict in verdicts} <= {Cause.UNKNOWN, Cause.SLOW_COMPUTE}


# ---- NVML ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reasons", "temperature_c", "cause"),
    [
        (0x20, 85.0, Cause.THERMAL),
        (0x40 | 0x8, 90.0, Cause.THERMAL),
        (0x8, 90.0, Cause.THERMAL),
        (0x8, 60.0, Cause.POWER_BRAKE),
        (0x80 | 0x8, 60.0, Cause.POWER_BRAKE),
        (0x4, 60.0, Cause.POWER_CAP),
    ],
)
def test_nvml_predicts_before_an_iteration_is_over(reasons: int, temperature_c: float, cause: Cause) -> None:
    job = Job()
    job.run(30, gpus=dict.fromkeys(range(job.layout.num_ranks), COOL))
    reading = replace(HOT, event_reasons=reasons, temperature_c=temperature_c)
    for at_s in (30.0, 30.6, 31.2):
        assert not job.detector.judge(at_s).verdicts
        assert job.detector.observe_gpu(6, reading, at_s) == ""
    verdict = only(job.detector.judge(31.5))
    assert (verdict.rank, verdict.cause, verdict.is_predicted, verdict.since_s) == (6, cause, True, 30.0)
    assert 1.03 < verdict.degree.low < verdict.degree.value < verdict.degree.high == pytest.approx(1410 / 1200)
    assert verdict.is_acted_upon
    assert "1200 MHz of 1410 MHz requested" in verdict.sentence
    assert "will be slower" in verdict.sentence


def test_peers_that_wait_do_not_say_that_a_power_cap_is_one_ranks_own() -> None:
    """All GPUs of a job meet their cap while they compute; readings once a second may find one computing alone."""
    capped = replace(HOT, event_reasons=0x4, temperature_c=60.0)
    found = {}
    for power_w in (70.0, 300.0):
        job = Job()
        job.run(30, gpus=dict.fromkeys(range(job.layout.num_ranks), replace(COOL, power_w=power_w)))
        for at_s in (30.0, 30.6, 31.2):
            assert job.detector.observe_gpu(6, capped, at_s) == ""
        found[power_w] = [verdict.cause for verdict in job.detector.judge(31.5).verdicts]
    assert found == {70.0: [], 300.0: [Cause.POWER_CAP]}


def test_a_power_cap_that_a_hot_gpu_meets_as_its_peers_do_is_no_heat() -> None:
    """Heat takes 3 % of the highest clock, which predicts nothing; what computes most runs below that on all GPUs."""
    warm, at_cap = replace(HOT, observed_mhz=1365), replace(HOT, event_reasons=0x24)
    hot = replace(HOT, observed_mhz=1250)
    found = []
    for readings in ((warm, warm, at_cap), (warm, at_cap, warm), (hot, hot, at_cap), (at_cap, at_cap, at_cap)):
        job = Job()
        job.run(30, gpus=dict.fromkeys(range(job.layout.num_ranks), replace(COOL, power_w=70.0)))  # peers wait
        for at_s, reading in zip((30.0, 30.6, 31.2), readings, strict=True):
            assert job.detector.observe_gpu(6, reading, at_s) == ""
        found.append([verdict.cause for verdict in job.detector.judge(31.5).verdicts])
    assert found == [[], [], [Cause.THERMAL], [Cause.THERMAL]]


def test_readings_far_apart_are_no_row() -> None:
    """Heat once, and twelve seconds later the power cap that all GPUs share."""
    at_cap = replace(HOT, event_reasons=0x4, temperature_c=45.0)
    found = []
    for first_s in (18.0, 30.0):
        job = Job()
        job.run(18)
        for at_s, reading in zip((first_s, 30.6, 31.2), (HOT, at_cap, at_cap), strict=True):
            assert job.detector.observe_gpu(6, reading, at_s) == ""
        found.append([verdict.cause for verdict in job.detector.judge(31.5).verdicts])
    assert found == [[], [Cause.THERMAL]]


def test_heat_is_over_where_the_clock_has_risen_to_the_power_cap() -> None:
    """All GPUs share the cap, and only that holds it now, at a clock that heat did not let it reach."""
    at_cap = replace(HOT, event_reasons=0x4, observed_mhz=1230, temperature_c=45.0)
    job = Job()
    job.run(18)
    for at_s, reading in zip((30.0, 30.6, 31.2), (HOT, at_cap, at_cap), strict=True):
        assert job.detector.observe_gpu(6, reading, at_s) == ""
    assert job.detector.judge(31.5).verdicts == ()


def test_times_take_over_what_nvml_predicted() -> None:
    job = Job()
    job.run(30)
    slow = job.run(10, {6: 1.12}, gpus={6: HOT})
    assert num_until(slow, lambda judgement: bool(judgement.verdicts)) <= 3
    verdict = only(slow[-1])
    assert not verdict.is_predicted
    assert verdict.cause is Cause.THERMAL
    assert verdict.degree.value == pytest.approx(1.12, abs=0.01)
    assert only(job.step({6: 1.12}, gpus={6: COOL})).cause is Cause.THERMAL  # a reading does not change the cause
    assert num_until(job.run(10, gpus={6: COOL}), lambda judgement: not judgement.verdicts) <= 3


def test_times_withdraw_what_nvml_predicted() -> None:
    job = Job()
    job.run(30)
    seen = job.run(20, gpus={6: HOT})
    assert not any(judgement.verdicts for judgement in seen[10:])


def test_nvml_halves_what_times_must_show() -> None:
    delays = []
    for gpus in ({}, {6: replace(HOT, observed_mhz=1365)}):
        job = Job(noise=0.02)
        job.run(30)
        delays.append(num_until(job.run(16, {6: 1.12}, gpus=gpus), lambda judgement: bool(judgement.verdicts)))
    assert delays[1] < delays[0]


def test_a_power_cap_that_all_share_is_how_the_job_runs() -> None:
    job = Job(dp_size=8)
    capped = replace(HOT, event_reasons=0x4, temperature_c=60.0)
    assert not any(judgement.verdicts for judgement in job.run(30, gpus=dict.fromkeys(range(16), capped)))
    worse = replace(capped, observed_mhz=990)
    assert only(job.run(4, {3: 1.15}, gpus={**dict.fromkeys(range(16), capped), 3: worse})[-1]).cause is Cause.POWER_CAP


@pytest.mark.parametrize(
    "reading",
    [
        replace(HOT, event_reasons=0x21),  # idle
        replace(HOT, event_reasons=0x2),  # low clocks, but nothing throttles
        replace(HOT, observed_mhz=0),  # NVML does not know
        replace(HOT, observed_mhz=MAX_MHZ),  # a reason, but the clock is there
        replace(HOT, requested_mhz=1200),  # what the plan wants
    ],
)
def test_readings_that_predict_nothing(reading: GpuObservation) -> None:
    job = Job()
    assert not any(judgement.verdicts for judgement in job.run(30, gpus={6: reading}))


def test_a_clock_that_is_not_reached_for_no_reason_is_told() -> None:
    job = Job()
    job.run(30)
    verdict = only(job.run(8, {6: 1.15}, gpus={6: replace(HOT, event_reasons=0x2)})[-1])
    assert verdict.cause is Cause.UNKNOWN
    assert "1200 MHz of 1410 MHz requested" in verdict.sentence


@pytest.mark.parametrize("observed_mhz", [0, 1372])
def test_a_clock_that_is_not_known_or_nearly_reached_explains_nothing(observed_mhz: int) -> None:
    job = Job()
    job.run(30)
    seen = replace(HOT, event_reasons=0x2, requested_mhz=1400, observed_mhz=observed_mhz)
    assert only(job.run(8, {6: 1.15}, gpus={6: seen})[-1]).cause is Cause.SLOW_COMPUTE


def test_what_nvml_explained_is_over_when_nvml_says_so_and_late_reports_are_not_heard() -> None:
    for dp_size in (2, 8):
        job = Job(dp_size=dp_size)
        job.run(30)
        assert not only(job.run(8, {3: 1.2}, gpus={3: HOT})[-1]).is_predicted
        begun = job.iteration + 1
        now_s = job.iteration - 0.45
        for _ in range(3):
            assert not job.detector.has_gpu_news
            assert only(job.detector.judge(now_s)).rank == 3
            now_s += 0.15
            assert job.detector.observe_gpu(3, replace(COOL, iteration=begun), now_s) == ""
        assert job.detector.has_gpu_news
        assert not job.detector.judge(now_s).verdicts
        assert not job.detector.has_gpu_news
        assert not any(judgement.verdicts for judgement in job.run(2, {3: 1.2})), "ran before it was free"
        assert not any(judgement.verdicts for judgement in job.run(20))
        assert only(job.run(6, {3: 1.2})[-1]).rank == 3, "it can come again"


def test_a_power_cap_is_over_when_times_say_so() -> None:
    job = Job()
    job.run(30)
    assert not only(
        job.run(8, {3: 1.2}, gpus={3: replace(HOT, event_reasons=0x4, temperature_c=60.0)})[-1]
    ).is_predicted
    cheap_kernels = job.run(8, {3: 1.2}, gpus={3: COOL})
    assert {only(judgement).cause for judgement in cheap_kernels} == {Cause.POWER_CAP}
    assert num_until(job.run(6, gpus={3: COOL}), lambda judgement: not judgement.verdicts) <= 3


def test_a_reading_at_a_clock_that_the_throttled_gpu_reaches_proves_nothing() -> None:
    job = Job()
    job.run(30)
    low = replace(COOL, requested_mhz=1100, observed_mhz=1100)
    readings = [HOT, low, HOT, low, HOT]
    for number, reading in enumerate(readings):
        assert not job.detector.judge(30 + number).verdicts
        assert job.detector.observe_gpu(6, reading, 30 + number) == ""
    verdict = only(job.detector.judge(35.0))
    assert (verdict.rank, verdict.throttled_mhz) == (6, 1200)
    for number in range(8):  # asked for less: it may be free, or not
        job.detector.observe_gpu(6, low, 36.0 + number)
        assert only(job.detector.judge(36.1 + number)).rank == 6
    for number in range(3):
        job.detector.observe_gpu(6, COOL, 45.0 + number)
    assert not job.detector.judge(48.0).verdicts


def test_one_free_reading_among_others_ends_nothing() -> None:
    job = Job()
    job.run(30)
    for reading in (HOT, HOT, HOT, COOL, COOL, HOT, COOL, COOL, HOT, HOT):
        judgement = job.step({6: 1.17}, gpus={6: reading})
    assert only(judgement).rank == 6


def test_the_clock_that_throttling_leaves_is_the_median_of_readings() -> None:
    job = Job()
    for number, observed_mhz in enumerate((1200, 1215, 1005, 1200, 1185, 990, 990, 990)):
        job.detector.observe_gpu(6, replace(HOT, observed_mhz=observed_mhz), float(number))
        throttled_mhz = [verdict.throttled_mhz for verdict in job.detector.judge(number + 0.5).verdicts]
        expected = {2: [1200], 3: [1200], 4: [1185], 5: [1185], 6: [990], 7: [990]}
        assert number < 2 or throttled_mhz == expected[number]


def test_heat_that_goes_on_as_the_power_cap_of_all_is_over() -> None:
    """Readings are never free in between; where peers are few, a power cap alone predicts nothing."""
    job = Job(dp_size=2)
    job.run(30)
    assert only(job.run(12, {3: 1.17}, gpus={3: HOT})[-1]).cause is Cause.THERMAL
    capped = replace(HOT, observed_mhz=1300, event_reasons=0x4, temperature_c=60.0)
    seen = job.run(40, gpus={3: capped})
    assert not any(judgement.verdicts for judgement in seen[12:])


def test_who_is_throttled_from_the_beginning_is_held_against_the_profile_where_peers_are_few() -> None:
    job = Job(dp_size=2)
    seen = job.run(30, {3: 1.17}, gpus={3: HOT})
    assert all(only(judgement).rank == 3 for judgement in seen[12:])
    assert not only(seen[-1]).is_predicted
    assert only(seen[-1]).degree.value == pytest.approx(1.17, abs=0.01)
    fast = Job(dp_size=2)  # throttled, but as fast as profiled: something else bounds it
    assert not any(judgement.verdicts for judgement in fast.run(30, gpus={3: HOT})[12:])


def test_a_straggler_that_its_own_plan_slows_no_more_than_others_is_acted_upon_until_it_is_over() -> None:
    job = Job()
    job.run(30)
    assert only(job.run(8, {3: 1.1})[-1]).is_acted_upon
    verdict = only(job.run(10, {3: 1.033})[-1])
    assert verdict.degree.low < 1.03
    assert verdict.is_acted_upon


def test_what_a_straggler_costs_its_pipeline_is_measured_anew_under_another_plan() -> None:
    job = Job(dp_size=2)
    job.run(30)
    before = only(job.run(16, {3: 1.2})[-1]).pipeline_degree
    assert before is not None
    assert before.value == pytest.approx(1.2, abs=0.02)
    first = job.iteration + 1
    job.detector.change_plan(1, first)
    assert only(job.detector.judge(float(job.iteration))).pipeline_degree is None
    job.late[1] = 0.9  # the rest of the pipeline makes up for it
    found = [only(judgement).pipeline_degree for judgement in job.run(6, {3: 1.2})]
    assert found[:2] == [None, None]
    assert all(degree is not None and degree.value == pytest.approx(1.08, abs=0.02) for degree in found[2:])


# ---- the life of a verdict -------------------------------------------------------------------------------------------


def test_minimum_hold() -> None:
    job = Job(policy=StragglerPolicy(min_hold_s=20.0, min_hold_iterations=100))
    job.run(30)
    job.run(8, {2: 1.1})
    assert num_until(job.run(30), lambda judgement: not judgement.verdicts) in range(14, 20)
    job = Job(policy=StragglerPolicy(min_hold_s=20.0, min_hold_iterations=12))
    job.run(30)
    job.run(8, {2: 1.1})
    assert num_until(job.run(30), lambda judgement: not judgement.verdicts) in range(6, 12)


@pytest.mark.parametrize("dp_size", [1, 2, 3, 4, 8])
def test_a_straggler_whose_peers_wait_at_other_clocks_is_still_heard(dp_size: int) -> None:
    """It is compared with what it would take if it were like them, as it was known when it was compared last."""
    job = Job(dp_size=dp_size)
    job.run(30)
    job.run(10, {1: 1.1})
    for dp_rank in range(1, dp_size):
        job.clocks_mhz[dp_rank], job.plan_s[dp_rank] = (1200, 1215), 1.1
    waiting = job.run(30, {1: 1.1})
    assert all(only(judgement).is_fresh for judgement in waiting)
    assert only(waiting[-1]).degree.value == pytest.approx(1.1, abs=0.02)
    assert num_until(job.run(10), lambda judgement: not judgement.verdicts) <= 4


def test_a_whole_node_is_found_where_every_pipeline_has_other_clocks() -> None:
    """Two pipelines of eight, each at clocks of its own: no rank has a peer to be compared with."""
    job = Job(dp_size=8, pp_size=4)
    job.run(30)
    job.clocks_mhz = {dp_rank: (1200 - 15 * dp_rank, 1215 - 15 * dp_rank) for dp_rank in range(8)}
    slow = set(range(16, 24))
    found = job.run(20, dict.fromkeys(slow, 1.3))
    assert {verdict.rank for verdict in found[9].verdicts} == slow
    assert {verdict.rank for verdict in found[-1].verdicts} == slow
    assert all(verdict.degree.low < 1.3 < verdict.degree.high + 0.03 for verdict in found[-1].verdicts)
    assert num_until(job.run(10), lambda judgement: not judgement.verdicts) <= 4


def test_all_become_slower_where_every_pipeline_has_other_clocks_and_nobody_straggles() -> None:
    job = Job(dp_size=8, pp_size=4)
    job.run(30)
    job.clocks_mhz = {dp_rank: (1200 - 15 * dp_rank, 1215 - 15 * dp_rank) for dp_rank in range(8)}
    assert not any(judgement.verdicts for judgement in job.run(30, dict.fromkeys(range(32), 1.2)))


def test_what_recovers_before_it_is_told_of_is_not_told_of() -> None:
    """Reports of several iterations come at once."""
    job = Job(policy=StragglerPolicy(grace_s=100.0))
    job.run(30)
    job.silent = {15}  # the last report of each iteration comes later, and all together
    job.run(8, {2: 1.1})
    job.run(6)
    now_s = float(job.iteration)
    for iteration in range(30, job.iteration):
        job.detector.observe(15, replace(GOOD, iteration=iteration), now_s)
    judgement = job.detector.judge(now_s)
    assert judgement.num_iterations == job.iteration
    assert not judgement.verdicts


def test_who_comes_and_goes_is_not_acted_upon_any_more() -> None:
    job = Job()
    job.run(30)
    found = []
    for _ in range(5):
        found.append(only(job.run(9, {2: 1.2})[-1]))
        job.run(6)
    assert [verdict.is_acted_upon for verdict in found] == [True, True, True, False, False]
    assert "comes and goes too often" in found[-1].sentence
    job.run(9, {2: 1.2})
    job.paused_s += 600
    assert only(job.step({2: 1.2})).is_acted_upon  # it has stayed
    job.run(5)
    job.paused_s += 600
    job.run(40)
    assert only(job.run(9, {2: 1.2})[-1]).is_acted_upon


def test_who_comes_again_for_long_is_acted_upon_each_time() -> None:
    """What waiting saves in forty iterations is worth the few that its end costs."""
    job = Job()
    job.run(30)
    for _ in range(8):
        assert only(job.run(40, {2: 1.2})[-1]).is_acted_upon
        assert not job.run(20)[-1].verdicts


def test_a_straggler_whose_agent_dies_holds_nobody_up() -> None:
    job = Job()
    job.run(30)
    only(job.run(8, {2: 1.2})[-1])
    job.silent.add(2)
    after = job.run(20, {2: 1.2})
    assert after[1].verdicts
    assert num_until(after, lambda judgement: not judgement.verdicts) <= 12
    assert any("has reported nothing for 10 s" in line for judgement in after for line in judgement.news)
    job.silent.clear()
    assert only(job.run(20, {2: 1.2})[-1]).rank == 2


def test_a_rank_that_reports_what_is_not_judged_is_not_silent() -> None:
    """Three iterations of a probe may last longer than the time after which a rank counts as silent."""
    detector = Detector(Job().layout)
    seen = IterationObservation(
        iteration=0, time_ratios=(1.0, 1.0), requested_mhz=(1400, 1400), pipeline_time_s=1.0, planned_time_s=1.0
    )
    detector.observe(2, seen, 0.0)
    assert detector.note_alive(2, 8.0) == ""
    assert "expected 0 to 15" in detector.note_alive(16, 8.0)
    assert "clock" in detector.note_alive(2, 7.0)
    assert detector._intake.last_seen_s[2] == 8.0


def test_a_pipeline_is_not_faster_while_its_first_stage_says_nothing() -> None:
    """The last backward is the first stage's; after a planner's restart, ranks come back one by one."""
    job = Job(early_s={1: 0.1})
    job.silent = {2 * dp_rank for dp_rank in range(4)}
    job.run(12)
    job.silent.clear()
    assert not any(judgement.verdicts for judgement in job.run(30))


def test_missing_ranks_hold_up_nobody_elses_judgement() -> None:
    job = Job()
    job.run(30)
    job.silent.update({0, 9})
    slow = job.run(12, {2: 1.1})
    assert only(slow[-1]).rank == 2


def test_short_iterations_and_a_rank_that_dies() -> None:
    detector = Detector(Job().layout)
    for number in range(500):
        for rank in range(16):
            if rank != 9 or number < 200:
                ratio = 1.2 if rank == 2 and number > 300 else 1.0
                seen = replace(GOOD, iteration=number, time_ratios=(ratio, ratio))
                assert detector.observe(rank, seen, number * 0.05) == ""
        if number % 20 == 19:
            judgement = detector.judge(number * 0.05)
    assert detector.num_jumps == 0
    assert judgement.num_iterations >= 460
    assert only(judgement).rank == 2


def test_a_new_detector_finds_what_the_last_one_knew() -> None:
    job = Job()
    job.run(30)
    job.run(10, {2: 1.1})
    job.detector = Detector(job.layout)
    assert only(job.run(16, {2: 1.1})[-1]).rank == 2


def test_news_are_told_once() -> None:
    job = Job()
    job.run(30)
    slow = [line for judgement in job.run(10, {2: 1.1}) for line in judgement.news]
    over = [line for judgement in job.run(5) for line in judgement.news]
    assert len(slow) == len(over) == 1
    assert "rank 2 (stage 0, pipeline 1) is slower than its likes by " in slow[0]
    assert over == ["rank 2 (stage 0, pipeline 1) is as fast as its likes again"]


@pytest.mark.parametrize("dp_size", [1, 2, 8])
def test_verdicts_are_equal_while_nothing_changes(dp_size: int) -> None:
    job = Job(dp_size=dp_size)
    job.run(30)
    verdicts = [only(judgement) for judgement in job.run(70, {1: 1.1})[10:]]
    assert len(set(verdicts)) <= 4
    found = {None if v.pipeline_degree is None else round(v.pipeline_degree.value, 1) for v in verdicts}
    assert found == {1.1}


# ---- what cannot be true, and what comes at the wrong time -----------------------------------------------------------

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"time_ratios": (NAN, 1.0)}, "saw a time of nan times the profile's, expected 0.01 to 100"),
        ({"time_ratios": (1.0, -1.0)}, "saw a time of -1 times"),
        ({"time_ratios": (1.0, 1e300)}, "saw a time of 1e+300 times"),
        ({"time_ratios": (1.0, INF)}, "saw a time of inf times"),
        ({"time_ratios": (1.0, 0.0)}, "saw a time of 0 times"),
        ({"time_ratios": (1.0,)}, "saw 1 times and 2 clocks, expected 2 of each"),
        ({"requested_mhz": (-1, 1)}, "saw a requested clock of -1 MHz"),
        ({"requested_mhz": (10**30, 1)}, "saw a requested clock of 1000000000000000000000000000000 MHz"),
        ({"iteration": -1}, "saw iteration -1"),
        ({"iteration": 2**60}, "saw iteration 1152921504606846976"),
        ({"pipeline_time_s": NAN}, "saw a pipeline's time of nan s"),
        ({"planned_time_s": -1.0}, "planned: -1 s"),
        ({"tokens": INF}, "saw inf tokens"),
        ({"tokens": -5.0}, "saw -5 tokens"),
        ({"input_wait_s": NAN}, "saw nan s of waiting for input"),
    ],
)
def test_impossible_iterations_are_refused(bad: dict[str, object], says: str) -> None:
    detector = Job().detector
    refusal = detector.observe(0, replace(GOOD, **bad), 0.0)  # type: ignore[arg-type]
    assert says in refusal
    assert detector.refused == {"impossible": 1}
    assert detector.observe(0, GOOD, 0.0) == ""


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"observed_mhz": -1}, "saw a clock of -1 MHz"),
        ({"requested_mhz": 10**9}, "requested: 1000000000 MHz"),
        ({"event_reasons": -1}, "saw event reasons -1"),
        ({"event_reasons": 1 << 70}, "expected bits within 63"),
        ({"temperature_c": NAN}, "saw a temperature of nan degrees"),
        ({"power_w": -1.0}, "saw a power of -1 W"),
        ({"power_w": INF}, "saw a power of inf W"),
    ],
)
def test_impossible_readings_are_refused(bad: dict[str, object], says: str) -> None:
    detector = Job().detector
    assert says in detector.observe_gpu(0, replace(HOT, **bad), 0.0)  # type: ignore[arg-type]
    assert detector.refused == {"impossible": 1}


@pytest.mark.parametrize("rank", [-1, 16, 10**12])
def test_ranks_that_do_not_exist(rank: int) -> None:
    detector = Job().detector
    assert detector.observe(rank, GOOD, 0.0) == f"saw rank {rank}, expected 0 to 15"
    assert detector.observe_gpu(rank, HOT, 0.0) == f"saw rank {rank}, expected 0 to 15"
    assert detector.refused == {"unknown rank": 2}


@pytest.mark.parametrize("now_s", [NAN, INF, -INF, 29.0, -1e300])
def test_a_clock_that_runs_backwards(now_s: float) -> None:
    job = Job()
    judgement = job.run(30)[-1]
    assert "never runs backwards" in job.detector.observe(0, GOOD, now_s)
    assert "never runs backwards" in job.detector.observe_gpu(0, HOT, now_s)
    assert job.detector.judge(now_s) is judgement
    assert job.detector.refused == {"clock ran backwards": 3}
    assert not job.run(1)[-1].verdicts


def test_repeated_and_late_reports_change_nothing() -> None:
    twin, job = Job(), Job()
    for number in range(50):
        slow = {2: 1.1} if number >= 30 else None
        expected = twin.step(slow)
        wild = replace(GOOD, iteration=number, time_ratios=(50.0, 50.0))
        judgement = job.step(slow)
        assert job.detector.observe(5, wild, number + 0.6)  # judged already
        assert judgement == expected
    assert job.detector.refused["out of order"] == 50
    assert job.detector.observe(5, replace(GOOD, iteration=50), 50.0) == ""
    assert "has reported iteration 50 before" in job.detector.observe(5, replace(GOOD, iteration=50), 50.0)


def test_reports_in_any_order() -> None:
    rng = np.random.default_rng(0)
    detector = Detector(Job().layout)
    for block in range(10):
        reports = [(rank, number) for number in range(4 * block, 4 * block + 4) for rank in range(16)]
        for index in rng.permutation(len(reports)).tolist() if block else range(len(reports)):
            rank, number = reports[index]
            ratio = 1.15 if rank == 2 and number >= 20 else 1.0
            assert (
                detector.observe(rank, replace(GOOD, iteration=number, time_ratios=(ratio, ratio)), 4.0 * block) == ""
            )
        judgement = detector.judge(4.0 * block + 1)
    assert judgement.num_iterations == 40
    assert only(judgement).rank == 2


@pytest.mark.parametrize("jump", [-25, -500, 10_000])
def test_training_goes_on_elsewhere(jump: int) -> None:
    job = Job()
    detector, report = job.detector, IterationObservation(iteration=0, time_ratios=(1, 1), requested_mhz=(0, 0))
    for number in range(600, 640):
        for rank in range(16):
            assert detector.observe(rank, replace(report, iteration=number), float(number)) == ""
        detector.judge(number + 0.5)
    for number in range(640, 680):
        for rank in range(16):
            ratio = 1.1 if rank == 2 else 1.0
            detector.observe(rank, replace(report, iteration=number + jump, time_ratios=(ratio, ratio)), float(number))
        judgement = detector.judge(number + 0.5)
    assert detector.num_jumps == 1
    assert only(judgement).rank == 2


def test_a_gpu_that_is_free_again_as_training_goes_back_is_heard_from_there_on() -> None:
    """Its first free reading was of an iteration that comes again much later."""
    job = Job(iteration=2000)
    job.run(30)
    assert only(job.run(8, {3: 1.2}, gpus={3: HOT})[-1]).rank == 3
    assert job.detector.observe_gpu(3, replace(COOL, iteration=job.iteration), job.iteration) == ""
    job.iteration, job.paused_s = 1000, 1040.0
    for _ in range(3):  # the first two are refused
        for rank in range(16):
            ratio = 1.2 if rank == 3 else 1.0  # it ran before it was free
            seen = replace(GOOD, iteration=job.iteration, time_ratios=(ratio, ratio))
            job.detector.observe(rank, seen, job.iteration + job.paused_s)
        job.detector.judge(job.iteration + job.paused_s)
        job.iteration += 1
    assert job.detector.num_jumps == 1
    for _ in range(2):
        now_s = job.iteration + job.paused_s
        assert job.detector.observe_gpu(3, replace(COOL, iteration=job.iteration), now_s) == ""
        job.paused_s += 0.1
    assert not job.detector.judge(now_s).verdicts
    job.run(6)
    assert only(job.run(30, {3: 1.2})[-1]).rank == 3


def test_one_rank_that_counts_wildly_leads_nobody_away() -> None:
    job = Job()
    job.run(30)
    for number in range(40):
        job.detector.observe(15, replace(GOOD, iteration=10**9 * (number + 1)), job.iteration)
        job.silent = {15}
        job.step()
    assert job.detector.num_jumps == 0
    assert job.detector.num_iterations >= 60


@pytest.mark.parametrize(
    ("places", "kinds", "shares", "says"),
    [
        ([], ("F",), None, "saw 0 ranks"),
        ([(0, 0), (0, 0)], ("F",), None, "saw 2 ranks for dp x pp x tp = 1 x 1 x 1"),
        ([(0, 0), (1, 1)], ("F",), None, "saw 2 ranks for dp x pp x tp = 2 x 2 x 1"),
        ([(0, 0), (0, 0), (1, 0), (1, 1)], ("F",), None, "rank 1 and rank 0 both stand at dp 0, pp 0"),
        ([(0, 0)], (), None, "for the kinds none"),
        ([(0, 0)], ("F", "B"), (1.0, NAN), "give each kind one above 0"),
        ([(0, 0)], ("F", "B"), (1.0,), "give each kind one above 0"),
    ],
)
def test_layouts_that_cannot_be(
    places: list[tuple[int, int]], kinds: tuple[str, ...], shares: tuple[float, ...] | None, says: str
) -> None:
    with pytest.raises(StragglerError, match=says):
        Layout.of([RankCoords(pp_rank=s, dp_rank=d) for s, d in places], kinds=kinds, kind_shares=shares)


NUMBERS = st.one_of(st.floats(), st.floats(0.5, 2.0), st.integers(-2, 2**70))
COUNTS = st.one_of(st.integers(-3, 40), st.integers())
REPORTS = st.builds(
    IterationObservation,
    iteration=COUNTS,
    time_ratios=st.one_of(st.tuples(st.floats(0.5, 2.0), st.floats(0.5, 2.0)), st.lists(NUMBERS).map(tuple)),
    requested_mhz=st.one_of(st.just((MAX_MHZ, MAX_MHZ)), st.tuples(COUNTS, COUNTS)),
    pipeline_time_s=NUMBERS,
    planned_time_s=NUMBERS,
    tokens=NUMBERS,
    input_wait_s=st.one_of(st.none(), NUMBERS),
)
READINGS = st.builds(
    GpuObservation,
    requested_mhz=COUNTS,
    observed_mhz=COUNTS,
    event_reasons=COUNTS,
    temperature_c=NUMBERS,
    power_w=NUMBERS,
)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(-1, 4), st.one_of(REPORTS, READINGS, st.none()), st.floats(-5, 50)), max_size=60))
def test_whatever_is_told_is_taken_or_refused(
    told: list[tuple[int, IterationObservation | GpuObservation | None, float]],
) -> None:
    detector = Detector(Layout.of([RankCoords(pp_rank=s, dp_rank=d) for d in range(2) for s in range(2)]))
    for rank, seen, now_s in told:
        if seen is None:
            assert all(math.isfinite(verdict.degree.value) for verdict in detector.judge(now_s).verdicts)
            continue
        observe = detector.observe if isinstance(seen, IterationObservation) else detector.observe_gpu
        num_refused = sum(detector.refused.values())
        is_refused = observe(rank, seen, now_s) != ""  # type: ignore[arg-type]
        assert sum(detector.refused.values()) == num_refused + is_refused
