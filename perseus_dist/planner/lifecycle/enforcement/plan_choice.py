"""Which plan each pipeline follows, by the target, the detector's verdicts and operators' reports."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median

from perseus_dist.messages.terms import Target
from perseus_dist.planner.job.facts.decisions import PaceChosen
from perseus_dist.planner.job.facts.plans import StragglerPlanReady
from perseus_dist.planner.job.frontier_summary import FrontierSummary
from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.job.state.progress import NUM_RECENT_PIPELINE
from perseus_dist.planner.lifecycle.enforcement.waiting_slack import slack_beside_straggler
from perseus_dist.straggler.selection import PipelineChoice, ReportedStraggler, Selection, select
from perseus_dist.straggler.verdicts.verdict import Degree, Verdict
from perseus_dist.units import PS_PER_S, deadline_ps_from_s

_CLEARLY_LESS = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The plan that every pipeline is to follow.

    Attributes:
        points: (dp_size) rows of its table.
        own_revisions: (dp_size) of its own table; 0 for that of all. Empty where no pipeline has one.
        selection: What they were chosen by.
        sentence: Why, in a clause.
    """

    points: tuple[int, ...]
    own_revisions: tuple[int, ...]
    selection: Selection
    sentence: str


def choose(job: Job) -> Choice:
    """Choose for every pipeline of a job with a plan.

    A pipeline that waits for a straggler until T' anyway takes the plan of least energy within T', which may be slower
    than T*. A pipeline with slow ranks takes the best of its own plan, and all-maximum clocks until it has one, since a
    plan that gives time of its other ranks away is late; the target's where a policy asks for a slower pace, as does
    everybody if the target is as slow as T'.
    """
    assert job.plan is not None
    assert job.spec is not None
    summary = job.plan.summary
    at_target = target_point(job, summary)
    owns = {dp_rank: own for dp_rank in straggling_pipelines(job) if (own := _usable_own_plan(job, dp_rank))}
    at_full = _pipelines_at_full_clocks(job) - owns.keys()
    judged = judged_slow(job)
    has_peer = len({verdict.dp_rank for verdict in judged}) < job.spec.dp_size
    selection = select(
        [_foreseen(job, verdict, owns.get(verdict.dp_rank), has_peer=has_peer) for verdict in judged],
        [
            ReportedStraggler(straggler_id=known.straggler_id, dp_rank=known.dp_rank, degree=known.degree)
            for known in job.stragglers.values()
        ],
        dp_size=job.spec.dp_size,
        target_time_s=summary.time_ps[at_target] / PS_PER_S,
        baseline_time_s=summary.baseline_time_ps / PS_PER_S,
        tail_s=summary.tail_ps / PS_PER_S,
        pipeline_cost=summary.pipeline_degree,
    )
    points = []
    later = _later_for_noise(job, owns, selection)
    for choice in selection.pipelines:
        if own := owns.get(choice.dp_rank):
            points.append(_own_point(job, own, choice, later))
        elif choice.dp_rank in at_full:
            points.append(summary.full_point)
        elif choice.is_waiting:
            # T' is the straggler's, whatever link another pipeline meets; what operators report is a factor.
            factor = 1.0 if job.stragglers else summary.case_factor
            within_ps = later * choice.plan_time_s * PS_PER_S / factor
            points.append(max(at_target, summary.point_beside_straggler(within_ps)))
        else:
            points.append(at_target)
    time_s = summary.time_ps[at_target] / PS_PER_S
    if job.chosen_pace and is_paced(job):
        sentence = f"{policy_text(job.chosen_pace)} asks for point {at_target}, {time_s:.6f} s"
    else:
        sentence = f"{target_text(job.target)} is point {at_target} at {time_s:.6f} s"
    if unmet := unmet_deadline(job.target, summary):
        sentence += f"; {unmet}"
    if job.stragglers or job.detection.verdicts:
        sentence += f", {selection.sentence}"
    if at_full:
        named = ", ".join(map(str, sorted(at_full)))
        sentence += f"; pipeline {named} runs at full clocks until there is a plan for it"
    if owns:
        sentence += f"; pipeline {', '.join(map(str, owns))} follows a plan of its own"
    return Choice(
        points=tuple(points),
        own_revisions=tuple(owns[dp_rank].revision if dp_rank in owns else 0 for dp_rank in range(job.spec.dp_size))
        if owns
        else (),
        selection=selection,
        sentence=sentence,
    )


def judged_slow(job: Job) -> tuple[Verdict, ...]:
    """The verdicts that plans follow: none where the detector is only to be looked at, or was wrong just now."""
    is_followed = job.policy.acts_on_stragglers and job.progress.iteration >= job.enforcement.guard.held_until
    return job.detection.verdicts if is_followed else ()


def reported_pipelines(job: Job) -> frozenset[int]:
    """Those of which operators have said how slow they are, whatever the detector says."""
    return frozenset(known.dp_rank for known in job.stragglers.values())


def _pipelines_at_full_clocks(job: Job) -> set[int]:
    """Those that are slower than they were planned for, until there are plans for that.

    The target's plan would be late, since it gives time of their other ranks away; it stays where a policy leaves no
    power for full clocks. A pipeline that is slow as a whole, as by its links, has its plan with all others'.
    """
    if job.holds_probes or is_paced(job) or job.plan is None:
        return set()
    is_planned_for = job.phase is not Phase.PLANNING or job.planning.snapshots == job.plan.snapshots
    whole = {
        verdict.dp_rank
        for verdict in judged_slow(job)
        if verdict.is_acted_upon and verdict.is_whole_pipeline and not is_planned_for
    }
    return {*straggling_pipelines(job)} | whole - reported_pipelines(job)


def straggling_pipelines(job: Job) -> list[int]:
    """Those with a slow rank that the others wait for by the detector's word, ascending."""
    reported = reported_pipelines(job)
    return sorted(
        {
            verdict.dp_rank
            for verdict in judged_slow(job)
            if verdict.is_acted_upon and not verdict.is_whole_pipeline and verdict.dp_rank not in reported
        }
    )


def target_point(job: Job, summary: FrontierSummary) -> int:
    """The plan that the job's target asks for, or the slower one that a power budget or a price policy does.

    What these want is the least power within the time, and not the least energy: that may be slower than T*.
    """
    return max(own_wish_point(job, summary), summary.point_for_straggler(pace_ps(job, summary)))


def own_wish_point(job: Job, summary: FrontierSummary) -> int:
    """The plan that the job's target alone asks for, as far as plans are known to take what they promise.

    A slowdown is of what full clocks take now, where the guard has seen that to be clearly less than by the profile, as
    when a slow link is over that the plan is for.
    """
    within_ps = deadline_ps(job.target, summary) * _full_clocks_share(job)
    return summary.point_for_deadline(round(within_ps / (1 + job.enforcement.overrun)))


def _full_clocks_share(job: Job) -> float:
    """Share of an iteration at full clocks by the profile that one takes now; 1 where that is not clearly less."""
    guard = job.enforcement.guard.guard
    if job.plan is None or job.target.deadline_s is not None or not guard.reference_s:
        return 1.0
    share = guard.reference_s * PS_PER_S / job.plan.summary.baseline_time_ps
    return share if share < 1 - max(_CLEARLY_LESS, 3 * guard.noise) else 1.0


def pace_ps(job: Job, summary: FrontierSummary) -> int:
    """[ps] that an iteration is to take at least for a policy's sake; 0 without one."""
    return round(job.pace * summary.baseline_time_ps)


def is_paced(job: Job) -> bool:
    """Whether a policy makes a job with a plan slower than its target."""
    if not job.pace or job.plan is None:
        return False
    summary = job.plan.summary
    return summary.point_for_straggler(pace_ps(job, summary)) > own_wish_point(job, summary)


def deadline_ps(target: Target, summary: FrontierSummary) -> int:
    """[ps] within which an iteration is to end."""
    if target.deadline_s is not None:
        return deadline_ps_from_s(target.deadline_s)
    return round((target.slowdown or 1.0) * summary.baseline_time_ps)


def unmet_deadline(target: Target, summary: FrontierSummary) -> str:
    """Why no plan is within a deadline, in a sentence; empty where one is, or where none is asked for."""
    if target.deadline_s is None or deadline_ps(target, summary) >= summary.fastest_ps:
        return ""
    fastest_s = summary.fastest_ps / PS_PER_S
    return f"a deadline of {target.deadline_s:g} s cannot be met: the fastest plan takes {fastest_s:.9f} s"


def target_text(target: Target) -> str:
    """A target in words."""
    if target.deadline_s is not None:
        return f"a deadline of {target.deadline_s:g} s"
    if target.slowdown is not None:
        return f"{target.slowdown:g} times the time at all-maximum clocks"
    return "the time at all-maximum clocks"


def policy_text(pace: PaceChosen) -> str:
    """The policy that asks for a pace, in words."""
    return f"budget {pace.budget}" if pace.budget else f"price policy {pace.price}"


def own_target_point(job: Job, own: StragglerPlanReady) -> int:
    """The point for a pipeline with slow ranks where none is slower: as fast as it can be, or as the target asks."""
    assert job.plan is not None
    wished_ps = round(deadline_ps(job.target, job.plan.summary) * _full_clocks_share(job))
    within_ps = max(wished_ps, own.summary.baseline_time_ps)
    return max(
        own.summary.point_for_deadline(within_ps), own.summary.point_for_straggler(pace_ps(job, job.plan.summary))
    )


def _later_for_noise(job: Job, owns: Mapping[int, StragglerPlanReady], selection: Selection) -> float:
    """Times T' by which pipelines that wait are to end on the mean: the straggler's own mean, less their slack."""
    assert job.plan is not None
    num_waiting = sum(choice.is_waiting for choice in selection.pipelines)
    slack = slack_beside_straggler(job.plan.summary.own_noise, num_waiting)
    slowest = max(selection.pipelines, key=lambda choice: choice.time_s)
    own, late = owns.get(slowest.dp_rank), 0.0
    if own is not None and own.summary.late_by:
        late = own.summary.late_by[own_target_point(job, own)]
    return (1 + late) / (1 + slack)


def _own_point(job: Job, own: StragglerPlanReady, choice: PipelineChoice, later: float) -> int:
    at_target = own_target_point(job, own)
    if not choice.is_waiting:
        return at_target
    assert job.plan is not None
    usual_ps = job.plan.summary.time_ps[target_point(job, job.plan.summary)]
    stretch = choice.plan_time_s * PS_PER_S / usual_ps  # what it has to spare beyond how slow it is
    return max(at_target, own.summary.point_beside_straggler(later * stretch * own.summary.time_ps[at_target]))


def _usable_own_plan(job: Job, dp_rank: int) -> StragglerPlanReady | None:
    """A pipeline's own plan: the one made for what is asked for now, or meanwhile the one that it follows already."""
    if job.progress.iteration < job.enforcement.guard.own_plans_held_until:
        return None
    own, asked = job.detection.straggler_plans.get(dp_rank), job.detection.straggler_requests.get(dp_rank)
    if own is None or job.plan is None or own.base_revision != job.plan.revision:
        return None
    is_current = asked is not None and asked.slow_ranks == own.slow_ranks
    return own if is_current or job.straggler_plan_in_force(dp_rank) else None


def _foreseen(job: Job, verdict: Verdict, own: StragglerPlanReady | None, *, has_peer: bool) -> Verdict:
    """The time that a straggler costs its pipeline, where the verdict alone is not the best estimate.

    Under a plan of its own, what that says, unless it has been measured to be less: a plan that lies in the lower half
    of what is measured is the best guess. Measured is what it takes longer than pipelines without stragglers do, which
    says nothing where there are none. And never more than its iterations last just now, because what they were compared
    with may be wrong.
    """
    assert job.plan is not None
    summary, degree = job.plan.summary, verdict.pipeline_degree
    usual_ps = summary.time_ps[target_point(job, summary)] - summary.tail_ps
    is_measured = degree is not None and (has_peer or own is None)
    if own is not None and not verdict.is_whole_pipeline:
        planned = max(1.0, (own.summary.time_ps[own_target_point(job, own)] - summary.tail_ps) / usual_ps)
        is_measured = is_measured and own is job.straggler_plan_in_force(verdict.dp_rank)
        degree = _exactly(min(max(planned, degree.low), degree.value) if degree and is_measured else planned)
    recent_s = job.progress.pipelines[verdict.dp_rank].recent_times_s
    is_seen = own is not None and is_seen_under_straggler_plans(job)
    if degree is not None and (is_measured or is_seen) and recent_s:
        most = max(1.0, median(recent_s) * PS_PER_S / usual_ps)
        degree = degree if degree.low <= most else _exactly(most)
    return replace(verdict, pipeline_degree=degree)


def is_seen_under_straggler_plans(job: Job) -> bool:
    """Whether all that is known of how long pipelines take lately is of the switch in force, with own plans in it."""
    switch = job.switch
    return switch is not None and any(switch.own_revisions) and len(job.measured.enforced) >= NUM_RECENT_PIPELINE


def _exactly(value: float) -> Degree:
    return Degree(value=value, low=value, high=value)
