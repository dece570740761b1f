"""How much slack the next plan keeps for noise, by how iterations under the one in force last and vary.

A profile that says how runs spread has plans keep slack from the first on (``planning.frontier.noise_margin``). Where
it does not say so, or says too little, iterations under the fastest plan are a little late; where it says too much,
because noise is over or common to all instructions of an iteration, iterations vary by less or more than it explains.
Slack helps as well where clocks that change between instructions are late: then it does not depend on noise.
"""

import math
from statistics import median, stdev

from perseus_dist.planner.job.job import Job
from perseus_dist.planner.lifecycle.enforcement.plan_choice import own_wish_point
from perseus_dist.planner.lifecycle.enforcement.promise import excess_over_target
from perseus_dist.planner.lifecycle.transfers import transfers_are_new
from perseus_dist.planning.frontier.noise_margin import MARGINS

_LEAST_LATE, _MOST_LATE = 0.003, 0.015  # more is no noise, or iterations that waited for a straggler
_CLEARLY_LATE = 0.004  # by which a step is left out
_LEAST_NOISE = 0.0008  # of iterations; less of each instruction makes no plan late
_CLOCKS_FALL_LATE = 0.002  # by which a usual rank's instructions take less than the profile says
_Z = 4.0
_NUM_NEWEST = 8  # iterations
_EXPLAINED = 4.0  # times the noise of iterations; what makes them later than that does not end with it
_HELPED = 0.7  # of the lateness, at most, that a larger margin leaves; else noise is not its cause
_LESS_NOISE, _MORE_NOISE = 0.4, 2.5  # times what the plan is for
_MAX_CHANGES = 6  # in a run


def slack_to_plan(job: Job) -> str:
    """Why to plan again with more slack, or with as much as noise needs now; empty if there is no cause."""
    if (
        job.plan is None
        or not job.sees_instructions
        or job.awaits_frontier
        or job.planning.pending is not None
        or job.planning.num_slack_changes >= _MAX_CHANGES
    ):
        return ""
    return _more_slack(job) or _less_slack(job)


def _more_slack(job: Job) -> str:
    assert job.plan is not None
    planning, guard, summary = job.planning, job.enforcement.guard, job.plan.summary
    excess = excess_over_target(job)
    margins = [margin for margin in MARGINS if margin > summary.margin]
    if (
        not _LEAST_LATE < excess <= _MOST_LATE
        or (guard.guard.noise < _LEAST_NOISE and guard.instruction_excess > -_CLOCKS_FALL_LATE)
        or not margins
        or not _is_sure(job, excess)
    ):
        return ""
    if own_wish_point(job, summary) > 0:
        return ""  # there are faster plans
    if guard.misstated or guard.is_slower_than_profile:
        return ""  # iterations are late because a rank's instructions are
    if guard.guard.is_probe_ahead(job.progress.iteration) or transfers_are_new(job):
        return ""  # transfers may explain it, which the plan does not know
    if planning.late_then and excess > _HELPED * planning.late_then:
        return ""
    margin = margins[1] if excess > _CLEARLY_LATE and len(margins) > 1 else margins[0]
    planning.late_then = excess
    is_noise = excess <= _EXPLAINED * guard.guard.noise
    _change(job, margin, guard.guard.noise if is_noise else 0.0)
    cause = "as the noise of instructions makes them" if is_noise else "and no rank's instructions do so"
    return (
        f"iterations take {100 * excess:.1f} % longer than the target allows, {cause}: "
        f"planning with a margin of {margin:g}"
    )


def _is_sure(job: Job, excess: float) -> bool:
    """Whether iterations under the plan vary by too little for that, as they do just now."""
    full, times_s = job.measured.saving.full_now, [iteration.time_s for iteration in job.measured.enforced]
    if full is None or len(times_s) < 2:
        return False
    if median(times_s[-_NUM_NEWEST:]) < (1 - excess / 2) * median(times_s):
        return False  # what made it late is over
    noise = stdev(times_s) / median(times_s)
    return excess > _Z * noise * math.sqrt(math.pi / 2 / len(times_s) + 1 / full.num_iterations)


def _less_slack(job: Job) -> str:
    assert job.plan is not None
    guard, summary = job.enforcement.guard.guard, job.plan.summary
    if not summary.margin or not summary.noise or not guard.is_noise_known:
        return ""
    is_over = guard.noise < _LESS_NOISE * summary.noise
    is_common = guard.noise > _MORE_NOISE * summary.noise and not excess_over_target(job)
    if not is_over and not is_common:
        return ""
    job.planning.late_then = 0.0
    _change(job, 0.0, guard.noise)
    return (
        f"iterations vary by {100 * guard.noise:.2f} %, and the plan keeps slack for {100 * summary.noise:.2f} %: "
        "planning with as much as is needed"
    )


def _change(job: Job, margin: float, seen_noise: float) -> None:
    planning = job.planning
    planning.margin, planning.seen_noise = margin, seen_noise
    planning.num_slack_changes += 1
