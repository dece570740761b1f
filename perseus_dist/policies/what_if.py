"""Plays policies over a horizon: jobs that follow a price and keep caps, without a planner, a GPU or a clock."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from perseus_dist.errors import PlanningError
from perseus_dist.policies.operating_points import OperatingPoints
from perseus_dist.policies.pace import Slot, constant_pace, pace
from perseus_dist.policies.power_budget import Member, share_power
from perseus_dist.policies.rolling import Forecast

_DONE = 1e-9  # share of a job's iterations that rounding may leave
_LEAST_S = 1e-6
_EXCHANGES_UP_TO = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A job, and what it is to do.

    Attributes:
        member: With its operating points, its weight and its limit.
        iterations: By the end of the horizon; positive.
    """

    member: Member
    iterations: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cap:
    """A limit of the power of all jobs together.

    Attributes:
        start_s, end_s: [s] from the begin of the horizon.
        watts: [W] positive.
    """

    start_s: float
    end_s: float
    watts: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """A job's part of an outcome.

    Attributes:
        name: Of the job.
        done: Iterations.
        finish_s: [s] from the begin of the horizon until the last iteration ends; None where some are not done.
        energy_j: [J].
        cost: Of the energy, in the unit of the prices.
    """

    name: str
    done: float
    finish_s: float | None
    energy_j: float
    cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Results of all jobs together.

    Attributes:
        jobs: (num_works).
        peak_w: [W] the most that they drew together.
        over_s: [s] in which they drew more than a cap less its guard band.
    """

    jobs: tuple[JobOutcome, ...]
    peak_w: float
    over_s: float

    @property
    def energy_j(self) -> float:
        """[J] of all jobs."""
        return sum(job.energy_j for job in self.jobs)

    @property
    def cost(self) -> float:
        """Summed over all jobs, in the signal's unit."""
        return sum(job.cost for job in self.jobs)

    @property
    def finish_s(self) -> float | None:
        """[s] when the last job has finished; None where one does not."""
        ends = [job.finish_s for job in self.jobs]
        return max((end for end in ends if end is not None), default=0.0) if None not in ends else None


@dataclass(frozen=True, slots=True)
class _Draw:
    """Iterations a second, and watts, until a moment; of which operating point, where it is one."""

    until_s: float
    rate: float
    power_w: float
    point: int = -1


_Choice = Callable[[int, int, float, float], list[_Draw]]
"""(job, slot, its begin [s], iterations left) -> what the job would do in it; the last draw lasts to its end."""


def follow_policies(
    works: Sequence[Work],
    slots: Sequence[Slot],
    caps: Sequence[Cap] = (),
    *,
    guard_band: float = 0.0,
    follows_prices: bool = True,
    forecast: Forecast | None = None,
) -> Outcome:
    """Jobs that follow prices, each as if it were alone, and are slowed further wherever a cap wants that.

    Args:
        works: At least one.
        slots: The horizon, with the prices that are paid.
        caps: The least of those that hold counts.
        guard_band: Share of each cap to stay below it.
        follows_prices: Else jobs are as fast as caps allow.
        forecast: What is known of prices when; None for all of them ahead.

    Raises:
        PlanningError: A number out of its range, or no job or slot.
    """

    def choose(job: int, slot: int, begin_s: float, left: float) -> list[_Draw]:
        points = _allowed(works[job].member)
        if not follows_prices:
            return [_at(points, 0)]
        ahead = slots[slot:]
        if forecast is not None:
            expected = forecast(slot)
            ahead = [replace(one, price=price) for one, price in zip(ahead, expected, strict=True)]
        draws, until_s = [], begin_s
        for stretch in pace(points, ahead, left).stretches[0]:
            until_s += stretch.duration_s
            draws.append(_at(points, stretch.point, until_s))
        return draws or [_at(points, 0)]

    return _play(works, slots, caps, choose, keeps_caps=True, guard_band=guard_band)


def always_fastest(
    works: Sequence[Work], slots: Sequence[Slot], caps: Sequence[Cap] = (), *, guard_band: float = 0.0
) -> Outcome:
    """All jobs at the fastest of their plans, T_min; caps are not kept, and it is counted for how long.

    Raises:
        PlanningError: As ``follow_policies``.
    """
    return _play(works, slots, caps, lambda job, *_: [_at(works[job].member.points, 0)], guard_band=guard_band)


def constant_paces(
    works: Sequence[Work],
    slots: Sequence[Slot],
    finishes_s: Sequence[float],
    caps: Sequence[Cap] = (),
    *,
    guard_band: float = 0.0,
) -> Outcome:
    """Each job at the constant pace that finishes when it should; caps are not kept, and it is counted for how long.

    Args:
        works: At least one.
        slots: The horizon.
        finishes_s: (num_works) [s] from its begin.
        caps: To count by.
        guard_band: Share of each cap to count as above it.

    Raises:
        PlanningError: As ``follow_policies``.
    """
    _check(works, slots, caps)
    draws = []
    for work, finish_s in zip(works, finishes_s, strict=True):
        alone = constant_pace(work.member.points, [Slot(duration_s=finish_s, price=1.0)], work.iterations, finish_s)
        draws.append(_Draw(math.inf, alone.iterations / alone.finish_s, alone.energy_j / alone.finish_s))
    return _play(works, slots, caps, lambda job, *_: [draws[job]], guard_band=guard_band)


def _check(works: Sequence[Work], slots: Sequence[Slot], caps: Sequence[Cap]) -> None:
    if not works or not slots:
        raise PlanningError(f"saw {len(works)} jobs and {len(slots)} slots, expected one of each at least")
    for work in works:
        if not 0 < work.iterations < math.inf:
            raise PlanningError(f"{work.member.name}: iterations: saw {work.iterations:g}, expected a positive number")
    for cap in caps:
        if not cap.watts > 0 or not cap.start_s < cap.end_s:
            raise PlanningError(f"caps: saw {cap}, expected positive watts and an end behind the start")


def _allowed(member: Member) -> OperatingPoints:
    return member.points if member.max_slowdown is None else member.points.no_slower_than(member.max_slowdown)


def _at(points: OperatingPoints, point: int, until_s: float = math.inf) -> _Draw:
    return _Draw(until_s, 1 / points.times_s[point], points.powers_w[point], point)


def _play(
    works: Sequence[Work],
    slots: Sequence[Slot],
    caps: Sequence[Cap],
    choose: _Choice,
    *,
    keeps_caps: bool = False,
    guard_band: float = 0.0,
) -> Outcome:
    """Go from event to event: a slot begins, a stretch or a cap ends, a job has finished."""
    _check(works, slots, caps)
    left = [work.iterations for work in works]
    finishes_s: list[float | None] = [None] * len(works)
    energies_j, costs = [0.0] * len(works), [0.0] * len(works)
    peak_w = over_s = end_s = 0.0
    edges_s = sorted({edge_s for cap in caps for edge_s in (cap.start_s, cap.end_s)})
    for index, slot in enumerate(slots):
        now_s, end_s = end_s, end_s + slot.duration_s
        running = [job for job, finish_s in enumerate(finishes_s) if finish_s is None]
        ways = {job: choose(job, index, now_s, left[job]) for job in running}
        while running and end_s - now_s > _LEAST_S:
            wanted = {
                job: next((one for one in ways[job] if one.until_s - now_s > _LEAST_S), ways[job][-1])
                for job in running
            }
            cap_w = min(
                (cap.watts for cap in caps if cap.start_s - _LEAST_S <= now_s < cap.end_s - _LEAST_S), default=None
            )
            draws = wanted
            if keeps_caps and cap_w is not None:
                draws = _within(works, wanted, cap_w, guard_band)
            changes_s = [end_s, *(draw.until_s for draw in wanted.values()), *edges_s]
            changes_s += [now_s + left[job] / draw.rate for job, draw in draws.items()]
            next_s = min(at_s for at_s in changes_s if at_s - now_s > _LEAST_S)
            power_w = sum(draw.power_w for draw in draws.values())
            peak_w = max(peak_w, power_w)
            is_over = cap_w is not None and power_w > cap_w * (1 - guard_band) * (1 + 1e-9)
            over_s += next_s - now_s if is_over else 0.0
            for job, draw in draws.items():
                drawn_j = draw.power_w * (next_s - now_s)
                left[job] -= draw.rate * (next_s - now_s)
                energies_j[job] += drawn_j
                costs[job] += drawn_j * slot.price
                if left[job] <= _DONE * works[job].iterations:
                    left[job], finishes_s[job] = 0.0, next_s
            running = [job for job in running if finishes_s[job] is None]
            now_s = next_s
    return Outcome(
        jobs=tuple(
            JobOutcome(
                name=work.member.name,
                done=work.iterations - left[job],
                finish_s=finishes_s[job],
                energy_j=energies_j[job],
                cost=costs[job],
            )
            for job, work in enumerate(works)
        ),
        peak_w=peak_w,
        over_s=over_s,
    )


def _within(works: Sequence[Work], wanted: "dict[int, _Draw]", cap_w: float, guard_band: float) -> "dict[int, _Draw]":
    """Jobs under a cap: none is faster than it would be without."""
    members = []
    for job, draw in wanted.items():
        points = _allowed(works[job].member)
        slower = replace(points, times_s=points.times_s[draw.point :], powers_w=points.powers_w[draw.point :])
        members.append(replace(works[job].member, points=slower, max_slowdown=None))
    shares = share_power(members, cap_w, guard_band=guard_band, exchanges_up_to=_EXCHANGES_UP_TO)
    return {job: _at(member.points, point) for job, member, point in zip(wanted, members, shares.points, strict=True)}
