"""The prediction against the job: what iterations were to take and what they do take, said and learnt.

An iteration may take time that no instruction and no transfer does, such as a host's work between iterations. What full
clocks and the plan show of it alike is a constant, which the next plan counts at the end of each iteration.
"""

from perseus_dist.messages.terms import NO_ITERATION, NO_POINT
from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.job.measured_iterations import measured_iterations
from perseus_dist.planner.job.predicted_saving import energies_uj, followed_frontiers
from perseus_dist.planner.job.self_check import LIMIT, Comparison, constant_s, self_check
from perseus_dist.planner.lifecycle.events import Effect, Log
from perseus_dist.planner.lifecycle.transfers import transfers_are_new
from perseus_dist.units import PS_PER_S, UJ_PER_J

_MIN_PLANNED = 12
"""Iterations under the plan in force, before they are compared: a straggler is found within fewer, and a plan that a
profile has misled lasts for more before the guard drops it."""
_MIN_INTERVAL_S = 30.0  # between two lessons; each doubles it, since what comes and goes is no constant
_MAX_DOUBLINGS = 12
_MOST_EXTRA = 0.5  # of what the profile predicts; more is no host's work, but a profile of other work


def compare_prediction(job: Job, now_s: float) -> list[Effect]:
    """Compare what the profile predicts with what is measured, and say once for each table where that is far apart.

    The prediction is of a job that is well: while a rank is known to be slow, earlier figures stand. So do those under
    the plan until there are new ones; where clocks are released, those at full clocks are all.
    """
    watch = job.measured.self_check
    if not _is_well(job):
        job.measured.slow_at = job.progress.iteration
        return []
    if job.plan is None or job.phase not in (Phase.ENFORCING, Phase.RELEASED) or job.is_swept:
        return []
    full, plan = _at_full_clocks(job), _under_plan(job)
    is_kept = plan is None and watch.latest.plan is not None and job.phase is Phase.ENFORCING
    if is_kept or (full is None and plan is None):
        return []
    found = self_check(
        full,
        plan,
        noise=job.enforcement.guard.guard.noise,
        instructions=job.enforcement.guard.instruction_excess,
        varying_transfers_s=job.measured.varying_transfers_s,
    )
    if not watch.update(found):
        return []
    job.history.add("self_check", watch.sentence, now_s=now_s, iteration=job.progress.iteration)
    job.num_changes += 1
    return [Log(sentence=watch.sentence)]


def learn(job: Job, now_s: float) -> str:
    """Learn how much longer iterations take than instructions and transfers say; why to plan again, or empty.

    Full clocks alone teach it where a deadline is to be kept, which no plan can that does not know it. What a rank that
    was slow made of iterations teaches nothing: those since then do.
    """
    planning = job.planning
    interval_s = _MIN_INTERVAL_S * 2.0 ** min(planning.num_lessons - 1, _MAX_DOUBLINGS)
    is_held_back = bool(job.profiling.held_back_s)  # GPUs were slow for heat or a power cap when they were measured
    if job.plan is None or job.awaits_frontier or planning.pending is not None or is_held_back:
        return ""
    if job.is_swept or not _is_well(job) or not _has_been_well(job):
        return ""
    if planning.num_lessons and now_s < planning.learnt_at_s + interval_s:
        return ""
    guard = job.enforcement.guard
    if guard.guard.is_probe_ahead(job.progress.iteration) or transfers_are_new(job):
        return ""  # transfers of the probe may explain it, and are known by its last iteration
    if guard.misstated or guard.is_off_profile:
        return ""  # a rank's instructions are not as in the profile, and longer iterations may be theirs
    full, plan = _at_full_clocks(job), _under_plan(job)
    if full is None or (plan is None and job.target.deadline_s is None):
        return ""
    newest_s = guard.guard.reference_s or full.measured_s
    if abs(newest_s / full.measured_s - 1) > LIMIT + full.doubt(guard.guard.noise):
        return ""  # the machines are in another state than was measured for long
    if plan is not None and abs(job.measured.enforced[-1].time_s / plan.measured_s - 1) > LIMIT + 4 * guard.guard.noise:
        return ""  # the same under the plan, before any probe tells
    found_s = constant_s(full, plan, instructions=guard.instruction_excess)
    extra_s = max(0.0, job.plan.extra_s + found_s)
    found_s = extra_s - job.plan.extra_s
    if extra_s > _MOST_EXTRA * (full.predicted_s - job.plan.extra_s):
        return ""
    doubt = max(one.doubt(guard.guard.noise) for one in (full, plan) if one)
    if abs(found_s) <= (LIMIT + doubt) * full.predicted_s:
        return ""
    planning.extra_s, planning.learnt_at_s = extra_s, now_s
    planning.num_lessons += 1
    longer = "longer" if found_s > 0 else "shorter"
    why = (
        f"iterations take {1e3 * abs(found_s):.1f} ms {longer} than instructions and transfers explain, whatever the "
        f"clocks: planning with {1e3 * extra_s:.1f} ms at the end of each"
    )
    job.history.add("self_check", why, now_s=now_s, iteration=job.progress.iteration)
    return why


def _is_well(job: Job) -> bool:
    """Whether no rank is known to be slow, or waited for."""
    switch = job.switch
    is_waiting = job.detection.keeps_switch or (switch is not None and switch.t_prime_s > 0)
    return not (is_waiting or job.detection.verdicts or job.stragglers)


def _has_been_well(job: Job) -> bool:
    """Whether a probe and enough iterations under the plan have come since a rank was known to be slow."""
    slow_at, probed = job.measured.slow_at, job.measured.probed
    if slow_at == NO_ITERATION:
        return True
    num_planned = sum(one.number > slow_at for one in job.measured.enforced)
    return bool(probed) and probed[-1].number > slow_at and num_planned >= _MIN_PLANNED


def _at_full_clocks(job: Job) -> Comparison | None:
    """The state of the machines that is met now, or the run's baseline."""
    assert job.plan is not None
    assert job.spec is not None
    full = job.measured.saving.full_now
    measured = full if full and full.num_iterations else job.measured.baseline
    if measured is None:
        return None
    summary = job.plan.summary
    predicted_s = summary.of_many * summary.baseline_time_ps / PS_PER_S
    return Comparison(
        predicted_s=_in_nearest_case(predicted_s, measured.time_s, summary.case_factor),
        measured_s=measured.time_s,
        predicted_j=job.spec.dp_size * summary.baseline_uj / UJ_PER_J,
        measured_j=measured.energy_j,
        num_iterations=measured.num_iterations,
    )


def _under_plan(job: Job) -> Comparison | None:
    if (
        job.plan is None
        or job.switch is None
        or NO_POINT in job.switch.points
        or len(job.measured.enforced) < _MIN_PLANNED
    ):
        return None
    measured, followed = (
        measured_iterations(job.measured.enforced),
        followed_frontiers(job, job.plan, job.switch),
    )
    planned_uj, _ = energies_uj(job)
    alone_ps = max(one.planned_ps(at) for one, at in zip(followed, job.switch.points, strict=True))
    predicted_s = job.plan.summary.of_many * alone_ps / PS_PER_S
    return Comparison(
        predicted_s=_in_nearest_case(predicted_s, measured.time_s, job.plan.summary.case_factor),
        measured_s=measured.time_s,
        predicted_j=planned_uj / UJ_PER_J,
        measured_j=measured.energy_j,
        num_iterations=measured.num_iterations,
    )


def _in_nearest_case(quickest_s: float, measured_s: float, case_factor: float) -> float:
    """[s] of the quickest case that plans are on time in, or the slowest, as with a slow link, or what lies between."""
    return min(max(quickest_s, measured_s), quickest_s * case_factor)
