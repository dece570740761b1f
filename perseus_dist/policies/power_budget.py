"""Shares a power budget between jobs: which plan each follows, so that all together draw no more than the cap.

Either the sum of weighted slowdowns is least, or the largest of them is. The first is water-filling over the convex
hulls of slowdown by power, whose cost no choice of plans can beat; jobs take whole plans, so that the one job between
two of them takes the slower, and what is left over goes to whichever jobs it helps most; then pairs of jobs exchange
watts as long as that helps. Where the bound does not show that few jobs are near the optimum, since a cap that hardly
binds leaves them few plans, a search finds such a choice. The second is exact.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations

from perseus_dist.errors import PlanningError
from perseus_dist.policies.least_cost import least_cost
from perseus_dist.policies.operating_points import OperatingPoints
from perseus_dist.policies.water_filling import divide, lower_hull

_NEAR = 0.004  # of the optimum, with the least sum of weighted slowdowns
_MAX_SEARCHED = 32  # jobs


class Objective(StrEnum):
    """The purpose that a budget is shared for.

    Attributes:
        TOTAL: The least sum of weighted slowdowns.
        MAX_MIN: The least of the largest weighted slowdown, and the least sum with it.
    """

    TOTAL = "total"
    MAX_MIN = "max-min"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A job that shares a budget.

    Attributes:
        name: For people.
        points: Of the job.
        weight: By which its slowdown counts; positive.
        max_slowdown: Share by which its iterations may become longer; None for as slow as its plans go.
    """

    name: str
    points: OperatingPoints
    weight: float = 1.0
    max_slowdown: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """A budget, shared.

    Attributes:
        points: (num_members) of each member's operating points.
        power_w: [W] of all together.
        cap_w: [W] the cap.
        usable_w: [W] that they may draw: the cap less the guard band.
        least_power_w: [W] that they draw at their slowest; where ``usable_w`` is less, they run there.
        cost: The sum of weighted slowdowns, or the largest.
        cost_bound: No choice of plans within the cap has a lower one; that of the slowest where the cap cannot be met.
        slowdown_per_w: By which the sum of weighted slowdowns would fall for each watt more; 0 where none is slowed.
    """

    points: tuple[int, ...]
    power_w: float
    cap_w: float
    usable_w: float
    least_power_w: float
    cost: float
    cost_bound: float
    slowdown_per_w: float

    @property
    def is_met(self) -> bool:
        """Whether the cap is kept, and the guard band below it."""
        return self.power_w <= self.usable_w * (1 + 1e-12)


def share_power(
    members: Sequence[Member],
    cap_w: float,
    *,
    objective: Objective = Objective.TOTAL,
    guard_band: float = 0.0,
    exchanges_up_to: int | None = None,
) -> Shares:
    """Choose each member's operating point.

    Args:
        members: At least one.
        cap_w: [W] Positive.
        objective: What for.
        guard_band: Share of the cap to stay below it, for peaks; from 0 to below 1.
        exchanges_up_to: The most members among which pairs exchange watts to lower the cost; the time for that grows
            with the square of their number. Among more the cost is close to its bound without. None for no limit.

    Raises:
        PlanningError: A number out of its range, or no member.
    """
    _check(members, cap_w, guard_band)
    usable_w = cap_w * (1 - guard_band)
    allowed = [_allowed(member) for member in members]
    costs = [
        [member.weight * max(0.0, points.slowdown(k)) for k in range(len(points.times_s))]
        for member, points in zip(members, allowed, strict=True)
    ]
    slowest = [len(points.times_s) - 1 for points in allowed]
    least_power_w = sum(points.powers_w[-1] for points in allowed)
    curves = [lower_hull(points.powers_w, cost) for points, cost in zip(allowed, costs, strict=True)]
    division = divide(curves, usable_w)
    chosen = slowest
    total_bound = division.cost
    cost, bound = sum(cost[-1] for cost in costs), total_bound
    if least_power_w <= usable_w:
        if objective is Objective.MAX_MIN:
            chosen = _least_maximum(allowed, costs, usable_w)
            bound = max(cost[k] for cost, k in zip(costs, chosen, strict=True))
        else:
            # Watts ascend along a hull, so its last vertex reached is the slower plan of the two.
            chosen = [curve.points[at.vertex] for curve, at in zip(curves, division.positions, strict=True)]
        chosen = _spend(allowed, costs, chosen, usable_w)
        if objective is Objective.TOTAL and len(members) <= (exchanges_up_to or len(members)):
            chosen = _exchange(allowed, costs, chosen, usable_w)
            chosen = _searched(allowed, costs, chosen, usable_w, total_bound)
    at = [cost[k] for cost, k in zip(costs, chosen, strict=True)]
    cost = max(at) if objective is Objective.MAX_MIN else sum(at)
    return Shares(
        points=tuple(chosen),
        power_w=sum(points.powers_w[k] for points, k in zip(allowed, chosen, strict=True)),
        cap_w=cap_w,
        usable_w=usable_w,
        least_power_w=least_power_w,
        cost=cost,
        cost_bound=max(0.0, min(bound, cost)),  # sums of floats may lie below what no cost does
        slowdown_per_w=-min(0.0, division.multiplier),
    )


def _check(members: Sequence[Member], cap_w: float, guard_band: float) -> None:
    if not members:
        raise PlanningError("members: saw none, expected one or more")
    if not 0 < cap_w < float("inf"):
        raise PlanningError(f"cap_w: saw {cap_w:g}, expected a positive number of watts")
    if not 0 <= guard_band < 1:
        raise PlanningError(f"guard_band: saw {guard_band:g}, expected from 0 to below 1")
    for member in members:
        if not 0 < member.weight < float("inf"):
            raise PlanningError(f"{member.name}: weight: saw {member.weight:g}, expected a positive number")
        if member.max_slowdown is not None and not member.max_slowdown >= 0:
            raise PlanningError(f"{member.name}: max_slowdown: saw {member.max_slowdown:g}, expected 0 or more")


def _allowed(member: Member) -> OperatingPoints:
    return member.points if member.max_slowdown is None else member.points.no_slower_than(member.max_slowdown)


def _least_maximum(allowed: Sequence[OperatingPoints], costs: Sequence[Sequence[float]], cap_w: float) -> list[int]:
    """The slowest plans within the least limit of weighted slowdown that keeps the cap."""
    limits = sorted({cost for one in costs for cost in one})
    low, high = 0, len(limits) - 1  # the last one allows all to be at their slowest
    while low < high:
        middle = (low + high) // 2
        if _within(allowed, costs, limits[middle], cap_w) is None:
            low = middle + 1
        else:
            high = middle
    chosen = _within(allowed, costs, limits[low], cap_w)
    assert chosen is not None  # all at their slowest keep the cap
    return chosen


def _within(
    allowed: Sequence[OperatingPoints], costs: Sequence[Sequence[float]], limit: float, cap_w: float
) -> list[int] | None:
    """The slowest plans within a limit of weighted slowdown; None if they draw more than the cap."""
    # A job that cannot be as fast as that is as fast as it can.
    chosen = [max((k for k, cost in enumerate(one) if cost <= limit), default=0) for one in costs]
    power_w = sum(points.powers_w[k] for points, k in zip(allowed, chosen, strict=True))
    return chosen if power_w <= cap_w else None


def _spend(
    allowed: Sequence[OperatingPoints], costs: Sequence[Sequence[float]], chosen: Sequence[int], cap_w: float
) -> list[int]:
    """Give what the cap leaves over to the jobs whose weighted slowdown it makes smallest, plan by plan."""
    spent = list(chosen)
    left_w = cap_w - sum(points.powers_w[k] for points, k in zip(allowed, spent, strict=True))
    while True:
        gains = [
            (costs[job][spent[job]] - costs[job][k], points.powers_w[k] - points.powers_w[spent[job]], job, k)
            for job, points in enumerate(allowed)
            for k in range(spent[job])
            if points.powers_w[k] - points.powers_w[spent[job]] <= left_w
        ]
        gain, watts, job, point = max(gains, key=lambda one: (one[0], -one[1]), default=(0.0, 0.0, 0, 0))
        if gain <= 0:
            return spent
        spent[job] = point
        left_w -= watts


def _exchange(
    allowed: Sequence[OperatingPoints], costs: Sequence[Sequence[float]], chosen: Sequence[int], cap_w: float
) -> list[int]:
    """Let pairs of jobs share their watts and what the cap leaves over as well as they can, until no pair gains."""
    best = list(chosen)
    left_w = cap_w - sum(points.powers_w[k] for points, k in zip(allowed, best, strict=True))
    has_gained = True
    while has_gained:
        has_gained = False
        for one, other in combinations(range(len(allowed)), 2):
            before_w = allowed[one].powers_w[best[one]] + allowed[other].powers_w[best[other]]
            found = _best_pair(allowed[one], costs[one], allowed[other], costs[other], before_w + left_w)
            if found is not None and found[0] < (costs[one][best[one]] + costs[other][best[other]]) * (1 - 1e-9):
                _, best[one], best[other] = found
                left_w += before_w - allowed[one].powers_w[best[one]] - allowed[other].powers_w[best[other]]
                has_gained = True
    return best


def _searched(
    allowed: Sequence[OperatingPoints],
    costs: Sequence[Sequence[float]],
    chosen: Sequence[int],
    cap_w: float,
    bound: float,
) -> list[int]:
    """A choice near the optimum; the one that is known, where the bound shows that it is, or where jobs are many."""
    known = sum(cost[k] for cost, k in zip(costs, chosen, strict=True))
    if not known or known - bound <= _NEAR * known or len(allowed) > _MAX_SEARCHED:
        return list(chosen)
    found = least_cost(costs, [points.powers_w for points in allowed], cap_w, known, _NEAR)
    return list(chosen) if found is None else found


def _best_pair(
    one: OperatingPoints, one_costs: Sequence[float], other: OperatingPoints, other_costs: Sequence[float], cap_w: float
) -> tuple[float, int, int] | None:
    """The cost and the points of two jobs that together keep a cap at the least cost; None where none do.

    Powers fall and costs rise from point to point, so the faster the one is, the slower the other must be.
    """
    best: tuple[float, int, int] | None = None
    k = len(other.powers_w)  # of the other's points, the fastest that fits beside this one
    for point, power_w in enumerate(one.powers_w):
        while k > 0 and power_w + other.powers_w[k - 1] <= cap_w:
            k -= 1
        if k < len(other.powers_w):
            cost = one_costs[point] + other_costs[k]
            if best is None or cost < best[0]:
                best = (cost, point, k)
    return best
