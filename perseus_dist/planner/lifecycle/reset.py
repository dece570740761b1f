"""State that a job drops together, where a run begins or a measurement does not hold any more.

Each field of ``Job`` that must not outlive its plan, its profile or its run stands in one of these lists, beside the
facts that tell of them.
"""

from collections.abc import Iterable
from dataclasses import fields, replace

from perseus_dist.messages.from_planner import StopSweep
from perseus_dist.planner.job.facts import JobRegistered
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.lifecycle.enforcement.switching import effective_iteration, release_all
from perseus_dist.planner.lifecycle.events import CancelPlanning, Effect, Persist, Send

OF_A_PLAN = (
    "plan",
    "switch",
    "straggler_plans",
    "own_requests",
    "planning_attempts",
    "plan_again_at_s",
    "refine_at_s",
    "drifts",
    "drift_since_s",
    "watch",
    "verdicts",
    "keeps_switch",
    "guard",
    "num_warm",
    "baseline_iterations",
    "baseline",
    "probed",
    "enforced",
    "saving",
    "self_check",
    "stored_saved_j",
)
OF_A_PROFILE = ("sweep", "sweeps", "ended_series", "samples", "is_unplannable", "reprofiled_at_s")
OF_A_RUN = (
    *(name for name in OF_A_PLAN if name != "plan"),
    "unfinished",
    "recent_times_s",
    "began_at_iteration",
    "began_at_s",
    "released_number",
    "reprofiled_at_s",
    "stale_rank",
)
FACTS_OF_A_RUN = ("baseline", "own/", "switch", "saved", "over")
FACTS_OF_A_PROFILE = ("sweep/", "ended/", "samples/")


def cancel_planning(job: Job) -> list[Effect]:
    """Give up the plan that is being made."""
    if job.planning is None:
        return []
    request_id, job.planning = job.planning, None
    return [CancelPlanning(request_id=request_id)]


def release(job: Job, now_s: float) -> list[Effect]:
    """Have all attached ranks run without a plan, and count what they may hold of it as used up."""
    effects = release_all(job, now_s) if job.rank_of_stream else []
    job.held_revision = max(job.held_revision, job.given_revision, job.plan.revision if job.plan else 0)
    if job.switch is not None:
        job.held_switch_revision = max(job.held_switch_revision, job.switch.switch_revision)
    job.switch = None
    return effects


def drop_profile(job: Job, now_s: float) -> list[Effect]:
    """Forget all samples, and stop the sweep that is under way; ``FACTS_OF_A_PROFILE`` are left to the caller."""
    effects: list[Effect] = []
    if job.sweep is not None:
        stop = StopSweep(sweep_id=job.sweep_id, first_iteration=effective_iteration(job, now_s))
        effects = [Send(stream=stream, message=stop) for stream in job.rank_of_stream]
    reset(job, OF_A_PROFILE)
    for state in job.ranks.values():
        state.has_profile = False  # what it has sent is gone, and does not come again
    return effects


def drop_kept_profile(job: Job, now_s: float) -> list[Effect]:
    """The profile that was kept from another schedule does not fit this one."""
    effects = drop_profile(job, now_s)
    return [*effects, Persist(facts=(spend(job, keeps_profile=False),), drop=FACTS_OF_A_PROFILE)]


def spend(
    job: Job, *, run_id: str | None = None, keeps_profile: bool | None = None, is_anew: bool | None = None
) -> JobRegistered:
    """The job's registration, with all that is used up, and these changes."""
    spec = job.spec
    assert spec is not None
    job.spec = replace(
        spec,
        held_revision=job.held_revision,
        held_switch_revision=job.held_switch_revision,
        last_sweep_id=job.sweep_id,
        run_id=spec.run_id if run_id is None else run_id,
        keeps_profile=spec.keeps_profile if keeps_profile is None else keeps_profile,
        is_anew=spec.is_anew if is_anew is None else is_anew,
    )
    return job.spec


def reset(job: Job, names: Iterable[str]) -> None:
    """Give fields the values of a new job."""
    fresh = Job(job_id=job.job_id, policy=job.policy)
    known = {field.name for field in fields(Job)}
    for name in names:
        assert name in known
        setattr(job, name, getattr(fresh, name))
