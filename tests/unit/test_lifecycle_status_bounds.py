"""A job's status at its limits: how far its phase is, and what is shown of its pipelines and stragglers."""

import math
from dataclasses import replace

import pytest
from fleets import fleet_enforcing, fleet_profiling
from test_lifecycle_straggler_plans_bounds import slow, straggling, times
from test_planner_lifecycle import summary
from test_sweeping_samples_bounds import begun

from perseus_dist.messages.terms import NO_ITERATION, NO_POINT
from perseus_dist.planner.job.facts.decisions import StragglerKnown
from perseus_dist.planner.job.facts.runs import JobRegistered
from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.planner.job.state.planning import JobPlan
from perseus_dist.planner.job.state.profiling import ActiveSweep
from perseus_dist.planner.lifecycle.status.job_status import job_status
from perseus_dist.planner.lifecycle.status.phase_progress import Progress, _of_iterations, phase_progress


def job_in(phase: Phase, *, iteration: int = NO_ITERATION, time_s: float | None = None) -> Job:
    job = Job(job_id="job", policy=Policy(), phase=phase)
    job.progress.iteration = iteration
    if time_s is not None:
        job.progress.recent_times_s.append(time_s)
    return job


# ---- the phase -------------------------------------------------------------------------------------------------------


def test_a_job_that_registers_tells_how_many_ranks_are_there_once_it_has_any() -> None:
    job = job_in(Phase.REGISTERING)
    assert phase_progress(job) == Progress(text="")
    job.spec = JobRegistered(schedule_digest="", pp_size=2, dp_size=2, tp_size=1, token_sha256="")
    job.members.rank_of_stream = {7: 0}
    assert phase_progress(job) == Progress(text="1 of 4 ranks attached", share=0.25)


@pytest.mark.parametrize(
    ("iteration", "done", "share", "left_s"),
    [
        (8, 0, 0.0, 20.0),
        (10, 0, 0.0, 16.0),
        (12, 2, 0.25, 12.0),
        (17, 7, 0.875, 2.0),
        (18, 8, 1.0, None),
        (20, 8, 1.0, None),
    ],
)
def test_a_baseline_is_told_by_the_iterations_that_it_still_needs(
    iteration: int, done: int, share: float, left_s: float | None
) -> None:
    """3 of warm-up and 5 more, from iteration 10 on, of 2 s."""
    job = job_in(Phase.WARMING_UP, iteration=iteration, time_s=2.0)
    assert phase_progress(job).share is None
    job.progress.began_at_iteration = 10
    text = f"baseline, iteration {done} of 8"
    assert phase_progress(job) == Progress(text=text, share=share, left_s=left_s)
    job.progress.recent_times_s.clear()
    assert phase_progress(job) == Progress(text=text, share=share)
    assert _of_iterations(job, 10, 0, "nothing") == Progress(text="nothing, iteration 0 of 0")


@pytest.mark.parametrize("phase", [Phase.PROFILING, Phase.REPROFILING])
def test_a_sweep_is_told_by_its_steps_unless_it_waits(phase: Phase) -> None:
    job = job_in(phase, iteration=16, time_s=2.0)
    assert phase_progress(job) == Progress(text="iteration 16")
    ordered = begun(3, clocks_mhz=(1400, 1200, 1000), of_ranks=((1400, 1000), (1400, 1200)))
    job.profiling.sweep = sweep = ActiveSweep(ordered=ordered, missing_mhz={}, attempts=1)
    assert phase_progress(job) == Progress(text="sweep of 3 clocks, iteration 6 of 6", share=1.0)
    job.progress.iteration = 13
    assert phase_progress(job) == Progress(text="sweep of 3 clocks, iteration 3 of 6", share=0.5, left_s=6.0)
    sweep.is_paused = True
    assert phase_progress(job) == Progress(text="sweep of 3 clocks waits for ranks that are away")


@pytest.mark.parametrize(
    ("began_at_s", "expected_at_s", "progress"),
    [
        (-math.inf, 130.0, Progress(text="planning")),
        (90.0, None, Progress(text="planning, 10 s so far")),
        (90.0, 100.0, Progress(text="planning, 10 s so far")),
        (90.0, 130.0, Progress(text="planning, 10 s so far", share=0.25, left_s=30.0)),
    ],
)
def test_planning_tells_what_is_left_while_that_is_known_and_not_over(
    began_at_s: float, expected_at_s: float | None, progress: Progress
) -> None:
    job = job_in(Phase.PLANNING)
    job.now_s, job.planning.transfers_at_s, job.planning.expected_at_s = 100.0, began_at_s, expected_at_s
    assert phase_progress(job) == progress


@pytest.mark.parametrize(
    ("pending", "expected_at_s", "text"),
    [
        (5, 101.0, "iteration 1,600, the whole frontier in about 1 s"),
        (5, 100.0, "iteration 1,600"),
        (5, None, "iteration 1,600"),
        (None, 130.0, "iteration 1,600"),
    ],
)
def test_the_whole_frontier_is_told_of_while_it_is_planned_beside_a_first_plan(
    pending: int | None, expected_at_s: float | None, text: str
) -> None:
    job = job_in(Phase.ENFORCING, iteration=1600)
    job.plan = JobPlan(revision=1, summary=summary(), tables=(), profile_csv=b"", is_first=True)
    job.now_s, job.planning.pending, job.planning.expected_at_s = 100.0, pending, expected_at_s
    assert phase_progress(job) == Progress(text=text)


# ---- the job ---------------------------------------------------------------------------------------------------------


def test_a_job_before_its_plan_has_figures_of_its_baseline_and_its_sweep_alone() -> None:
    job = fleet_profiling().job
    status = job_status(job)
    (pipeline,) = status.pipelines
    assert (status.table_revision, status.switch_revision, status.fastest_s, status.t_star_s) == (0, 0, 0.0, 0.0)
    assert (status.predicted_saving_low, status.predicted_saving_high, status.refused_reports) == (0.0, 0.0, 0)
    assert (pipeline.table_revision, pipeline.point, pipeline.planned_time_s, pipeline.planned_energy_j) == (
        0,
        -1,
        0,
        0,
    )
    assert not pipeline.is_waiting
    assert (pipeline.time_s, pipeline.pipeline_time_s, pipeline.energy_j) == pytest.approx((1.0, 0.9, 100.0))
    assert job.progress.pipelines[0].latest is not None
    job.progress.pipelines[0].latest.energy_j = None
    assert job_status(job).pipelines[0].energy_j == 0.0
    job.progress.pipelines[0].latest = None
    assert job_status(job).pipelines[0].energy_j == job_status(job).pipelines[0].pipeline_time_s == 0.0
    assert status.baseline.num_iterations == 5
    job.measured.baseline = None
    assert job_status(job).baseline.num_iterations == 0
    job.phase, job.planning.transfers_at_s, job.planning.expected_at_s = Phase.PLANNING, job.now_s, job.now_s + 1e6
    assert job_status(job).phase_left_s == 86_400.0
    job.planning.expected_at_s = None
    assert (job_status(job).phase_left_s, job_status(job).progress_share) == (0.0, 0.0)


def test_a_pipelines_figures_are_of_the_plan_that_it_follows() -> None:
    job = straggling(own=(times(1.2, pp_rank=1),))
    job.detection.straggler_plans[1] = replace(job.detection.straggler_plans[1], summary=summary(fastest_s=1.5))
    assert job.switch is not None
    for points, own_revisions, planned, is_waiting in (
        ((0, 0), (), ((1.0, 800e-6), (1.0, 800e-6)), (False, False)),
        ((1, 4), (), ((1.1, 700e-6), (1.0, 1000e-6)), (True, False)),
        ((1, 0), (0, 5), ((1.1, 700e-6), (1.5, 800e-6)), (True, False)),
        ((0, 1), (0, 5), ((1.0, 800e-6), (1.65, 700e-6)), (False, True)),
        ((NO_POINT, 1), (0, 5), ((0.0, 0.0), (1.65, 700e-6)), (False, True)),
    ):
        job.enforcement.switch = replace(job.switch, points=points, own_revisions=own_revisions)
        pipelines = job_status(job).pipelines
        for one, (planned_s, planned_j) in zip(pipelines, planned, strict=True):
            assert (one.planned_time_s, one.planned_energy_j) == pytest.approx((planned_s, planned_j))
        assert tuple(one.is_waiting for one in pipelines) == is_waiting
        assert [one.table_revision for one in pipelines] == [1, 5 if own_revisions else 1]
    assert (job_status(job).fastest_s, job_status(job).t_star_s) == (1.0, 1.2)
    job.plan = None
    assert [(one.planned_time_s, one.is_waiting) for one in job_status(job).pipelines] == [(0.0, False)] * 2


def test_the_worst_verdicts_are_shown_with_their_age_and_whether_operators_say_otherwise() -> None:
    job = fleet_enforcing(dp=2).job
    job.detection.verdicts = tuple(slow(rank % 4, 1.0 + rank / 100) for rank in range(257))
    job.stragglers["cooling"] = StragglerKnown(straggler_id="cooling", degree=1.5, dp_rank=1)
    job.now_s = 5.0
    verdicts = job_status(job).verdicts
    assert [one.degree for one in verdicts] == [1.0 + rank / 100 for rank in range(256, 0, -1)]
    assert {one.age_s for one in verdicts} == {4.0}
    assert [one.is_muted for one in verdicts[:4]] == [False, True, True, False]
    job.now_s = 0.5
    assert job_status(job).verdicts[0].age_s == 0.0
