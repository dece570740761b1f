"""Shares power budgets between the jobs that they cover, and says what came of it: pure functions of all there is.

A job that several budgets cover goes at the slowest of the paces that they ask for, so that each of them is kept.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from perseus_dist.planner.budget.demand import Demand
from perseus_dist.planner.job.facts.policies import BudgetSet, LoadTargetSet
from perseus_dist.policies.power_budget import Member, Objective, share_power

_SMALL_STEP = 0.005  # of a pace; less is not worth a switch where all who stay cost hardly more
_NEAR_COST = 1.005  # times the least; with what sharing itself is off, within a hundredth of the exact optimum
_EXACT = 1 + 1e-9
_MAX_EXCHANGING = 32  # jobs, in 30 ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A job's part of a budget.

    Attributes:
        demand: Of the job.
        weight: By which its slowdown counts.
        max_slowdown: Times an iteration at full clocks that one may take; 0 for no limit.
        point: Of its operating points.
        budget: Name of the budget that asks for it.
        holds_probes: Whether the cap leaves no room for its probes at full clocks now.
    """

    demand: Demand
    weight: float
    max_slowdown: float
    point: int
    budget: str
    holds_probes: bool = False

    @property
    def pace(self) -> float:
        """The pace to ask for: the budget's if slower, else the price policy's, or 0 for the own target."""
        return self.demand.paces[self.point] if self.point else self.demand.floor

    @property
    def power_w(self) -> float:
        """[W] planned of the chosen point."""
        return self.demand.points.powers_w[self.point]


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetState:
    """A budget and its group, now.

    Attributes:
        budget: As it was set.
        cap_w: [W] that the group may draw now; None for no limit.
        load_target: Name of the load target that makes the cap; empty where the budget itself does.
        shares: Of the jobs that it covers, by name.
        least_w: [W] that they draw at their slowest.
        unknown: Jobs that it covers whose power nothing is known of, and which are not counted.
        slowdown_bound: Lower bound of the weighted slowdown within the cap; None without a cap or without a job.
    """

    budget: BudgetSet
    cap_w: float | None
    load_target: str
    shares: tuple[Share, ...]
    least_w: float
    unknown: tuple[str, ...]
    slowdown_bound: float | None = None

    @property
    def weighted_slowdown(self) -> float | None:
        """The sum of the jobs' weighted slowdowns, or the largest, as the objective says; None without a cap."""
        if self.slowdown_bound is None:
            return None
        total, largest = _costs(self.shares, [share.point for share in self.shares])
        return largest if self.budget.objective == Objective.MAX_MIN else total

    @property
    def job_ids(self) -> tuple[str, ...]:
        """All jobs that it covers."""
        return (*(share.demand.job_id for share in self.shares), *self.unknown)

    @property
    def planned_w(self) -> float:
        """[W] of all its jobs together, by their profiles."""
        return sum(share.power_w for share in self.shares)

    @property
    def measured_w(self) -> float | None:
        """[W] of all by their latest iterations; None while that of one is not known."""
        measured = [share.demand.measured_w for share in self.shares]
        known = [watts for watts in measured if watts is not None]
        return sum(known) if len(known) == len(measured) and not self.unknown else None

    @property
    def is_met(self) -> bool:
        """Whether what is planned keeps cap and guard band."""
        return self.cap_w is None or self.planned_w <= self.usable_w * _EXACT

    @property
    def usable_w(self) -> float:
        """[W] of the cap below the guard band; of no use without a cap."""
        return (self.cap_w or 0.0) * (1 - self.budget.guard_band)

    @property
    def troubles(self) -> tuple[str, ...]:
        """A sentence for whatever of the budget is not kept."""
        found = []
        if not self.is_met:
            band = f", {self.usable_w:,.0f} W with its guard band," if self.budget.guard_band else ""
            found.append(
                f"the cap of {self.cap_w:,.0f} W{band} cannot be kept: {self.planned_w:,.0f} W are planned, and "
                f"{self.least_w:,.0f} W is the least that its jobs can draw within their limits"
            )
        if self.unknown:
            found.append(f"nothing is known of the power of {', '.join(self.unknown)}, which is not counted")
        room_w = self.room_w
        if self.cap_w is not None and room_w >= 0:
            held = [one.demand.job_id for one in self.shares if one.holds_probes and _probe_w(one) > room_w]
            if held:
                found.append(
                    f"no probe at full clocks fits below the cap for {', '.join(held)}: a wider guard band gives room"
                )
        return tuple(found)

    def troubles_for(self, visible: Collection[str]) -> tuple[str, ...]:
        """The troubles for a caller who may see these jobs alone: no sentence names another one."""
        return replace(
            self,
            shares=tuple(
                replace(share, holds_probes=share.holds_probes and share.demand.job_id in visible)
                for share in self.shares  # all of them: what is planned is of the whole group
            ),
            unknown=tuple(job_id for job_id in self.unknown if job_id in visible),
        ).troubles

    @property
    def room_w(self) -> float:
        """[W] between the planned power and the cap, the guard band included."""
        return math.inf if self.cap_w is None else self.cap_w * _EXACT - self.planned_w


def covers(patterns: Collection[str], job_id: str) -> bool:
    """Whether patterns of job names cover a job; none cover all."""
    return not patterns or any(fnmatchcase(job_id, pattern) for pattern in patterns)


def cap_of(budget: BudgetSet, load_targets: Iterable[LoadTargetSet], now_s: float) -> tuple[float | None, str]:
    """[W] that a budget allows at a Unix time, None for any, and the name of the load target that says so."""
    caps = [(budget.watts, "")] if budget.watts else []
    caps += [
        (target.watts, target.name)
        for target in load_targets
        if target.budget == budget.name and target.start_s <= now_s < target.end_s
    ]
    return min(caps, default=(None, ""))


def share_budget(
    budget: BudgetSet, cap: tuple[float | None, str], demands: Sequence[Demand], unknown: Sequence[str] = ()
) -> BudgetState:
    """One budget, shared between the jobs that it covers.

    Args:
        budget: To share.
        cap: As ``cap_of`` gives it.
        demands: Of jobs, covered or not.
        unknown: Names of jobs that cannot be counted, covered or not.
    """
    shares = [
        Share(
            demand=demand,
            weight=_of_first(budget.weights, demand.job_id, 1.0),
            max_slowdown=_of_first(budget.max_slowdowns, demand.job_id, 0.0),
            point=0,
            budget=budget.name,
        )
        for demand in demands
        if covers(budget.jobs, demand.job_id)
    ]
    members = [
        Member(
            name=share.demand.job_id,
            points=share.demand.points,
            weight=share.weight,
            max_slowdown=share.max_slowdown - 1 if share.max_slowdown else None,
        )
        for share in shares
    ]
    cap_w, load_target = cap
    least_w = 0.0
    slowdown_bound: float | None = None
    points: Sequence[int] = [0] * len(shares)
    if members and cap_w is not None:
        shared = share_power(
            members,
            cap_w,
            objective=Objective(budget.objective),
            guard_band=budget.guard_band,
            exchanges_up_to=_MAX_EXCHANGING,
        )
        points, least_w, slowdown_bound = shared.points, shared.least_power_w, shared.cost_bound
        kept = [_kept_point(share, point) for share, point in zip(shares, points, strict=True)]
        kept_w = sum(share.demand.points.powers_w[point] for share, point in zip(shares, kept, strict=True))
        if kept_w <= shared.usable_w and _cost_hardly_more(shares, kept, points, Objective(budget.objective)):
            points = kept
    return BudgetState(
        budget=budget,
        cap_w=cap_w,
        load_target=load_target,
        shares=tuple(replace(share, point=point) for share, point in zip(shares, points, strict=True)),
        least_w=least_w,
        unknown=tuple(job_id for job_id in unknown if covers(budget.jobs, job_id)),
        slowdown_bound=slowdown_bound,
    )


def reconcile(states: Sequence[BudgetState], turn: int) -> list[BudgetState]:
    """Let each job go at the slowest pace that any budget asks for, and probe where caps leave room.

    Where not all jobs of a group can probe at the same time, those that can take turns, whatever budget they are of.

    Args:
        states: Of budgets, each shared for itself.
        turn: Counts up from time to time.
    """
    slowest: dict[str, Share] = {}
    for share in (share for state in states for share in state.shares):
        known = slowest.setdefault(share.demand.job_id, share)
        if share.point > known.point:
            slowest[share.demand.job_id] = share

    def slowed(share: Share) -> Share:
        asked = slowest[share.demand.job_id]
        return replace(share, point=asked.point, budget=asked.budget)

    states = [replace(state, shares=tuple(map(slowed, state.shares))) for state in states]
    tight: set[str] = set()
    crowded: set[str] = set()
    for state in states:
        room_w = state.room_w
        if sum(map(_probe_w, state.shares)) > room_w:
            tight |= {share.demand.job_id for share in state.shares if _probe_w(share) > 0}
            crowded |= {share.demand.job_id for share in state.shares if _probe_w(share) > room_w}
    fitting = sorted(tight - crowded)
    held = tight - ({fitting[turn % len(fitting)]} if fitting else set())
    return [
        replace(state, shares=tuple(replace(share, holds_probes=share.demand.job_id in held) for share in state.shares))
        for state in states
    ]


def _probe_w(share: Share) -> float:
    """[W] that a probe draws more than is planned."""
    return max(0.0, share.demand.points.full_power_w - share.power_w)


def _kept_point(share: Share, wanted: int) -> int:
    """The point of the present pace, where the one that is wanted hardly differs."""
    demand = share.demand
    if not demand.paces or not demand.pace or not wanted:
        return wanted
    kept = demand.point_at(demand.pace)
    is_allowed = not share.max_slowdown or 1 + demand.points.slowdown(kept) <= share.max_slowdown * _EXACT
    is_near = abs(demand.paces[wanted] / demand.pace - 1) <= _SMALL_STEP
    return kept if is_near and is_allowed else wanted


def _cost_hardly_more(shares: Sequence[Share], kept: Sequence[int], best: Sequence[int], objective: Objective) -> bool:
    """Whether all together are slowed hardly more at the one choice of points than at the other.

    Slowdowns are small where a cap hardly binds: there a small step of each job may be most of them.
    """
    (total, largest), (best_total, best_largest) = _costs(shares, kept), _costs(shares, best)
    is_fair = objective is not Objective.MAX_MIN or largest <= best_largest * _NEAR_COST
    return is_fair and total <= best_total * _NEAR_COST


def _costs(shares: Sequence[Share], points: Sequence[int]) -> tuple[float, float]:
    """The sum of the weighted slowdowns at points, and the largest."""
    found = [
        share.weight * max(0.0, share.demand.points.slowdown(point))
        for share, point in zip(shares, points, strict=True)
    ]
    return sum(found), max(found, default=0.0)


def _of_first(values: Iterable[tuple[str, float]], job_id: str, otherwise: float) -> float:
    return next((value for pattern, value in values if fnmatchcase(job_id, pattern)), otherwise)
