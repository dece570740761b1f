"""Consequences of the guard's probes and breaches: a plan that breaks the promise is given up, then mended."""

import math
from functools import partial
from statistics import median

from perseus_dist.messages.from_agent import IterationReport
from perseus_dist.messages.from_planner import Probe
from perseus_dist.messages.terms import NO_POINT
from perseus_dist.planner.job.guard import Waiting
from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.job.state.membership import RankState
from perseus_dist.planner.lifecycle.enforcement.plan_choice import is_paced, own_wish_point
from perseus_dist.planner.lifecycle.enforcement.slightly_slow import newly_slow
from perseus_dist.planner.lifecycle.enforcement.switching import (
    decide,
    effective_iteration,
    is_waiting,
    max_slowdown,
    release_all,
)
from perseus_dist.planner.lifecycle.events import Effect, Log, Send
from perseus_dist.planning.frontier.slow_rank import SlowRank

_LEAST_OVERRUN, _MOST_OVERRUN = 0.0025, 0.015  # more is no plan's fault, or a breach
_LEAST_LATE = 0.004  # for which another plan is made
_MIN_OVERRUN = 12  # iterations under the plan
_OVERRUN_Z = 3.0
_UNMEASURED = "nothing that was measured tells what full clocks draw now"


def guard_iteration(job: Job, state: RankState, report: IterationReport, now_s: float, *, is_planned: bool) -> bool:
    """Put a rank's iteration to the guard; whether an iteration of the job is known by it."""
    if job.is_swept:
        job.enforcement.guard.swept_until = effective_iteration(job, now_s) + 1
    watch = job.enforcement.guard
    num_measured = watch.guard.num_measured
    is_known = watch.observe(
        state.rank.rank,
        state.rank.dp_rank,
        report,
        is_planned=is_planned and report.point != NO_POINT,
        num_attached=job.num_attached,
        is_held_slow=_is_waited_for(job, state.rank.rank),
        allowed=partial(_allowed_s, job),
    )
    if watch.guard.num_measured > num_measured:
        job.enforcement.measured_at_s = now_s
    return is_known


def keep_promise(job: Job, now_s: float) -> list[Effect]:
    """Probe where the guard wants to know, give the plan up where it is in breach: while another one is made, too."""
    is_planning = job.phase is Phase.PLANNING
    if not (is_planning or job.phase is Phase.ENFORCING) or job.switch is None:
        return []
    if NO_POINT in job.switch.points:  # it was given up, and nothing better could be planned
        if is_planning:
            return []
        job.enforcement.guard.hold_back(job.progress.iteration)
        job.enter(Phase.RELEASED, job.reason)
        return []
    watch = job.enforcement.guard
    if watch.guard.breach is not None:
        return _fall(job, now_s)
    if 0 < watch.own_plans_held_until <= job.progress.iteration:
        watch.own_plans_held_until = 0
        return decide(job, now_s, "plans for pipelines with stragglers are tried again")
    if not watch.guard.is_probing and watch.has_held(job.progress.iteration) and job.detection.verdicts:
        return decide(job, now_s, "stragglers are waited for again")
    if job.holds_probes:  # all clocks at their highest would break a power budget
        return []
    if _is_later_than_stragglers(job):
        watch.guard.suspect("iterations take longer than the stragglers that are waited for made them at full clocks")
    wish = _UNMEASURED if job.measured.saving.wants_window() else ""
    if why := watch.guard.wanted_probe(job.progress.iteration, _waiting(job), wish=wish):
        probed = watch.guard.order_probe(effective_iteration(job, now_s) + watch.probe_lead)
        probe = Probe(first_iteration=probed.start, num_iterations=len(probed))
        return [
            Log(sentence=f"probe at full clocks from iteration {probed.start} on: {why}"),
            *(Send(stream=stream, message=probe) for stream in job.members.rank_of_stream),
        ]
    return []


def correct_target(job: Job, now_s: float) -> list[Effect]:
    """Take a faster plan where the target's takes a little longer than allowed, which is no breach yet.

    A profile may be off by a few thousandths at the clocks of a plan, and at the highest clocks by none, or the other
    way round: noise makes lower clocks look faster.
    """
    excess = excess_over_target(job)
    overrun = (1 + job.enforcement.overrun) * (1 + excess) - 1
    if job.plan is None or excess <= _LEAST_OVERRUN or overrun > _MOST_OVERRUN:
        return []
    if own_wish_point(job, job.plan.summary) == 0:
        return []
    job.enforcement.overrun = overrun
    return decide(job, now_s, f"iterations take {100 * excess:.1f} % longer than the target allows")


def late_with(job: Job) -> tuple[SlowRank, ...]:
    """The slightly slow ranks that a plan is wanted for, because the fastest one takes a little longer than allowed."""
    is_late = _LEAST_LATE < excess_over_target(job) <= _MOST_OVERRUN
    is_fastest = job.plan is not None and own_wish_point(job, job.plan.summary) == 0
    return newly_slow(job, job.enforcement.guard.slower) if is_late and is_fastest else ()


def excess_over_target(job: Job) -> float:
    """Share by which iterations take longer than the target allows; 0 where that is not clear, or has another cause."""
    full, enforced = job.measured.saving.full_now, job.measured.enforced
    is_well = not (job.detection.verdicts or job.stragglers or job.detection.keeps_switch or job.is_swept)
    if is_paced(job) or not is_well:  # what is too slow for a budget draws less, which is no trouble
        return 0.0
    if full is None or not full.num_iterations or len(enforced) < _MIN_OVERRUN:
        return 0.0
    excess = median(iteration.time_s for iteration in enforced) / _allowed_s(job, full.time_s) - 1
    error = job.enforcement.guard.guard.noise * math.sqrt(math.pi / 2 / len(enforced) + 1 / full.num_iterations)
    return excess if excess > _OVERRUN_Z * error else 0.0


def _fall(job: Job, now_s: float) -> list[Effect]:
    """Give up what is in breach: first whatever makes pipelines wait, then the plan itself."""
    assert job.switch is not None
    breach, job.enforcement.guard.guard.breach = job.enforcement.guard.guard.breach, None
    assert breach is not None
    if any(job.switch.own_revisions) and 0 < job.switch.t_prime_s <= breach.allowed_s:
        # Full clocks take longer than what is waited for, so it is not the waiting that is late.
        job.enforcement.guard.fall_from_own_plans(job.progress.iteration)
        why = f"{breach.sentence}: pipelines with stragglers run at full clocks"
        job.history.add("fall", why, now_s=now_s, iteration=job.progress.iteration)
        return decide(job, now_s, why, force=True)
    if is_waiting(job, job.switch):
        job.enforcement.guard.fall_from_waiting(job.progress.iteration)
        job.detection.verdicts, job.detection.watch, job.detection.keeps_switch = (), None, False
        why = f"{breach.sentence}: no straggler is waited for"
        job.history.add("fall", why, now_s=now_s, iteration=job.progress.iteration)
        return decide(job, now_s, why, force=True)
    job.enforcement.guard.fall_from_plan(job.progress.iteration, was_on_time_again=breach.is_on_time_again)
    why = f"clocks are released, because {breach.sentence}"
    job.history.add("fall", why, now_s=now_s, iteration=job.progress.iteration)
    job.enter(Phase.PLANNING if job.phase is Phase.PLANNING else Phase.RELEASED, why)
    return release_all(job, now_s, why)


def _is_waited_for(job: Job, rank: int) -> bool:
    """Whether pipelines wait because this rank is held to be slow."""
    if not job.detection.verdicts or job.switch is None or not is_waiting(job, job.switch):
        return False
    return any(
        verdict.rank == rank and verdict.is_acted_upon and not verdict.is_whole_pipeline
        for verdict in job.detection.verdicts
    )


def _is_later_than_stragglers(job: Job) -> bool:
    """Whether pipelines take clearly longer than a probe has shown that they need not, beside the same stragglers.

    Plans for stragglers go by what these can be expected to take: at their own power limit, ranks that are asked for
    less meanwhile are none, and what they could reach under another plan is a guess.
    """
    assert job.switch is not None
    if not is_waiting(job, job.switch):
        return False
    waited_for = [verdict for verdict in job.detection.verdicts if verdict.is_acted_upon]
    if not waited_for or any(verdict.since_s >= job.enforcement.measured_at_s for verdict in waited_for):
        return False
    guard = job.enforcement.guard.guard
    return guard.clear_excess(partial(_allowed_s, job)) > guard.policy.tolerance


def _waiting(job: Job) -> Waiting:
    assert job.switch is not None
    if not is_waiting(job, job.switch):
        return Waiting.NONE
    acted_upon = [verdict for verdict in job.detection.verdicts if verdict.is_acted_upon]
    is_seen = bool(acted_upon) and all(verdict.is_fresh for verdict in acted_upon) and not job.detection.keeps_switch
    return Waiting.SEEN if is_seen else Waiting.BLIND


def _allowed_s(job: Job, reference_s: float) -> float:
    """[s] that target, power budgets and operators' reports allow of an iteration of ``reference_s`` at full clocks."""
    return max(max_slowdown(job) * reference_s, job.target.deadline_s or 0.0)
