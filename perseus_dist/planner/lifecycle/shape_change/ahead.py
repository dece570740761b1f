"""Plans made ahead: while a job is under a plan, for shapes that it may come back in.

A plan follows from its request alone. So what is guessed here is nothing but the request that a job would make if it
came back in a shape: a job of that shape is put together in memory, with what was measured of the stages of the present
one, and asked what it would ask. The answer is kept under the request's digest. Where a job asks for a plan, whatever
its past, and there is an answer to the very same request, that is taken (``made_ahead``); a guess that was wrong costs
idle time of a processor, and is never in force.
"""

from collections import Counter, defaultdict
from dataclasses import replace

from perseus_dist.planner.job.facts.runs import FingerprintKnown
from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.job.state.planning import PlansAhead
from perseus_dist.planner.job.state.profiling import Profiling
from perseus_dist.planner.lifecycle.events import Effect, Log, Persist, PlanFailed, StartPlanning
from perseus_dist.planner.lifecycle.plan import first_request, has_profile
from perseus_dist.planner.lifecycle.shape_change.carry import stages_of_job, use_stages, works_of_job
from perseus_dist.planner.shapes.likely_shapes import Shape, likely_shapes
from perseus_dist.planner.shapes.stage import MeasuredStage
from perseus_dist.planner.worker.plan_request import PlanningRequest, PlanResult
from perseus_dist.planning.schedule.schedule_text import parse_schedule
from perseus_dist.straggler.layout import RankCoords

_MAX_MADE = 8


def request_ahead(job: Job, now_s: float) -> list[Effect]:
    """Ask for the next plan of a likely shape, where the job itself waits for none."""
    if not _is_idle(job, now_s):
        return []
    assert job.plan is not None
    ahead = job.planning.ahead
    now = (job.plan.revision, job.target)
    if ahead.looked_at != now:
        ahead.looked_at, ahead.wanted, ahead.stages = now, _likely_shapes(job), stages_of_job(job)
    while ahead.wanted:
        request = _request_in(job, ahead.wanted.pop(0), ahead.stages)
        if request is None or request.digest in ahead.unplannable or _is_made(ahead, request.digest):
            continue
        job.planning.request_id += 1
        request = replace(request, request_id=job.planning.request_id)
        ahead.pending = (request.request_id, request.digest)
        return [StartPlanning(request=request)]
    return []


def is_ahead_request(job: Job, request_id: int) -> bool:
    """Whether an answer of the planning worker is about another shape."""
    pending = job.planning.ahead.pending
    return pending is not None and pending[0] == request_id


def keep_ahead(job: Job, result: PlanResult) -> list[Effect]:
    """Keep a plan for the day that it is asked for."""
    ahead = job.planning.ahead
    assert ahead.pending is not None
    (_, digest), ahead.pending = ahead.pending, None
    made = result.made_ahead(digest)
    ahead.made[digest] = made
    gone = [ahead.made.pop(oldest) for oldest in list(ahead.made)[:-_MAX_MADE]]
    return [Persist(facts=(made,), drop=tuple(one.key for one in gone))]


def handle_ahead_failure(job: Job, event: PlanFailed) -> list[Effect]:
    """The job will be planned in that shape when it is there."""
    ahead = job.planning.ahead
    assert ahead.pending is not None
    (_, digest), ahead.pending = ahead.pending, None
    if not event.transient:
        ahead.unplannable.add(digest)
    return [Log(sentence=f"no plan is made ahead for a shape that the job may have next: {event.reason}")]


def shape_of_job(job: Job) -> Shape | None:
    """The shape that the job has; None where it is not known what its stages hold."""
    if not job.schedule_text:
        return None
    schedule = parse_schedule(job.schedule_text)
    works = {work.index: work for work in works_of_job(job, schedule).values()}
    if works.keys() != set(range(schedule.num_stages)):
        return None
    return Shape(schedule=schedule, works=tuple(works[stage] for stage in range(schedule.num_stages)))


def _is_idle(job: Job, now_s: float) -> bool:
    """Whether the job is under a plan, all its ranks are there, and no plan of its own is asked for or soon will be."""
    planning = job.planning
    return (
        job.policy.plans_ahead
        and job.phase is Phase.ENFORCING
        and job.plan is not None
        and not job.awaits_frontier
        and planning.pending is None
        and planning.ahead.pending is None
        and job.profiling.sweep is None
        and not job.detection.verdicts
        and job.num_attached == job.num_ranks
        and now_s >= planning.transfers_at_s + job.policy.ahead_after_s
    )


def _is_made(ahead: PlansAhead, digest: str) -> bool:
    """Whether the plan is there; then it is kept as if it were new."""
    made = ahead.made.pop(digest, None)
    if made is not None:
        ahead.made[digest] = made
    return made is not None


def _likely_shapes(job: Job) -> list[Shape]:
    assert job.spec is not None
    now = shape_of_job(job)
    if now is None:
        return []
    hosts = Counter(state.host for state in job.members.ranks.values() if state.host)
    return likely_shapes(
        now,
        dp_size=job.spec.dp_size,
        tp_size=job.spec.tp_size,
        ranks_of_node=max(hosts.values(), default=0),
        left=job.planning.ahead.left,
    )


def _request_in(job: Job, shape: Shape, stages: tuple[MeasuredStage, ...]) -> PlanningRequest | None:
    """The request of the job if it came back in a shape; None where it would measure first."""
    other = _job_in(job, shape, stages)
    if other is None:
        return None
    use_stages(other)
    return replace(first_request(other), revision=1, is_ahead=True) if has_profile(other) else None


def _job_in(job: Job, shape: Shape, stages: tuple[MeasuredStage, ...]) -> Job | None:
    """The job as it would begin in a shape, of one pipeline: all pipelines run the same plan."""
    assert job.spec is not None
    schedule = shape.schedule
    other = Job(
        job_id=job.job_id,
        policy=job.policy,
        spec=replace(job.spec, pp_size=schedule.num_ranks, dp_size=1),
        schedule_text=shape.schedule_text,
        chosen_target=job.chosen_target,
        profiling=Profiling(stages=stages),
    )
    of_tp_rank: defaultdict[int, list[int]] = defaultdict(list)
    for place, rank in sorted(job.members.rank_at.items()):
        if rank in job.members.ranks:
            of_tp_rank[place.tp_rank].append(rank)
    for pp_rank, order in enumerate(schedule.ranks):
        own = [shape.works[stage] for stage in sorted({instruction.stage for instruction in order})]
        for tp_rank in range(job.spec.tp_size):
            alike = [rank for rank in of_tp_rank[tp_rank] if job.members.places[rank].pp_rank == pp_rank] or of_tp_rank[
                tp_rank
            ]
            if not alike:
                return None
            number, place = len(other.members.ranks), RankCoords(pp_rank, 0, tp_rank)
            other.members.ranks[number] = replace(job.members.ranks[alike[0]], has_profile=False)
            other.members.places[number], other.members.rank_at[place] = place, number
            other.members.rank_of_stream[number] = number
            workload = replace(
                own[0].fingerprint.workload,
                stage_parameters=tuple(work.parameters for work in own),
                stage_layers=tuple(work.layers for work in own),
            )
            fingerprint = replace(own[0].fingerprint, workload=workload)
            other.members.fingerprints[number] = FingerprintKnown(rank=number, run_id="", fingerprint=fingerprint)
    return other
