"""Progress of a job in its phase, with the time that is left where that is known."""

import math
from dataclasses import dataclass
from statistics import median

from perseus_dist.messages.progress_text import format_span
from perseus_dist.messages.terms import NO_ITERATION
from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.lifecycle.baseline import baseline_length


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Of a phase.

    Attributes:
        text: Where the phase stands.
        share: Of the phase that is done; None where it is not known.
        left_s: [s] until the phase is over; None where it is not known.
    """

    text: str
    share: float | None = None
    left_s: float | None = None


def phase_progress(job: Job) -> Progress:
    """A job's progress, by iterations that were reported and those that the phase still needs."""
    now = job.progress.iteration
    match job.phase:
        case Phase.REGISTERING if job.num_ranks:
            return Progress(
                text=f"{job.num_attached} of {job.num_ranks} ranks attached", share=job.num_attached / job.num_ranks
            )
        case Phase.WARMING_UP if job.progress.began_at_iteration is not None:
            needed = job.policy.num_warmup_iterations + baseline_length(job)
            return _of_iterations(job, job.progress.began_at_iteration, needed, "baseline")
        case Phase.PROFILING | Phase.REPROFILING if (sweep := job.profiling.sweep) is not None:
            ordered = sweep.ordered
            needed = ordered.iterations_per_clock * ordered.num_steps
            if sweep.is_paused:
                return Progress(text=f"sweep of {len(ordered.clocks_mhz)} clocks waits for ranks that are away")
            return _of_iterations(job, ordered.first_iteration, needed, f"sweep of {len(ordered.clocks_mhz)} clocks")
        case Phase.PLANNING:
            return _of_planning(job)
        case _:
            text = "" if now == NO_ITERATION else f"iteration {now:,}"
            return Progress(text=text + _of_whole_frontier(job))


def _of_planning(job: Job) -> Progress:
    """By what planning has taken for other pipelines of the size; less than nothing is not left."""
    spent_s, expected_at_s = job.now_s - job.planning.transfers_at_s, job.planning.expected_at_s
    if not math.isfinite(spent_s):
        return Progress(text="planning")
    text = f"planning, {spent_s:.0f} s so far"
    if expected_at_s is None or expected_at_s <= job.now_s:
        return Progress(text=text)
    left_s = expected_at_s - job.now_s
    return Progress(text=text, share=spent_s / (spent_s + left_s), left_s=left_s)


def _of_whole_frontier(job: Job) -> str:
    """Where one is being planned beside the plan in force, and about when it will be there."""
    expected_at_s = job.planning.expected_at_s
    if not job.is_refining or expected_at_s is None or expected_at_s <= job.now_s:
        return ""
    return f", the whole frontier in about {format_span(expected_at_s - job.now_s)}"


def _of_iterations(job: Job, first: int, needed: int, of: str) -> Progress:
    done = min(needed, max(0, job.progress.iteration - first))
    times_s = job.progress.recent_times_s
    left = max(0, first + needed - job.progress.iteration)
    return Progress(
        text=f"{of}, iteration {done} of {needed}",
        share=done / needed if needed else None,
        left_s=left * median(times_s) if times_s and left else None,
    )
