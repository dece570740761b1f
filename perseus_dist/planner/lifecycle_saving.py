"""What a job has saved, made durable: now and then while it runs, and at its end."""

from perseus_dist.planner.job import Job
from perseus_dist.planner.lifecycle_events import Effect, Persist
from perseus_dist.planner.lifecycle_facts import SavingMeasured


def keep_saving(job: Job, now_s: float, *, is_over: bool = False) -> list[Effect]:
    """Store the joules saved if they have changed: at intervals of the policy, and at once when the job is over."""
    is_due = is_over or now_s >= job.saving_stored_at_s + job.policy.saving_interval_s
    if job.saved_j == job.stored_saved_j or not is_due:
        return []
    job.stored_saved_j, job.saving_stored_at_s = job.saved_j, now_s
    return [Persist(facts=(SavingMeasured(saved_j=job.saved_j),))]
