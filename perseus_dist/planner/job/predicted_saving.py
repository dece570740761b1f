"""Expected saving of plans, by the profile."""

from perseus_dist.messages.terms import NO_POINT
from perseus_dist.planner.job.facts.decisions import SwitchDecided
from perseus_dist.planner.job.frontier_summary import FrontierSummary
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.job.self_check import SelfCheck
from perseus_dist.planner.job.state.planning import JobPlan
from perseus_dist.units import PS_PER_S


def predicted_saving(job: Job) -> float:
    """Share of energy, of the plans in force against all-maximum clocks, by the profile; 0 where there are none.

    Pipelines end an iteration together, so all of them are counted until the slowest is through: a straggler, or with
    plans that are meant to be slower, the slowest plan. A straggling pipeline on its own plan is known in full; of
    another only how long it takes.
    """
    planned_uj, baseline_uj = energies_uj(job)
    return 1 - planned_uj / baseline_uj if baseline_uj else 0.0


def saving_interval(job: Job) -> tuple[float, float] | None:
    """Ends of the interval in which the predicted saving is likely to lie; None where it is not known.

    By the profile's errors, and reaching to what the self-check shows: by how much more iterations under the plan draw
    than predicted, against those at full clocks, or take where energies are not measured.
    """
    planned_uj, baseline_uj = energies_uj(job)
    if not baseline_uj or job.plan is None or job.switch is None:
        return None
    followed = followed_frontiers(job, job.plan, job.switch)
    if not all(one.saving_low for one in followed):
        return None
    saving = 1 - planned_uj / baseline_uj
    below = above = 0.0
    for one, point in zip(followed, job.switch.points, strict=True):
        if point == one.full_point:
            continue
        own, share = 1 - one.total_uj[point] / one.baseline_uj, one.baseline_uj / baseline_uj
        below += share * (one.saving_low[point] - own)
        above += share * (one.saving_high[point] - own)
    shown = saving_shown(saving, job.measured.self_check.latest)
    return min(saving + below, shown), max(saving + above, shown)


def saving_shown(saving: float, check: SelfCheck) -> float:
    """The saving that was predicted, as far as the self-check changes it.

    Args:
        saving: Share, as predicted.
        check: What is not known of it changes nothing.
    """
    full, plan = check.full, check.plan
    if full is None or plan is None:
        return saving
    if full.energy_degree and plan.energy_degree:
        return 1 - (1 - saving) * plan.energy_degree / full.energy_degree
    if full.time_degree and plan.time_degree:
        return 1 - (1 - saving) * plan.time_degree / full.time_degree
    return saving


def energies_uj(job: Job) -> tuple[int, int]:
    """[uJ] of an iteration by the plans in force, and at all-maximum clocks; 0 where there are no plans."""
    if job.plan is None or job.switch is None or NO_POINT in job.switch.points:
        return 0, 0
    summary, num = job.plan.summary, len(job.switch.points)
    followed = followed_frontiers(job, job.plan, job.switch)
    slowest = max((known.degree for known in job.stragglers.values()), default=1.0)
    baseline_until_ps = max(
        round(slowest * summary.baseline_time_ps),
        round(job.switch.t_prime_s * PS_PER_S),
        *(one.baseline_time_ps for one in followed),
    )
    times_ps = [one.planned_ps(point) for one, point in zip(followed, job.switch.points, strict=True)]
    until_ps = max(baseline_until_ps, *times_ps)
    planned_uj = sum(one.planned_uj(point) for one, point in zip(followed, job.switch.points, strict=True))
    planned_uj += _waiting_uj(summary, num * until_ps - sum(times_ps))
    baseline_uj = sum(one.baseline_uj for one in followed)
    baseline_uj += _waiting_uj(summary, num * baseline_until_ps - sum(one.baseline_time_ps for one in followed))
    return planned_uj, baseline_uj


def followed_frontiers(job: Job, plan: JobPlan, switch: SwitchDecided) -> list[FrontierSummary]:
    """The frontier that each pipeline's point is of."""
    owns = [job.straggler_plan_in_force(dp_rank) for dp_rank in range(len(switch.points))]
    return [own.summary if own else plan.summary for own in owns]


def _waiting_uj(summary: FrontierSummary, time_ps: int) -> int:
    return summary.total_blocking_uw * time_ps // PS_PER_S
