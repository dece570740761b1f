"""Expected saving of plans, by the profile."""

from perseus_dist.messages.terms import NO_POINT
from perseus_dist.planner.job.facts import SwitchDecided
from perseus_dist.planner.job.frontier_summary import FrontierSummary
from perseus_dist.planner.job.job import Job
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
    times_ps = [one.time_ps[point] for one, point in zip(followed, job.switch.points, strict=True)]
    until_ps = max(baseline_until_ps, *times_ps)
    planned_uj = sum(one.total_uj[point] for one, point in zip(followed, job.switch.points, strict=True))
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
