"""Parts of a job that begin anew together, where a run begins or a measurement does not hold any more.

The prefixes of the facts that tell of them stand beside.
"""

from dataclasses import replace

from perseus_dist.messages.from_planner import StopSweep
from perseus_dist.planner.job.facts.runs import JobRegistered
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.job.state.detection import Detection
from perseus_dist.planner.job.state.enforcement import Enforcement
from perseus_dist.planner.job.state.measured import Measured
from perseus_dist.planner.job.state.planning import Planning
from perseus_dist.planner.lifecycle.enforcement.switching import effective_iteration, release_all
from perseus_dist.planner.lifecycle.events import CancelPlanning, Effect, Persist, Send

FACTS_OF_A_RUN = ("baseline", "own/", "switch", "saved", "over")
FACTS_OF_A_PROFILE = ("sweep/", "ended/", "samples/")
_NUM_EARLIER_RUNS = 8  # whose trainers may still be about


def reset_run(job: Job) -> None:
    """Forget observations of the run that is over; profile and plan are kept."""
    _reset_outcome(job)
    if job.plan is not None:
        job.planning.extra_s = job.plan.extra_s
        job.planning.keep_slack(job.plan.summary)
    job.members.begin_run()
    job.progress = job.progress.of_next_run()
    job.profiling.reprofiled_at_s = None
    job.profiling.num_step_sweeps = job.profiling.num_misstated_sweeps = 0


def reset_plan(job: Job) -> None:
    """Forget the plan, and all that was observed beside it."""
    _reset_outcome(job)
    job.plan = None


def _reset_outcome(job: Job) -> None:
    """Forget the baseline, the outcome of the plan in force, found stragglers, and requests because of them."""
    job.planning.begin_anew()
    job.measured = Measured(stored_saved_at_s=job.measured.stored_saved_at_s)
    job.enforcement, job.detection = Enforcement(), Detection()


def cancel_planning(planning: Planning) -> list[Effect]:
    """Give up the plan that is being made."""
    if planning.pending is None:
        return []
    request_id, planning.pending = planning.pending, None
    return [CancelPlanning(request_id=request_id)]


def release(job: Job, now_s: float, why: str) -> list[Effect]:
    """Have all attached ranks run without a plan, and count what they may hold of it as used up."""
    effects = release_all(job, now_s, why) if job.members.rank_of_stream else []
    job.revisions.held_table = max(
        job.revisions.held_table, job.revisions.given_table, job.plan.revision if job.plan else 0
    )
    if job.switch is not None:
        job.revisions.held_switch = max(job.revisions.held_switch, job.switch.switch_revision)
    job.enforcement.switch = None
    return effects


def drop_profile(job: Job, now_s: float) -> list[Effect]:
    """Forget all samples, and stop the sweep that is under way; ``FACTS_OF_A_PROFILE`` are left to the caller."""
    effects: list[Effect] = []
    if job.profiling.sweep is not None:
        stop = StopSweep(sweep_id=job.profiling.sweep_id, first_iteration=effective_iteration(job, now_s))
        effects = [Send(stream=stream, message=stop) for stream in job.members.rank_of_stream]
    job.profiling = job.profiling.of_other_work()
    for state in job.members.ranks.values():
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
        held_revision=job.revisions.held_table,
        held_switch_revision=job.revisions.held_switch,
        last_sweep_id=job.profiling.sweep_id,
        run_id=spec.run_id if run_id is None else run_id,
        earlier_runs=spec.earlier_runs if run_id is None else _before(spec, run_id),
        keeps_profile=spec.keeps_profile if keeps_profile is None else keeps_profile,
        is_anew=spec.is_anew if is_anew is None else is_anew,
    )
    return job.spec


def _before(spec: JobRegistered, run_id: str) -> tuple[str, ...]:
    """The latest runs before one that is to begin, as far as they are named."""
    known = (one for one in (*spec.earlier_runs, spec.run_id) if one not in ("", run_id))
    return tuple(dict.fromkeys(known))[-_NUM_EARLIER_RUNS:]
