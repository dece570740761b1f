"""Frontier of a job as coordinates of a picture, and the targets that the slider offers."""

import math
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from perseus_dist.messages.terms import NO_POINT, T_MIN, Target
from perseus_dist.planner.job.frontier_summary import FrontierSummary
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.job.state.planning import JobPlan
from perseus_dist.planner.lifecycle.enforcement.plan_choice import deadline_ps, target_point
from perseus_dist.units import PS_PER_S, UJ_PER_J

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 16, 40
MAX_DRAWN = 200
_MARGIN = 0.06
_MIN_TICKS = 4
_SLOWDOWN_DIGITS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A position of the slider.

    Attributes:
        time_s, energy_j: Of an iteration, all pipelines together.
        slower: Time over that at all-maximum clocks, minus 1.
        saved: Share of the energy at all-maximum clocks.
    """

    target: Target
    point: int
    time_s: float
    energy_j: float
    slower: float
    saved: float


def target_choices(summary: FrontierSummary, dp_size: int) -> tuple[Choice, ...]:
    """Targets from the time at all-maximum clocks up to the least energy, one for each plan that draws less."""
    first = summary.point_for_deadline(summary.baseline_time_ps)
    points = [first]
    for point in range(first + 1, len(summary.time_ps)):
        if summary.total_uj[point] < summary.total_uj[points[-1]]:
            points.append(point)
    choices = [_choice(summary, dp_size, T_MIN, first)]
    for point, after in zip_longest(points[1:], points[2:]):
        target = _slowdown(summary, point)
        if after is None or summary.time_ps[after] > deadline_ps(target, summary):
            choices.append(_choice(summary, dp_size, target, point))
    return tuple(choices)


def _slowdown(summary: FrontierSummary, point: int) -> Target:
    """The least slowdown of a few digits that allows for a plan."""
    digits = 10**_SLOWDOWN_DIGITS
    return Target(slowdown=max(1.0, math.ceil(summary.time_ps[point] / summary.baseline_time_ps * digits) / digits))


def _choice(summary: FrontierSummary, dp_size: int, target: Target, point: int) -> Choice:
    return Choice(
        target=target,
        point=point,
        time_s=summary.time_ps[point] / PS_PER_S,
        energy_j=dp_size * summary.total_uj[point] / UJ_PER_J,
        slower=summary.time_ps[point] / summary.baseline_time_ps - 1,
        saved=1 - summary.total_uj[point] / summary.baseline_uj,
    )


def choices_document(job: Job) -> dict[str, Any]:
    """The slider's positions, for the page's module; empty before there is a plan."""
    if job.plan is None:
        return {"revision": 0, "at": 0, "choices": []}
    summary = job.plan.summary
    choices = target_choices(summary, len(job.progress.pipelines))
    at_target = target_point(job, summary)
    at = max((index for index, choice in enumerate(choices) if choice.point <= at_target), default=0)
    return {
        "revision": job.plan.revision,
        "at": at,
        "choices": [[one.time_s, one.energy_j, one.slower, one.saved] for one in choices],
    }


def frontier_chart(job: Job) -> dict[str, Any] | None:
    """The picture; None before there is a plan."""
    if job.plan is None:
        return None
    summary, num = job.plan.summary, len(job.progress.pipelines)
    times_s = [ps / PS_PER_S for ps in summary.time_ps]
    energies_j = [num * uj / UJ_PER_J for uj in summary.total_uj]
    bounds_j = [num * uj / UJ_PER_J for uj in summary.lower_bound_uj]
    baseline = (summary.baseline_time_ps / PS_PER_S, num * summary.baseline_uj / UJ_PER_J)
    axes = _Axes.around([*times_s, baseline[0]], [*energies_j, *bounds_j, baseline[1]])
    drawn = sorted({round(i * (len(times_s) - 1) / MAX_DRAWN) for i in range(MAX_DRAWN + 1)})
    in_force = _points_in_force(job, job.plan)
    at_target = target_point(job, summary)
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "plot": {"left": LEFT, "right": WIDTH - RIGHT, "top": TOP, "bottom": HEIGHT - BOTTOM},
        "scale": axes.scale,
        "plans": " ".join(axes.at(times_s[i], energies_j[i]) for i in drawn),
        "bound": " ".join(axes.at(times_s[i], bounds_j[i]) for i in drawn),
        "baseline": axes.xy(*baseline),
        "baseline_is_low": axes.xy(*baseline)[1] > HEIGHT / 2,
        "in_force": [axes.xy(times_s[p], energies_j[p]) for p in in_force if p < len(times_s)],
        "x_ticks": [(axes.xy(value, axes.low_j)[0], text) for value, text in ticks(axes.low_s, axes.high_s)],
        "y_ticks": [(axes.xy(axes.low_s, value)[1], text) for value, text in ticks(axes.low_j, axes.high_j)],
        "at_target": {"time_s": times_s[at_target], "energy_j": energies_j[at_target]},
        "t_star": {"time_s": summary.t_star_ps / PS_PER_S, "energy_j": min(energies_j)},
        "fastest_s": times_s[0],
        "baseline_figures": {"time_s": baseline[0], "energy_j": baseline[1]},
        "num_plans": len(times_s),
        "revision": job.plan.revision,
        "is_first": job.awaits_frontier,
    }


def _points_in_force(job: Job, plan: JobPlan) -> list[int]:
    """Of the pipelines that follow this table, and none of their own."""
    if job.switch is None:
        return []
    return sorted(
        {
            point
            for dp_rank, point in enumerate(job.switch.points)
            if point != NO_POINT and job.switch.revision_of(dp_rank) == plan.revision
        }
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axes:
    low_s: float
    high_s: float
    low_j: float
    high_j: float

    @classmethod
    def around(cls, times_s: list[float], energies_j: list[float]) -> "_Axes":
        low_s, high_s, low_j, high_j = min(times_s), max(times_s), min(energies_j), max(energies_j)
        wide = (high_s - low_s or abs(high_s) or 1.0) * _MARGIN
        tall = (high_j - low_j or abs(high_j) or 1.0) * _MARGIN
        return cls(low_s=low_s - wide, high_s=high_s + wide, low_j=low_j - tall, high_j=high_j + tall)

    def xy(self, time_s: float, energy_j: float) -> tuple[float, float]:
        x = LEFT + (time_s - self.low_s) / (self.high_s - self.low_s) * (WIDTH - LEFT - RIGHT)
        y = HEIGHT - BOTTOM - (energy_j - self.low_j) / (self.high_j - self.low_j) * (HEIGHT - TOP - BOTTOM)
        return round(x, 1), round(y, 1)

    def at(self, time_s: float, energy_j: float) -> str:
        x, y = self.xy(time_s, energy_j)
        return f"{x:g},{y:g}"

    @property
    def scale(self) -> str:
        """Both axes, for the module that moves the marker of a target that is looked at."""
        return f"{self.low_s!r} {self.high_s!r} {self.low_j!r} {self.high_j!r}"


def ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Round values within an axis."""
    rough = (high - low) / _MIN_TICKS
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (10, 5, 2, 1) if size * factor <= rough)
    digits = max(0, -math.floor(math.log10(step)))
    begin = math.ceil(low / step)
    return [(i * step, f"{i * step:,.{digits}f}") for i in range(begin, math.floor(high / step) + 1)]
