"""Stragglers in the planner's metrics: what is told of a job, and how many series that takes at most."""

from perseus_dist.planner.job.facts import SwitchDecided
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.planner.job.state.progress import Pipeline
from perseus_dist.planner.runtime.metrics_stragglers import MAX_PIPELINES, StragglerMetrics
from perseus_dist.straggler.verdicts.causes import Cause
from perseus_dist.straggler.verdicts.verdict import Degree, Verdict


def verdict(rank: int, degree: float, *, is_acted_upon: bool) -> Verdict:
    return Verdict(
        rank=rank,
        pp_rank=0,
        dp_rank=rank,
        degree=Degree(value=degree, low=degree, high=degree),
        pipeline_degree=None,
        cause=Cause.THERMAL,
        since_s=1.0,
        is_whole_pipeline=False,
        is_predicted=False,
        is_flapping=not is_acted_upon,
        is_acted_upon=is_acted_upon,
        at_s=2.0,
    )


def samples(*jobs: Job) -> dict[tuple[str, ...], float]:
    metrics = StragglerMetrics()
    for job in jobs:
        metrics.add(job)
    return {
        (sample.name, *sample.labels.values()): sample.value for family in metrics.families for sample in family.samples
    }


def test_a_job_with_stragglers() -> None:
    job = Job(job_id="a", policy=Policy())
    job.progress.pipelines = [Pipeline() for _ in range(2)]
    job.detection.verdicts = (verdict(0, 1.2, is_acted_upon=True), verdict(1, 1.5, is_acted_upon=False))
    job.enforcement.switch = SwitchDecided(
        table_revision=1, switch_revision=1, effective_iteration=1, points=(0, 3), reason="", t_prime_s=1.25
    )
    job.measured.saving.counted_j, job.num_refused_reports = 700.0, 3
    job.history.num_verdicts[Cause.THERMAL] = 2
    found = samples(job)
    assert found["perseus_job_stragglers", "a"] == 1
    assert found["perseus_job_straggler_degree", "a"] == 1.2
    assert found["perseus_job_t_prime_seconds", "a"] == 1.25
    assert found["perseus_job_saved_joules_total", "a"] == 700
    assert found["perseus_job_straggler_verdicts_total", "a", "thermal"] == 2
    assert found["perseus_job_straggler_verdicts_total", "a", "unknown"] == 0
    assert found["perseus_job_refused_reports_total", "a"] == 3
    assert found["perseus_job_pipeline_seconds", "a", "1"] == 0


def test_a_job_without_a_plan_and_a_large_one() -> None:
    new, large = Job(job_id="new", policy=Policy()), Job(job_id="large", policy=Policy())
    large.progress.pipelines = [Pipeline() for _ in range(MAX_PIPELINES + 1)]
    found = samples(new, large)
    assert found["perseus_job_straggler_degree", "new"] == 1
    assert found["perseus_job_t_prime_seconds", "large"] == 0
    assert len([key for key in found if key[1] == "large"]) < 20
