"""Iterations that are late at their limits: what noise and others explain, and which plans are then taken or made."""

from collections.abc import Sequence

import pytest
from fleets import short_sweep
from test_enforcement_plan_choice_bounds import job, report_slow, slow, vary
from test_enforcement_switching_bounds import said
from test_lifecycle_baseline_bounds import iteration

from perseus_dist.messages.from_agent import IterationReport, KindTime
from perseus_dist.messages.terms import T_MIN, Target
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.job.saving.full_clocks import FullClocks
from perseus_dist.planner.lifecycle.enforcement.promise import (
    correct_target,
    excess_over_target,
    late_with,
)
from perseus_dist.straggler.layout import RankCoords

NOW_S = 50.0


def timed(
    share: float,
    *,
    target: Target = T_MIN,
    pace: float = 0.0,
    allowed_s: float = 1.0,
    full_s: float = 1.0,
    num: int = 12,
    num_full: int = 100,
    noise: float = 1e-4,
    num_varied: int = 5,
) -> Job:
    """So many iterations under the target's plan took longer than allowed by this share; full clocks are known."""
    made = job(target=target, pace=pace)
    vary(made, noise, num_varied)
    made.measured.saving.begin(FullClocks(time_s=full_s, energy_j=100.0, num_iterations=num_full, weight=16.0))
    made.measured.enforced.extend(iteration(number, allowed_s * (1 + share)) for number in range(num))
    return made


def told(number: int, ratio: float = 0.0, *, point: int = 0) -> IterationReport:
    """An iteration of a rank whose computations took so many times what the profile says."""
    kind_times = (KindTime(kind="F", time_ratio=ratio, requested_mhz=1400),) if ratio else ()
    return IterationReport(
        iteration=number, time_s=1.0, pipeline_time_s=1.0, energy_j=None, point=point, kind_times=kind_times
    )


def compute(made: Job, ratios: Sequence[float]) -> None:
    """By rank, of pipelines of two stages: what computations under the plan took over the profile's times."""
    for rank, ratio in enumerate(ratios):
        made.members.places[rank] = RankCoords(pp_rank=rank % 2, dp_rank=rank // 2)
        made.enforcement.guard.observe(
            rank, rank // 2, told(200, ratio), is_planned=True, num_attached=99, allowed=float
        )


def sweep(made: Job) -> None:
    """Clocks are measured."""
    made.profiling.sweep = short_sweep()


# ---- what is late ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("num", "num_full", "least"), [(12, 100, 0.002252), (12, 4, 0.003703), (48, 4, 0.00319), (48, 1, 0.006097)]
)
def test_iterations_are_late_by_more_than_noise_makes_of_so_many_beside_so_many_at_full_clocks(
    num: int, num_full: int, least: float
) -> None:
    for share in (0.98 * least, 1.02 * least):
        made = timed(share, num=num, num_full=num_full, noise=0.002)
        assert excess_over_target(made) == pytest.approx(share if share > least else 0.0)


@pytest.mark.parametrize(
    "why", ["verdict", "report", "kept", "sweep", "pace", "no full clocks", "a guess of them", "too few", "nothing"]
)
def test_nothing_is_late_where_something_else_explains_it_or_too_little_is_known(why: str) -> None:
    made = timed(
        0.01,
        pace=1.4 if why == "pace" else 0.0,
        allowed_s={"pace": 1.4, "report": 1.5}.get(why, 1.0),
        num=11 if why == "too few" else 12,
        num_full=0 if why == "a guess of them" else 100,
    )
    if why == "verdict":
        made.detection.verdicts = (slow(),)
    elif why == "report":
        report_slow(made, 1.5)
    elif why == "kept":
        made.detection.keeps_switch = True
    elif why == "sweep":
        sweep(made)
    elif why == "no full clocks":
        made.measured.saving.full = None
    assert excess_over_target(made) == pytest.approx(0.01 if why == "nothing" else 0.0)


@pytest.mark.parametrize(
    ("share", "before", "is_mended"),
    [
        (0.0024, 0.0, False),
        (0.0026, 0.0, True),
        (0.0104, 0.0, True),
        (0.0149, 0.0, True),
        (0.0151, 0.0, False),
        (0.005, 0.0095, True),
        (0.005, 0.0105, False),
    ],
)
def test_a_plan_that_is_a_little_late_in_all_is_replaced_by_a_faster_one(
    share: float, before: float, *, is_mended: bool
) -> None:
    made = timed(share, target=Target(slowdown=1.2), allowed_s=1.2)
    made.enforcement.overrun = before
    assert (
        f"iterations take {100 * share:.1f} % longer than" in "".join(said(correct_target(made, NOW_S)))
    ) == is_mended
    expected = before + share + before * share if is_mended else before
    assert made.enforcement.overrun == pytest.approx(expected)
    made = timed(share, pace=0.9)
    assert correct_target(made, NOW_S) == [], "nothing is faster"
    made.plan = None
    assert correct_target(made, NOW_S) == []


@pytest.mark.parametrize(
    ("share", "slowdown", "is_asked"),
    [(0.0039, 1.0, False), (0.0041, 1.0, True), (0.0149, 1.0, True), (0.0151, 1.0, False), (0.01, 1.1, False)],
)
def test_the_fastest_plan_is_made_again_with_a_slightly_slow_rank_if_it_is_late(
    share: float, slowdown: float, *, is_asked: bool
) -> None:
    made = timed(share, target=Target(slowdown=slowdown), allowed_s=slowdown)
    compute(made, (1.0, 1.0, 1.02, 1.0))
    assert [one.pp_rank for one in late_with(made)] == ([0] if is_asked else [])
    made.plan = None
    assert late_with(made) == ()
