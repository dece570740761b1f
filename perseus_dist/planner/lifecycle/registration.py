"""Who belongs to a job: attaching and detaching, and the first messages to an attached rank."""

from dataclasses import replace

from perseus_dist.fingerprint import fits_profile
from perseus_dist.messages.from_agent import Attach
from perseus_dist.messages.from_planner import Attached, Refused, Release
from perseus_dist.messages.terms import NO_ITERATION, Rank
from perseus_dist.planner.job.facts.decisions import TargetChosen
from perseus_dist.planner.job.facts.runs import JobRegistered
from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.job.state.membership import RankState
from perseus_dist.planner.job.state.progress import Pipeline
from perseus_dist.planner.job.timelines import MAX_PIPELINES
from perseus_dist.planner.lifecycle.enforcement.switching import decide, is_of_earlier_run, release_all, switch_for
from perseus_dist.planner.lifecycle.events import Effect, Forget, Log, Persist, RankAttached, Refuse, Send, SendTable
from perseus_dist.planner.lifecycle.reset import cancel_planning
from perseus_dist.planner.lifecycle.run import (
    begin_anew,
    begin_run,
    clauses,
    enter_run,
    know_fingerprint,
    know_replicas,
    leave_run,
    shape_differences,
)
from perseus_dist.planner.lifecycle.schedule import want_schedule
from perseus_dist.planner.lifecycle.shape_change.ahead import shape_of_job
from perseus_dist.planner.lifecycle.shape_change.carry import keep_stages, stages_of_job
from perseus_dist.planner.lifecycle.sweeping.sweep import resume_sweep
from perseus_dist.straggler.layout import RankCoords


def attach_rank(job: Job, event: RankAttached, now_s: float) -> list[Effect]:
    """Take a rank in, or refuse its stream."""
    attach = event.attach
    effects: list[Effect] = []
    is_registered = False
    if job.spec is None or (not job.members.rank_of_stream and not _fits(job, attach.rank)):
        if refusal := _own_contradiction(attach.rank):
            effects.append(_refuse(event.stream, refusal, retry=False))
            return [*effects, Forget()] if job.spec is None else effects
        if refusal := _refusal_of_earlier_run(job, attach):
            return [_refuse(event.stream, refusal, retry=True)]
        effects += _register(job, event, now_s)
        is_registered = True
    elif refused := _refusal(job, event, now_s):
        return refused
    state = job.members.ranks.get(attach.rank.rank)
    is_new_incarnation = state is None or state.incarnation != attach.incarnation
    if state is not None and state.stream is not None:  # the same agent, whose older stream has not been seen to end
        effects += [_refuse(state.stream, "a newer stream of the same agent has taken its place", retry=True)]
        effects += detach_rank(job, state.stream, now_s)
    effects += [] if is_registered else enter_run(job, attach, now_s)
    effects += know_fingerprint(job, attach, now_s)
    effects += know_replicas(job, attach, now_s)
    is_left_over = _is_left_over(job, attach)
    if not is_left_over:
        _follow_iteration(job, attach, now_s, may_go_back=is_new_incarnation)
    _record_rank(job, event, is_left_over=is_left_over)
    effects += [] if is_left_over else _choose_target(job, attach)
    acked = job.profiling.acked_samples.get((attach.rank.rank, attach.incarnation), 0)
    revision = job.plan.revision if job.plan else 0
    if job.phase is Phase.DONE:
        job.enter(Phase.REGISTERING, f"rank {attach.rank.rank} has attached again")
        effects.append(Persist(facts=(), drop=("over",)))
    attached = Attached(
        phase=job.phase,
        table_revision=revision,
        acked_samples=acked,
        wants_timelines=job.policy.shows_timelines and not attach.rank.tp_rank and attach.rank.dp_rank < MAX_PIPELINES,
    )
    if acked:
        effects.append(Persist())  # it acknowledges samples, and not all of them may be durable yet
    effects.append(Send(stream=event.stream, message=attached))
    effects += want_schedule(job)
    effects += _bring_up_to_date(job, event, now_s)
    return effects


def detach_rank(job: Job, stream: int, now_s: float) -> list[Effect]:
    """A stream has ended; nothing happens if it was refused or replaced."""
    number = job.members.rank_of_stream.pop(stream, None)
    if number is None:
        return []
    state = job.members.ranks[number]
    state.stream = None
    job.progress.pipelines[state.rank.dp_rank].num_attached -= 1
    job.num_changes += 1
    if not job.members.rank_of_stream:
        job.members.gone_since_s = now_s
    effects = leave_run(job, now_s)
    if job.members.schedule_asked == stream:
        job.members.schedule_asked = None
        return [*effects, *want_schedule(job)]
    return effects


def _register(job: Job, event: RankAttached, now_s: float) -> list[Effect]:
    """Begin the job, or begin it anew with another schedule or other sizes: no rank is attached."""
    attach, rank = event.attach, event.attach.rank
    spec = JobRegistered(
        schedule_digest=rank.schedule_digest,
        pp_size=rank.pp_size,
        dp_size=rank.dp_size,
        tp_size=rank.tp_size,
        token_sha256=event.token_sha256,
        run_id=attach.run_id,
        granularity=rank.granularity,
    )
    if job.spec is None:
        job.spec = replace(spec, held_revision=job.revisions.held_table, held_switch_revision=job.revisions.held_switch)
        job.progress.pipelines = [Pipeline() for _ in range(rank.dp_size)]
        return [Persist(facts=(job.spec,))]
    found = shape_differences(job.spec, rank)
    keeps_profile, why = fits_profile(found), clauses(found)
    stages = () if keeps_profile or not job.policy.carries_stages else stages_of_job(job)
    job.planning.ahead.left = shape_of_job(job) if stages else None
    effects = begin_anew(job, why, now_s, keeps_profile=keeps_profile, num_stages=len(stages))
    if not any(isinstance(effect, Log) for effect in effects):  # nothing had been measured
        effects.insert(0, Log(sentence=f"{why}: the job begins anew"))
    job.spec = replace(
        job.spec,
        schedule_digest=rank.schedule_digest,
        granularity=rank.granularity,
        pp_size=rank.pp_size,
        dp_size=rank.dp_size,
        tp_size=rank.tp_size,
    )
    job.schedule_text, job.members.schedule_asked, job.stragglers = "", None, {}
    job.progress.pipelines = [Pipeline() for _ in range(rank.dp_size)]
    if not keeps_profile:
        job.members.places, job.members.rank_at, job.profiling.acked_samples = {}, {}, {}
    effects += begin_run(job, attach.run_id, now_s)
    job.spec = replace(job.spec, is_anew=not keeps_profile)
    effects.append(Persist(facts=(job.spec,), drop=("schedule", "straggler/")))
    return effects if keeps_profile else [*effects, *keep_stages(job, stages)]


def _refusal_of_earlier_run(job: Job, attach: Attach) -> str:
    """Why a trainer of an earlier run, of another shape, waits while all ranks of the present run are away for now."""
    if job.spec is None or job.phase is Phase.DONE or attach.run_id not in job.spec.earlier_runs:
        return ""
    return (
        f"saw {_shape(attach.rank)} of an earlier run of this job, expected {_shape(job.spec)} of the present one, "
        "whose ranks are away; end the earlier one"
    )


def _own_contradiction(rank: Rank) -> str:
    """The contradiction in a rank's sizes, in a sentence; empty if there is none."""
    num_ranks = rank.pp_size * rank.dp_size * rank.tp_size
    for name, value, size in (
        ("rank", rank.rank, num_ranks),
        ("pp_rank", rank.pp_rank, rank.pp_size),
        ("dp_rank", rank.dp_rank, rank.dp_size),
        ("tp_rank", rank.tp_rank, rank.tp_size),
    ):
        if not 0 <= value < size:
            return f"saw {name} {value} in {_shape(rank)}, expected 0 to {size - 1}; correct what the trainer reports"
    return ""


def _refusal(job: Job, event: RankAttached, now_s: float) -> list[Effect]:
    """Effects that refuse a stream; none if it is welcome."""
    assert job.spec is not None
    rank = event.attach.rank
    if refusal := _own_contradiction(rank):
        return [_refuse(event.stream, refusal, retry=False)]
    known = job.members.ranks.get(rank.rank)
    if not _fits(job, rank):
        refusal = (
            f"saw {_shape(rank)} as rank {rank.rank}, expected {_shape(job.spec)} as the {job.num_attached} "
            "attached ranks of this job; end those, or name the job otherwise"
        )
        effects: list[Effect] = [_refuse(event.stream, refusal, retry=True)]
        if known is not None and known.stream is None and job.phase is not Phase.STALE:
            job.members.stale_rank = rank.rank
            job.enter(
                Phase.STALE, f"rank {rank.rank} came back with {_shape(rank)}: no plan fits until all ranks agree"
            )
            if job.planning.pending is not None:  # the plan would be followed, and is asked for again later
                effects += cancel_planning(job.planning)
                job.planning.again_at_s = now_s
            effects += release_all(job, now_s, job.reason)
        return effects
    if known is not None and known.stream is not None and known.incarnation != event.attach.incarnation:
        refusal = f"rank {rank.rank} is attached by another agent; end that one, or wait until its stream has ended"
        return [_refuse(event.stream, refusal, retry=True)]
    owner = job.members.rank_at.get(_place(rank), rank.rank)
    if owner != rank.rank and owner in job.members.ranks:  # in this run
        refusal = (
            f"saw rank {rank.rank} at pp_rank {rank.pp_rank}, dp_rank {rank.dp_rank}, tp_rank {rank.tp_rank}, which is "
            f"rank {owner}'s place; give every rank its own"
        )
        return [_refuse(event.stream, refusal, retry=True)]
    return []


def _fits(job: Job, rank: Rank) -> bool:
    """Whether a rank runs the job's schedule in the job's sizes, in the place that it has had in this run."""
    spec = job.spec
    if spec is None or (rank.schedule_digest, rank.granularity) != (spec.schedule_digest, spec.granularity):
        return False
    if (rank.pp_size, rank.dp_size, rank.tp_size) != (spec.pp_size, spec.dp_size, spec.tp_size):
        return False
    return rank.rank not in job.members.ranks or job.members.places.get(rank.rank, _place(rank)) == _place(rank)


def _place(rank: Rank) -> RankCoords:
    return RankCoords(rank.pp_rank, rank.dp_rank, rank.tp_rank)


def _record_rank(job: Job, event: RankAttached, *, is_left_over: bool) -> None:
    attach = event.attach
    rank = attach.rank
    assert job.spec is not None
    state = job.members.ranks.get(rank.rank)
    if state is None or state.incarnation != attach.incarnation:
        state = RankState(
            rank=rank,
            gpu=attach.gpu,
            incarnation=attach.incarnation,
            stream=event.stream,
            has_profile=attach.has_profile,
            version=attach.version,
            host=attach.host,
            findings=attach.findings,
            follows_moments=attach.follows_moments,
            target=attach.target,
            control=attach.gpu.control,
            run_id=attach.run_id or job.spec.run_id,
        )
        job.members.add(state)
        job.profiling.is_unplannable = False
    else:
        state.stream, state.gpu, state.control = (event.stream, attach.gpu, attach.gpu.control)
        state.has_profile, state.said_goodbye, state.has_reported = attach.has_profile, False, False
    state.iteration, state.is_left_over = max(state.iteration, attach.iteration), is_left_over
    job.members.places[rank.rank] = _place(rank)
    job.members.rank_at[_place(rank)] = rank.rank
    job.members.rank_of_stream[event.stream] = rank.rank
    job.progress.pipelines[rank.dp_rank].num_attached += 1
    job.members.gone_since_s = None
    job.num_changes += 1
    if job.phase is Phase.STALE and job.members.stale_rank == rank.rank:
        job.members.stale_rank = None
        job.enter(Phase.REGISTERING, f"rank {rank.rank} is back with the job's schedule")


def _is_left_over(job: Job, attach: Attach) -> bool:
    """Whether a rank is of another run than the job's, wherever it is in training."""
    assert job.spec is not None
    return attach.run_id not in ("", job.spec.run_id)


def _follow_iteration(job: Job, attach: Attach, now_s: float, *, may_go_back: bool) -> None:
    """Where training stands. A new agent that is behind means that the trainers were started again from earlier.

    One that has not seen an iteration yet, while others are attached, says nothing.
    """
    if job.members.rank_of_stream and attach.iteration == NO_ITERATION:
        return
    behind = attach.iteration < job.progress.iteration - 1
    if not job.members.rank_of_stream or (may_go_back and behind):
        if behind:
            job.enforcement.guard.go_back(attach.iteration)
            job.measured.go_back(attach.iteration)
            job.progress.unfinished.clear()
            for pipeline in job.progress.pipelines:
                pipeline.unfinished.clear()
                pipeline.iteration = NO_ITERATION
        job.progress.iteration, job.progress.iteration_at_s = attach.iteration, now_s
    elif attach.iteration > job.progress.iteration:
        job.progress.iteration, job.progress.iteration_at_s = attach.iteration, now_s


def _choose_target(job: Job, attach: Attach) -> list[Effect]:
    """The first rank to say what the job wants decides, of each run; an operator overrules."""
    if attach.target is None or attach.target == job.target:
        return []
    if job.chosen_target is not None and (job.chosen_target.by_operator or job.num_attached > 1):
        return []
    job.chosen_target = TargetChosen(target=attach.target, by_operator=False)
    return [Persist(facts=(job.chosen_target,))]


def _bring_up_to_date(job: Job, event: RankAttached, now_s: float) -> list[Effect]:
    """Send a rank the messages that the others have had."""
    attach, stream = event.attach, event.stream
    revision = job.plan.revision if job.plan else 0
    job.revisions.held_table = max(job.revisions.held_table, attach.table_revision)
    if attach.table_revision > revision:
        # A rank that follows a table from a store that was lost also holds a switch of that time, of unknown revision.
        job.revisions.held_switch = max(job.revisions.held_switch, attach.table_revision << 32)
        reason = f"the planner does not know table {attach.table_revision}; another plan follows"
        effects: list[Effect] = [Send(stream=stream, message=Release(reason=reason))]
        if job.plan is not None and (job.planning.pending is None or job.is_refining):
            job.planning.again_at_s = now_s
        return effects
    effects = []
    own = job.straggler_plan_in_force(attach.rank.dp_rank)
    is_by_phase = any(plan is not None and plan.summary.is_by_phase for plan in (job.plan, own))
    if is_by_phase and not attach.follows_moments:
        # The rank runs at full clocks meanwhile, which makes no other rank late.
        if job.planning.pending is None or job.is_refining:
            job.planning.again_at_s = now_s
        return effects
    if job.plan is not None and job.switch is not None:
        if attach.table_revision != revision:
            effects.append(SendTable(stream=stream, encoded=job.plan.tables[attach.rank.pp_rank]))
        if own:
            effects.append(SendTable(stream=stream, encoded=own.tables[attach.rank.pp_rank]))
        if is_of_earlier_run(job, job.switch.effective_iteration):
            return [*effects, *decide(job, now_s, "training has gone back to an earlier iteration", force=True)]
        effects.append(Send(stream=stream, message=switch_for(job, job.switch, attach.rank.dp_rank)))
    if job.profiling.sweep is not None and not job.is_swept:
        return effects  # it goes on once the run has a baseline
    return [*effects, *resume_sweep(job, attach.rank.rank, stream, now_s)]


def _refuse(stream: int, reason: str, *, retry: bool) -> Refuse:
    return Refuse(stream=stream, refused=Refused(reason=reason, retry=retry))


def _shape(spec: Rank | JobRegistered) -> str:
    sizes = f"{spec.pp_size} x {spec.dp_size} x {spec.tp_size} (pp x dp x tp)"
    return f"schedule {spec.schedule_digest[:12]} with {sizes} and a clock for each {spec.granularity}"
