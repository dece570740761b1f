"""What the detector of a job is told of its ranks, and when it is asked again."""

from collections.abc import Mapping

import pytest

from perseus_dist.messages.from_agent import GpuSample, IterationReport, KindTime
from perseus_dist.planner.job.detector_adapter import PROMPT_PERIOD_S, REFUSAL_PERIOD_S, DetectorAdapter
from perseus_dist.planning.schedule.schedule import Schedule, one_f_one_b
from perseus_dist.planning.schedule.schedule_text import parse_schedule
from perseus_dist.straggler.evidence.gpu_evidence import REASON_HW_THERMAL
from perseus_dist.straggler.layout import RankCoords
from perseus_dist.straggler.policy import StragglerPolicy
from perseus_dist.straggler.verdicts.verdict import Verdict

NUM_PIPELINES = 6


def adapter(
    schedule: Schedule | None = None, *, min_history: int = 8, kind_shares: Mapping[str, float] | None = None
) -> DetectorAdapter:
    """Of several pipelines, rank after rank along each; of two stages unless a schedule says otherwise."""
    schedule = schedule or one_f_one_b(pp=2, microbatches=4)
    return DetectorAdapter(
        revision=1,
        profile="profile",
        schedule=schedule,
        places=[
            RankCoords(pp_rank=pp_rank, dp_rank=dp_rank)
            for dp_rank in range(NUM_PIPELINES)
            for pp_rank in range(schedule.num_ranks)
        ],
        kind_shares=kind_shares or {},
        policy=StragglerPolicy(min_history=min_history),
    )


def report(iteration: int, **ratios: float) -> IterationReport:
    return IterationReport(
        iteration=iteration,
        time_s=1.0,
        pipeline_time_s=1.0,
        energy_j=1.0,
        kind_times=tuple(KindTime(kind=kind, time_ratio=ratio, requested_mhz=1000) for kind, ratio in ratios.items()),
    )


def verdicts(watch: DetectorAdapter, slow: Mapping[int, Mapping[str, float]], num: int = 24) -> tuple[Verdict, ...]:
    """After so many iterations, in the later half of which ranks are slow in some kinds."""
    for iteration in range(num):
        for rank in range(len(watch._pp_rank_of)):
            ratios = dict.fromkeys(watch._kinds_of_pp_rank[watch._pp_rank_of[rank]], 1.0)
            if iteration >= num // 2:
                ratios |= slow.get(rank, {})
            watch.observe(
                rank, report(iteration, **{str(kind): ratio for kind, ratio in ratios.items()}), 1.0, iteration
            )
        found = watch.judge(float(iteration)).verdicts
    return found


@pytest.mark.parametrize(("num", "is_ripe"), [(7, False), (8, True)])
def test_silence_means_something_from_as_many_iterations_on_as_a_verdict_takes(num: int, is_ripe: bool) -> None:  # noqa: FBT001
    watch = adapter()
    assert verdicts(watch, {}, num) == ()
    assert watch.is_ripe == is_ripe


def test_a_detector_that_has_found_a_straggler_is_ripe() -> None:
    watch = adapter(min_history=1000)
    watch.resume(1, 0, 1.3, 0.0)
    assert not watch.is_ripe
    assert watch.judge(1.0).verdicts
    assert watch.is_ripe
    watch.judge(500.0)
    assert watch.is_ripe, "for good"


def test_an_iteration_that_lacks_a_kind_of_computation_says_nothing() -> None:
    watch = adapter(min_history=1)
    for rank in range(2 * NUM_PIPELINES):
        watch.observe(rank, report(0, F=1.0), 1.0, 0.0)
    assert watch.judge(0.0).num_iterations == 0
    for rank in range(2 * NUM_PIPELINES):
        watch.observe(rank, report(1, F=1.0, B=1.0), 1.0, 0.0)
    assert watch.judge(1.0).num_iterations == 1
    assert watch.num_refused == 0


@pytest.mark.parametrize(
    ("kind_shares", "share"),
    [({}, 1 / 2), ({"F": 0.5, "B": 0.5}, 1 / 2), ({"F": 3.0, "B": 1.0}, 3 / 4), ({"F": 1.0}, 2 / 3)],
)
def test_a_rank_is_as_slow_as_its_kinds_are_by_their_shares(kind_shares: Mapping[str, float], share: float) -> None:
    """Alike where they are not known."""
    [found] = verdicts(adapter(kind_shares=kind_shares), {4: {"F": 1.4}})
    assert (found.dp_rank, found.pp_rank) == (2, 0)
    assert found.degree.value == pytest.approx(1.4**share, abs=0.005)


def test_a_kind_that_runs_elsewhere_is_as_slow_as_the_mean_of_what_runs_here() -> None:
    """The first stage has weight gradients of its own, the second none."""
    schedule = parse_schedule("0F0 0I0 0W0\n1F0 1B0")
    kinds = [{str(kind) for kind in of_rank} for of_rank in adapter(schedule)._kinds_of_pp_rank]
    assert kinds == [{"F", "I", "W"}, {"F", "B"}]
    [found] = verdicts(adapter(schedule), {5: {"F": 1.2, "B": 1.4}})
    assert (found.dp_rank, found.pp_rank) == (2, 1)
    assert found.degree.value == pytest.approx((1.2 + 1.4 + 2 * 1.3) / 4, abs=0.015)


def test_what_is_refused_is_counted_and_told_once_a_minute_for_each_reason() -> None:
    watch = adapter()
    assert watch.take_refusals(0.0) == []
    for _ in range(2):
        watch.observe(0, report(0, F=1e9, B=1.0), 1.0, 0.0)
    assert watch.num_refused == 2
    [said] = watch.take_refusals(0.0)
    assert said.startswith("a report is not judged (2 so far): ")
    assert watch.take_refusals(0.0) == []
    watch.observe(0, report(0, F=1e9, B=1.0), 1.0, 1.0)
    assert watch.take_refusals(REFUSAL_PERIOD_S - 0.01) == []
    watch.note_alive(99, 2.0)
    assert len(watch.take_refusals(2.0)) == 1, "another reason"
    [said] = watch.take_refusals(REFUSAL_PERIOD_S)
    assert said.startswith("a report is not judged (3 so far): ")
    assert watch.take_refusals(1e9) == []
    assert watch.num_refused == 4


def test_throttled_gpus_are_judged_at_once_but_no_more_often_than_every_twentieth_of_a_second() -> None:
    watch = adapter()
    assert not watch.has_urgent_news(0.0)
    for at_s in range(4):
        sample = GpuSample(requested_mhz=1400, clock_mhz=900, event_reasons=REASON_HW_THERMAL)
        watch.observe_gpu(0, sample, at_s, float(at_s))
    assert watch.has_urgent_news(3.0)
    watch.judge(3.0)
    assert not watch.has_urgent_news(3.0), "it has been judged"
    watch.observe_gpu(0, GpuSample(requested_mhz=1400, clock_mhz=1400), 4, 3.01)
    for late_s in (3.02, 3.03):
        watch.observe_gpu(0, GpuSample(requested_mhz=1400, clock_mhz=1400), 4, late_s)
    assert not watch.has_urgent_news(3.0 + PROMPT_PERIOD_S - 0.001)
    assert watch.has_urgent_news(3.0 + PROMPT_PERIOD_S)


def test_a_pipeline_on_another_table_is_looked_at_anew() -> None:
    watch = adapter()
    verdicts(watch, {4: {"F": 1.4, "B": 1.4}})
    watch.change_table(2, 24)
    assert watch.revision == 2
    [found] = watch.judge(24.0).verdicts
    assert found.pipeline_degree is None


def test_a_rank_that_takes_many_times_as_long_is_believed_in_kinds_that_run_elsewhere_too() -> None:
    watch = adapter(parse_schedule("0F0 0I0 0W0\n1F0 1B0"))
    watch.observe(1, report(0, F=60.0, B=90.0), 1.0, 0.0)
    watch.observe(0, report(0, F=30.0, I=60.0, W=90.0), 1.0, 0.0)
    assert watch.num_refused == 0
