"""What ranks report once a second: iterations put together from all ranks, and the state of each GPU.

This is the hot path: a thousand ranks, each second, in one process. A message costs a few dictionary look-ups.
"""

from perseus_dist.messages import NO_POINT, Telemetry
from perseus_dist.planner.job import Iteration, Job, RankState
from perseus_dist.planner.lifecycle_facts import BaselineMeasured
from perseus_dist.planner.lifecycle_guard import guard_iteration
from perseus_dist.planner.lifecycle_judge import observe
from perseus_dist.planner.measured_iterations import measured_iterations
from perseus_dist.units import UW_PER_W

NUM_UNFINISHED = 128  # iterations that are kept for ranks that have not reported them


def take_telemetry(job: Job, state: RankState, message: Telemetry, now_s: float) -> bool:
    """Take note of a report.

    Returns:
        Whether something changed that decisions hang on: an iteration is whole, or what the rank can do. A report that
        is told again, or out of order, changes nothing but a count.
    """
    if message.sequence <= state.telemetry_sequence:
        job.num_refused_reports += 1
        return False
    if state.telemetry_sequence:
        state.lost_messages += max(0, message.sequence - state.telemetry_sequence - 1)
    state.telemetry_sequence = message.sequence
    state.gpu_sample = message.gpu
    if (message.lost_boundaries, message.missed_clocks) != (state.lost_boundaries, state.missed_clocks):
        state.lost_boundaries, state.missed_clocks = message.lost_boundaries, message.missed_clocks
        job.num_changes += 1
    state.lost_reports = message.lost_reports
    state.clock_changes = message.clock_changes
    matters = False
    if message.control != state.control or message.trouble != state.trouble:
        state.control, state.trouble = message.control, message.trouble
        job.num_changes += 1
        matters = True
    observe(job, state, message, now_s)
    is_known = _take_iterations(job, state, message, now_s)
    if message.iteration > job.iteration:
        job.iteration, job.iteration_at_s = message.iteration, now_s
    return is_known or matters


def _take_iterations(job: Job, state: RankState, message: Telemetry, now_s: float) -> bool:
    """Put iterations together; whether one is known, of all ranks or as far as can be expected."""
    is_known = False
    dp_rank = state.rank.dp_rank
    pipeline, switch = job.pipelines[dp_rank], job.switch
    table_revision, point = (switch.revision_of(dp_rank), switch.points[dp_rank]) if switch else (0, NO_POINT)
    for report in message.iterations:
        number = report.iteration
        if number >= pipeline.iteration:
            pipeline.iteration, pipeline.time_s = number, report.time_s
        if number >= job.iteration:
            job.iteration, job.iteration_at_s = number + 1, now_s
            job.recent_times_s.append(report.time_s)
        is_enforced = report.point == point and report.table_revision == table_revision
        is_known |= guard_iteration(job, state, report, now_s, is_planned=is_enforced)
        of_pipeline = _join(
            pipeline.unfinished,
            number,
            time_s=report.time_s,
            pipeline_time_s=report.pipeline_time_s,
            energy_j=report.energy_j,
            is_released=report.point == NO_POINT,
            is_enforced=is_enforced,
        )
        if of_pipeline.num_parts < job.ranks_per_pipeline:
            continue
        del pipeline.unfinished[number]
        pipeline.latest = of_pipeline
        pipeline.recent_times_s.append(of_pipeline.pipeline_time_s)
        of_job = _join(
            job.unfinished,
            number,
            time_s=of_pipeline.time_s,
            pipeline_time_s=of_pipeline.pipeline_time_s,
            energy_j=of_pipeline.energy_j,
            is_released=of_pipeline.is_released,
            is_enforced=of_pipeline.is_enforced,
        )
        if of_job.num_parts == len(job.pipelines):
            del job.unfinished[number]
            _take_whole(job, of_job)
            is_known = True
    return is_known


def _join(
    unfinished: dict[int, Iteration],
    number: int,
    *,
    time_s: float,
    pipeline_time_s: float,
    energy_j: float | None,
    is_released: bool,
    is_enforced: bool,
) -> Iteration:
    """Add a part to an iteration; the oldest goes where too many wait for ranks that never report them."""
    iteration = unfinished.get(number)
    if iteration is None:
        if len(unfinished) >= NUM_UNFINISHED:
            del unfinished[next(iter(unfinished))]
        iteration = unfinished[number] = Iteration(
            number, 1, time_s, pipeline_time_s, energy_j, is_released, is_enforced
        )
        return iteration
    iteration.num_parts += 1
    iteration.time_s = max(iteration.time_s, time_s)
    iteration.pipeline_time_s = max(iteration.pipeline_time_s, pipeline_time_s)
    iteration.energy_j = None if iteration.energy_j is None or energy_j is None else iteration.energy_j + energy_j
    iteration.is_released &= is_released
    iteration.is_enforced &= is_enforced
    return iteration


def _take_whole(job: Job, iteration: Iteration) -> None:
    """An iteration that every rank has reported: warm-up, baseline, or one under the plan in force."""
    job.num_changes += 1
    if iteration.is_enforced and job.switch is not None:
        job.enforced.append(iteration)
        if not iteration.is_released:
            job.saved_j += _saved_j(job, iteration)
    if job.baseline is None and not job.sweeps and iteration.is_released:
        job.num_warm += 1
        if job.num_warm > job.policy.num_warmup_iterations:
            job.baseline_iterations.append(iteration)


def _saved_j(job: Job, iteration: Iteration) -> float:
    """[J] that an iteration under a plan drew less than the baseline, which would have waited for the same straggler.

    What was slow because the target, or an operator, asks for it would not have been at full clocks.
    """
    baseline, energy_j = job.baseline, iteration.energy_j
    if job.plan is None or job.switch is None or baseline is None or not baseline.energy_j or energy_j is None:
        return 0.0
    is_waiting = job.switch.t_prime_s > 0 and not job.stragglers
    free_s = iteration.time_s if is_waiting else min(iteration.time_s, job.guard.guard.reference_s or baseline.time_s)
    waiting_w = len(job.pipelines) * job.plan.summary.total_blocking_uw / UW_PER_W
    return baseline.energy_j + waiting_w * max(0.0, free_s - baseline.time_s) - energy_j


def measured_baseline(job: Job) -> BaselineMeasured | None:
    """The baseline as soon as enough iterations are there: medians, because one slow iteration says nothing."""
    if len(job.baseline_iterations) < job.policy.num_baseline_iterations:
        return None
    measured = measured_iterations(job.baseline_iterations)
    return BaselineMeasured(
        num_iterations=measured.num_iterations,
        time_s=measured.time_s,
        time_spread_s=measured.time_spread_s,
        energy_j=measured.energy_j,
        energy_spread_j=measured.energy_spread_j,
    )
