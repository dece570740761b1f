"""A job's demand for power: what it would draw under each plan that it may follow, and what it draws now."""

from dataclasses import dataclass
from functools import lru_cache

from perseus_dist.messages.terms import NO_POINT
from perseus_dist.planner.job.frontier_summary import FrontierSummary
from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.job.state.planning import JobPlan
from perseus_dist.planner.lifecycle.enforcement.plan_choice import own_wish_point
from perseus_dist.policies.operating_points import OperatingPoints
from perseus_dist.units import PS_PER_S, UJ_PER_J

_NUM_KEPT = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """A job that is not over, as a power budget sees it.

    Attributes:
        job_id: Its name.
        points: From the plan that its own target, or a slower price policy, asks for to the slowest; one at full power
            where it has no choice.
        paces: (num_points) times the profile's iteration at full clocks that each takes; empty without a choice.
        reason: Why it has no choice; empty where it has one.
        pace: That it was last asked for; 0 for none.
        measured_w: [W] of the latest iteration that all its ranks reported; None where that is not known.
        floor: The pace that a price policy asks for; 0 for none.
        is_settled: Whether its latest switch is in effect, as far as ranks have reported.
    """

    job_id: str
    points: OperatingPoints
    paces: tuple[float, ...]
    reason: str
    pace: float
    measured_w: float | None
    is_settled: bool
    floor: float = 0.0

    def point_at(self, pace: float) -> int:
        """The point that a pace means."""
        return max((point for point, one in enumerate(self.paces) if one <= pace), default=0)


def power_degree(job: Job) -> float | None:
    """Times the planned power that iterations draw, as measured; None where that is not known.

    The self-check measures it under the plan, by twelve iterations or more of a job that is well. Until then, as after
    a restart of the planner, the baseline tells it where it is above 1: GPUs may have been held back in the baseline.
    """
    plan, baseline = job.measured.self_check.latest.plan, job.measured.baseline
    if plan is not None and plan.time_degree and plan.energy_degree:
        return plan.energy_degree / plan.time_degree
    if job.plan is None or baseline is None or not baseline.energy_j:
        return None
    return max(1.0, baseline.energy_j / baseline.time_s / _profiled_power_w(job, job.plan))


def demand_of(job: Job, degree: float = 1.0, floor: float = 0.0) -> Demand | None:
    """A job's demand; None where it is over, or nothing is known of its power.

    Args:
        job: As the planner knows it.
        degree: Times the planned power that it draws under its plans.
        floor: The pace that a price policy asks for; 0 for none.
    """
    if job.spec is None or job.phase is Phase.DONE:
        return None
    measured_w = _measured_w(job)
    points, paces, reason = _choice(job, floor)
    if points is not None:
        points = points.with_power(degree)
    else:
        full_w = _full_power_w(job) or measured_w
        if not full_w:
            return None
        time_s = job.measured.baseline.time_s if job.measured.baseline else 1.0
        points = OperatingPoints.at_full_power(full_time_s=time_s, full_power_w=full_w)
    return Demand(
        job_id=job.job_id,
        points=points,
        paces=paces,
        reason=reason,
        pace=job.pace,
        measured_w=measured_w,
        is_settled=job.switch is None or job.switch.effective_iteration <= job.progress.iteration,
        floor=floor,
    )


def _choice(job: Job, floor: float) -> tuple[OperatingPoints | None, tuple[float, ...], str]:
    """Points and paces of a job that follows a plan; else none, and why."""
    if job.plan is None:
        return None, (), f"it has no plan yet: it is {job.phase}"
    follows = job.switch is not None and NO_POINT not in job.switch.points
    if not follows or job.phase not in (Phase.ENFORCING, Phase.PLANNING):
        return None, (), f"it follows no plan: it is {job.phase}"
    return *_points(job, job.plan, floor), ""


def _points(job: Job, plan: JobPlan, floor: float) -> tuple[OperatingPoints, tuple[float, ...]]:
    """The plans from the target's on whose power falls, with what waiting for a straggler makes of them.

    Pipelines that wait until T' draw blocking power meanwhile, and follow the plan that is best for it at any pace that
    is not slower.
    """
    assert job.spec is not None
    assert job.switch is not None
    summary, waits_until_ps = plan.summary, round(job.switch.t_prime_s * PS_PER_S)
    first = max(own_wish_point(job, summary), summary.point_for_straggler(round(floor * summary.baseline_time_ps)))
    if waits_until_ps:
        first = max(first, summary.point_for_straggler(waits_until_ps))
    return _operating_points(summary, first, waits_until_ps, job.spec.dp_size)


@lru_cache(maxsize=_NUM_KEPT)
def _operating_points(
    summary: FrontierSummary, first: int, waits_until_ps: int, num_pipelines: int
) -> tuple[OperatingPoints, tuple[float, ...]]:
    """Of a frontier from a point on, until T' at least; kept, since they are asked for again and again."""

    def drawn(time_ps: int, energy_uj: int) -> tuple[float, float]:
        """[s] that an iteration lasts, and [W] of all pipelines."""
        lasts_ps = max(time_ps, waits_until_ps)
        waiting_uj = summary.total_blocking_uw * (lasts_ps - time_ps) / PS_PER_S
        return lasts_ps / PS_PER_S, num_pipelines * (energy_uj + waiting_uj) / UJ_PER_J / (lasts_ps / PS_PER_S)

    times_s: list[float] = []
    powers_w: list[float] = []
    paces: list[float] = []
    for time_ps, energy_uj in zip(summary.time_ps[first:], summary.total_uj[first:], strict=True):
        lasts_s, power_w = drawn(time_ps, energy_uj)
        if not powers_w or power_w < powers_w[-1]:
            times_s.append(lasts_s)
            powers_w.append(power_w)
            paces.append(time_ps / summary.baseline_time_ps)
    full_time_s, full_power_w = drawn(summary.baseline_time_ps, summary.baseline_uj)
    points = OperatingPoints(
        times_s=tuple(times_s), powers_w=tuple(powers_w), full_time_s=full_time_s, full_power_w=full_power_w
    )
    return points, tuple(paces)


def _full_power_w(job: Job) -> float:
    """[W] at full clocks: measured, else by the profile, else the GPUs' limits; 0 where none is known."""
    baseline = job.measured.baseline
    if baseline is not None and baseline.energy_j > 0:
        return baseline.energy_j / baseline.time_s
    if job.plan is not None:
        return _profiled_power_w(job, job.plan)
    gpus = [state.gpu for state in job.members.ranks.values()]
    limits_w = [gpu.power_limit_w or gpu.default_power_limit_w for gpu in gpus]
    return sum(limits_w) * job.num_ranks / len(limits_w) if limits_w and all(limits_w) else 0.0


def _profiled_power_w(job: Job, plan: JobPlan) -> float:
    """[W] at full clocks by the profile."""
    summary, num_pipelines = plan.summary, len(job.progress.pipelines)
    return num_pipelines * summary.baseline_uj / UJ_PER_J / (summary.baseline_time_ps / PS_PER_S)


def _measured_w(job: Job) -> float | None:
    latest = [pipeline.latest for pipeline in job.progress.pipelines]
    known = [one for one in latest if one is not None and one.energy_j is not None and one.time_s > 0]
    if not known or len(known) < len(latest):
        return None
    return sum(one.energy_j or 0.0 for one in known) / max(one.time_s for one in known)
