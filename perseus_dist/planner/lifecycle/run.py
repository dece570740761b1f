"""Runs of a job: when one begins, and what it keeps of what was measured in those before it.

A *run* is one start of the job's trainers. Each measures a baseline of its own. Profile and plan of earlier runs are
kept as long as every rank's fingerprint says that the work is the same (``perseus_dist.fingerprint``); what does not
match begins anew, with one sentence that names the field that differs.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from perseus_dist.fingerprint import Difference, Fingerprint, differences, fits_profile, merged
from perseus_dist.messages.from_agent import Attach
from perseus_dist.messages.terms import Rank, fingerprint_of, shape_of
from perseus_dist.planner.job.facts.decisions import TargetChosen
from perseus_dist.planner.job.facts.runs import FingerprintKnown, JobRegistered
from perseus_dist.planner.job.facts.sweeps import SAVED_PROFILE
from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.job.state.membership import Membership
from perseus_dist.planner.lifecycle.events import Effect, Log, Persist
from perseus_dist.planner.lifecycle.reset import (
    FACTS_OF_A_PROFILE,
    FACTS_OF_A_RUN,
    cancel_planning,
    drop_profile,
    release,
    reset_plan,
    reset_run,
    spend,
)
from perseus_dist.straggler.layout import RankCoords


def enter_run(job: Job, attach: Attach, now_s: float) -> list[Effect]:
    """Begin another run where a rank says that it belongs to one; a run ends with the last rank of it.

    A trainer of an earlier run that is still to end begins none, though all ranks of the present run are away.

    Args:
        job: Registered. The rank is not among the attached ones yet.
        attach: What the rank says.
        now_s: [s] monotonic.
    """
    assert job.spec is not None
    if _is_of_run(job, attach):
        return []
    if job.spec.run_id in _attached_runs(job.members):
        return []  # of which some ranks have not been seen to end
    if not _may_begin(job, attach.run_id, 1 + Counter(_attached_runs(job.members))[attach.run_id]):
        return []
    return begin_run(job, attach.run_id, now_s)


def leave_run(job: Job, now_s: float) -> list[Effect]:
    """A rank has left: if it was the last one of its run, that of the ranks which are attached begins, if it may."""
    if job.spec is None or not job.members.rank_of_stream or job.spec.run_id in _attached_runs(job.members):
        return []
    attached = list(_attached_runs(job.members))
    counts = Counter(attached)
    newest = next((run_id for run_id in reversed(attached) if _may_begin(job, run_id, counts[run_id])), None)
    return [] if newest is None else begin_run(job, newest, now_s)


def begin_run(job: Job, run_id: str, now_s: float) -> list[Effect]:
    """Begin a run: observations of the run before are dropped, the profile and the plan are kept."""
    job.progress.iteration = job.members.newest_iteration(run_id)  # that of the run before may be far ahead
    kept = "the plan" if job.plan is not None else "the profile" if job.profiling.samples else "nothing"
    why = f"a run begins: {kept} of the run before is kept"
    effects = [*cancel_planning(job.planning), *release(job, now_s, why)]
    drop = (*FACTS_OF_A_RUN, *_abandon_reprofiling(job))
    reset_run(job)
    target = _begin_with_target(job, run_id)
    job.enter(Phase.REGISTERING, why)
    return [*effects, Persist(facts=(spend(job, run_id=run_id, is_anew=False),), drop=drop), *target]


def begin_anew(job: Job, why: str, now_s: float, *, keeps_profile: bool, num_stages: int = 0) -> list[Effect]:
    """Plan and baseline, and mostly the profile, are of other work: they are measured and made again.

    Args:
        job: Whose plan is in force or not.
        why: What differs, a clause.
        now_s: [s] monotonic.
        keeps_profile: Whether the profile still holds.
        num_stages: Of how many stages the caller keeps what was measured, where the profile does not hold as it is.
    """
    has_profile = bool(job.profiling.samples or job.profiling.sweeps)
    if job.plan is None and job.measured.baseline is None and (keeps_profile or not has_profile):
        return [] if keeps_profile else [Persist(facts=(spend(job, is_anew=True),))]
    lost = "plan and baseline" if keeps_profile or num_stages else "profile, plan and baseline"
    kept = f"what was measured of {num_stages} stages" if num_stages else "the profile" if keeps_profile else ""
    sentence = f"{why}: {lost} begin anew" + (f", {kept} is kept" if kept and has_profile else "")
    effects: list[Effect] = [Log(sentence=sentence), *cancel_planning(job.planning), *release(job, now_s, sentence)]
    job.history.add("anew", sentence, now_s=now_s, iteration=job.progress.iteration)
    reset_plan(job)
    drop: tuple[str, ...] = (*FACTS_OF_A_RUN, "table")
    if not keeps_profile:
        effects += drop_profile(job, now_s)
        drop = (*drop, *FACTS_OF_A_PROFILE)
    job.enter(Phase.REGISTERING, sentence)
    spec = spend(job, keeps_profile=keeps_profile and has_profile, is_anew=not keeps_profile)
    return [*effects, Persist(facts=(spec,), drop=drop)]


def know_fingerprint(job: Job, attach: Attach, now_s: float) -> list[Effect]:
    """Compare what a rank runs with what it ran, once in each run, and begin anew what does not match.

    Within a run nothing of it can change but a GPU's power limit: that is a straggler, as long as the run lasts.
    """
    rank = attach.rank.rank
    known = job.members.fingerprints.get(rank)
    if known is not None and attach.run_id and known.run_id == attach.run_id:
        return []
    now = fingerprint_of(attach.rank, attach.gpu, attach.workload)
    effects = _place_anew(job, attach.rank, now_s)
    assert job.spec is not None
    if known is not None:
        if (found := differences(known.fingerprint, now)) and not job.spec.is_anew:
            why = f"rank {rank}: {clauses(found)}"
            effects += begin_anew(job, why, now_s, keeps_profile=fits_profile(found))
        now = merged(known.fingerprint, now)
    fact = FingerprintKnown(rank=rank, run_id=attach.run_id, fingerprint=now)
    if fact != known:
        job.members.fingerprints[rank] = fact
        effects.append(Persist(facts=(fact,)))
    return [*effects, *_replace_saved_profile(job, attach)]


def know_replicas(job: Job, attach: Attach, now_s: float) -> list[Effect]:
    """Compare a rank's GPU with its replicas' GPUs; what was made of two models' measurements together is dropped."""
    if job.members.unlike:
        return []
    job.members.unlike = job.members.unlike_replica(attach.rank, attach.gpu)
    is_pooled = job.plan is not None or bool(job.profiling.samples or job.profiling.sweeps)
    return begin_anew(job, job.members.unlike, now_s, keeps_profile=False) if job.members.unlike and is_pooled else []


def shape_differences(spec: JobRegistered, rank: Rank) -> tuple[Difference, ...]:
    """In what the schedule and the sizes that a rank runs differ from the job's."""
    was = Fingerprint(
        schedule_digest=spec.schedule_digest,
        granularity=spec.granularity,
        pp_size=spec.pp_size,
        dp_size=spec.dp_size,
        node_size=spec.tp_size,
    )
    return differences(was, shape_of(rank))


def clauses(found: Iterable[Difference]) -> str:
    """All differences, in one clause."""
    return ", ".join(difference.clause for difference in found)


def _begin_with_target(job: Job, run_id: str) -> list[Effect]:
    """Take the target of the run's ranks that are there, or of those to come: that of the run before was its own.

    An operator's holds for all runs.
    """
    before = job.chosen_target
    if before is not None and before.by_operator:
        return []
    of_run = (state.target for state in job.members.ranks.values() if state.run_id == run_id)
    target = next((target for target in of_run if target is not None), None)
    job.chosen_target = None if target is None else TargetChosen(target=target, by_operator=False)
    if job.chosen_target == before:
        return []
    return [Persist(drop=(TargetChosen.KEY,)) if job.chosen_target is None else Persist(facts=(job.chosen_target,))]


def _abandon_reprofiling(job: Job) -> tuple[str, ...]:
    """Give up a sweep beside a plan: what gave cause to it was the run's. Returns the prefixes of its facts' keys."""
    if job.plan is None or job.profiling.sweep is None:
        return ()
    series = job.profiling.sweep.ordered.series
    gone = [sweep_id for sweep_id, ordered in job.profiling.sweeps.items() if ordered.series == series]
    for sweep_id in gone:
        del job.profiling.sweeps[sweep_id]
    job.profiling.samples.pop(series, None)
    job.profiling.is_unchecked |= job.profiling.sweep.ordered.is_profile  # the profile was to be replaced, and stays
    job.profiling.sweep = None
    return (f"samples/{series}/", *(f"sweep/{sweep_id}/" for sweep_id in gone))


def _place_anew(job: Job, rank: Rank, now_s: float) -> list[Effect]:
    """A rank that stood elsewhere in earlier runs: samples are known by rank, and those of other places are lost."""
    place = RankCoords(rank.pp_rank, rank.dp_rank, rank.tp_rank)
    owner = job.members.rank_at.get(place, rank.rank)
    if owner == rank.rank and job.members.places.get(rank.rank, place) == place:
        return []
    effects = begin_anew(job, f"rank {rank.rank} stands in another place", now_s, keeps_profile=False)
    job.members.places = {other: at for other, at in job.members.places.items() if other in job.members.ranks}
    job.members.rank_at = {at: other for other, at in job.members.places.items()}
    return effects


def _attached_runs(members: Membership) -> Iterator[str]:
    """The runs of the attached ranks, in the order of attaching; mostly the first one tells what is looked for."""
    return (members.ranks[rank].run_id for rank in members.rank_of_stream.values())


def _may_begin(job: Job, run_id: str, num_attached: int) -> bool:
    """Whether a run may begin: one that another has followed only where most ranks of the job are attached as its."""
    assert job.spec is not None
    return run_id not in job.spec.earlier_runs or 2 * num_attached > job.num_ranks


def _is_of_run(job: Job, attach: Attach) -> bool:
    """Whether a rank belongs to the present run.

    Where its trainer does not say, it does if others are attached, if its agent is known, or if that holds a plan.
    """
    assert job.spec is not None
    if attach.run_id:
        return attach.run_id == job.spec.run_id
    rank = attach.rank.rank
    known = job.members.ranks.get(rank)
    is_known = known is not None and known.incarnation == attach.incarnation
    has_measured = (rank, attach.incarnation) in job.profiling.acked_samples
    return bool(job.members.rank_of_stream) or is_known or has_measured or attach.table_revision > 0


def _replace_saved_profile(job: Job, attach: Attach) -> list[Effect]:
    """A rank that brings a saved profile along means that one, and not that of an earlier run.

    An agent that is back has sent it, and does not send again what was acknowledged.
    """
    if not attach.has_profile or job.plan is not None or SAVED_PROFILE not in job.profiling.samples:
        return []
    if not attach.run_id and (attach.rank.rank, attach.incarnation) in job.profiling.acked_samples:
        return []
    del job.profiling.samples[SAVED_PROFILE]
    job.profiling.ended_series.discard(SAVED_PROFILE)
    return [Persist(drop=(f"samples/{SAVED_PROFILE}/", f"ended/{SAVED_PROFILE}/"))]
