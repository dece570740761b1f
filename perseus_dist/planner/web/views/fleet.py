"""Rows of the fleet: a job in one line."""

from typing import Any

from perseus_dist.messages.job_status import JobStatus
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.lifecycle.status.phase_progress import phase_progress
from perseus_dist.planner.worker.shared.shared_planning import SharedPlanning

MAX_ROWS = 500


def fleet_row(job: Job, status: JobStatus) -> dict[str, Any]:
    """A job's row, for its template."""
    time_s = iteration_time_s(status)
    acted_upon = [verdict for verdict in status.verdicts if verdict.is_acted_upon and not verdict.is_muted]
    reported = [known for known in status.stragglers if known.degree > 1]
    degrees = [verdict.degree for verdict in acted_upon] + [known.degree for known in reported]
    return {
        "status": status,
        "phase": status.phase.replace("_", " "),
        "progress": phase_progress(job),
        "attached": job.num_attached,
        "time_s": time_s,
        "against_baseline": time_s / status.baseline.time_s - 1 if time_s and status.baseline.time_s else None,
        "num_stragglers": len(degrees),
        "worst": max(degrees, default=1.0),
        "has_trouble": bool(status.troubles),
        "slowed": slowed_words(job),
    }


def planning_words(shared: SharedPlanning | None) -> str:
    """A sentence on the queue that planners on the database share; empty for a planner that plans alone."""
    if shared is None:
        return ""
    if shared.queue is None:
        return "Planning queue of the database: not known now."
    return f"Planning queue of the database: {shared.queue.sentence}."


def slowed_words(job: Job) -> str:
    """Words for the policy that makes the job slower than its target; empty where none does."""
    pace = job.chosen_pace
    if pace is None:
        return ""
    policy = f"budget {pace.budget}" if pace.budget else f"price policy {pace.price}"
    return f"\N{MULTIPLICATION SIGN} {pace.slowdown:.3f} by {policy}"


def iteration_time_s(status: JobStatus) -> float:
    """[s] of an iteration under the plan in force, else of the latest; 0 where it is not known."""
    return status.enforced.time_s or max((pipeline.time_s for pipeline in status.pipelines), default=0.0)
