"""Telemetry of ranks, once a second: iterations put together from all ranks, and the state of each GPU.

This is the hot path: a thousand ranks, each second, in one process. A message costs a few dictionary look-ups.
"""

from perseus_dist.messages.from_agent import IterationReport, Telemetry
from perseus_dist.messages.terms import NO_POINT
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.job.state.membership import RankState
from perseus_dist.planner.job.state.progress import MIXED, Iteration
from perseus_dist.planner.lifecycle.baseline import count_iteration
from perseus_dist.planner.lifecycle.enforcement.promise import guard_iteration
from perseus_dist.planner.lifecycle.stragglers.stragglers import observe
from perseus_dist.planner.lifecycle.sweeping.rounds import note_reading

NUM_UNFINISHED = 128  # iterations that are kept for ranks that have not reported them


def handle_telemetry(job: Job, state: RankState, message: Telemetry, now_s: float) -> bool:
    """Take note of a report.

    Returns:
        Whether something changed that decisions hang on: an iteration is whole, or what the rank can do. A report that
        comes again, or out of order, changes nothing but a count.
    """
    if message.sequence <= state.telemetry_sequence:
        job.num_refused_reports += 1
        return False
    if state.telemetry_sequence:
        state.lost_messages += max(0, message.sequence - state.telemetry_sequence - 1)
    state.telemetry_sequence, state.has_reported = message.sequence, True
    state.gpu_sample = message.gpu
    if message.gpu.clock_mhz:
        state.gpu_reading = message.gpu
        note_reading(job.profiling, state.rank.rank, message.gpu)
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
    newest = message.iterations[-1].iteration + 1 if message.iterations else message.iteration
    state.iteration = max(state.iteration, message.iteration, newest)
    if state.is_left_over and job.spec is not None and state.run_id != job.spec.run_id:
        return matters
    observe(job, state, message, now_s)
    is_known = _record_iterations(job, state, message, now_s)
    if message.iteration > job.progress.iteration:
        job.progress.iteration, job.progress.iteration_at_s = message.iteration, now_s
    return is_known or matters


def _record_iterations(job: Job, state: RankState, message: Telemetry, now_s: float) -> bool:
    """Put iterations together; whether one is known, of all ranks or as far as can be expected.

    Those that an agent did not see live say how far training is, and nothing else.
    """
    is_known = False
    dp_rank = state.rank.dp_rank
    pipeline, switch = job.progress.pipelines[dp_rank], job.switch
    table_revision, point = (switch.revision_of(dp_rank), switch.points[dp_rank]) if switch else (0, NO_POINT)
    for report in message.iterations:
        number = report.iteration
        is_live = report.is_live and report.time_s > 0
        if number >= pipeline.iteration:
            pipeline.iteration = number
            pipeline.time_s = report.time_s if is_live else pipeline.time_s
        if number >= job.progress.iteration:
            job.progress.iteration, job.progress.iteration_at_s = number + 1, now_s
            if is_live:
                job.progress.recent_times_s.append(report.time_s)
        is_planned = report.point == point and report.table_revision == table_revision
        if is_live:
            is_known |= guard_iteration(job, state, report, now_s, is_planned=is_planned)
        of_pipeline = _join(
            pipeline.unfinished,
            number,
            report,
            is_released=report.point == NO_POINT,
            is_planned=report.point != NO_POINT,
            dp_rank=dp_rank,
            followed=(report.table_revision, report.point),
            is_live=is_live,
        )
        if of_pipeline.num_parts < job.ranks_per_pipeline:
            continue
        del pipeline.unfinished[number]
        if of_pipeline.is_live:
            pipeline.latest = of_pipeline
            pipeline.recent_times_s.append(of_pipeline.pipeline_time_s)
        of_job = _join(
            job.progress.unfinished,
            number,
            of_pipeline,
            is_released=of_pipeline.is_released,
            is_planned=of_pipeline.is_planned,
            dp_rank=dp_rank,
            followed=of_pipeline.followed[dp_rank],
            is_live=of_pipeline.is_live,
        )
        if of_job.num_parts == len(job.progress.pipelines):
            del job.progress.unfinished[number]
            job.num_changes += 1
            count_iteration(job, of_job)
            if of_job.is_live:
                job.history.count_iteration(of_job.time_s, of_job.energy_j)
            is_known = True
    return is_known


def _join(
    unfinished: dict[int, Iteration],
    number: int,
    part: IterationReport | Iteration,
    *,
    is_released: bool,
    is_planned: bool,
    dp_rank: int,
    followed: tuple[int, int],
    is_live: bool,
) -> Iteration:
    """Add a part to an iteration; the oldest goes where too many wait for ranks that never report them."""
    iteration = unfinished.get(number)
    if iteration is None:
        if len(unfinished) >= NUM_UNFINISHED:
            del unfinished[next(iter(unfinished))]
        iteration = unfinished[number] = Iteration(
            number=number,
            num_parts=1,
            time_s=part.time_s,
            pipeline_time_s=part.pipeline_time_s,
            energy_j=part.energy_j,
            is_released=is_released,
            is_planned=is_planned,
            followed={dp_rank: followed},
            is_live=is_live,
        )
        return iteration
    iteration.num_parts += 1
    if part.time_s > iteration.time_s:
        iteration.time_s = part.time_s
    if part.pipeline_time_s > iteration.pipeline_time_s:
        iteration.pipeline_time_s = part.pipeline_time_s
    are_known = iteration.energy_j is not None and part.energy_j is not None
    iteration.energy_j = (iteration.energy_j or 0.0) + (part.energy_j or 0.0) if are_known else None
    iteration.is_released &= is_released
    iteration.is_planned &= is_planned
    if iteration.followed.setdefault(dp_rank, followed) != followed:
        iteration.followed[dp_rank] = MIXED
    iteration.is_live &= is_live
    return iteration
