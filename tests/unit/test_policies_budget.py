"""Power budgets: against all choices of plans in small cases, and against a mixed-integer programme on frontiers."""

import itertools
import random
from pathlib import Path

import pytest

import perseus_dist
from perseus_dist.errors import PlanningError
from perseus_dist.policies.operating_points import OperatingPoints
from perseus_dist.policies.power_budget import Member, Objective, share_power
from perseus_dist.policies.water_filling import divide, lower_hull
from perseus_dist.units import j_from_uj, s_from_ps

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "profiles" / "gpu_model_pp4.csv"


def random_member(rng: random.Random, name: str, num_points: int) -> Member:
    times_s = sorted(rng.uniform(1, 2) for _ in range(num_points))
    powers_w = sorted((rng.uniform(100, 1000) for _ in range(num_points)), reverse=True)
    points = OperatingPoints(
        times_s=tuple(times_s), powers_w=tuple(powers_w), full_time_s=times_s[0], full_power_w=1.1 * powers_w[0]
    )
    return Member(name=name, points=points, weight=rng.choice((0.5, 1.0, 3.0)))


def costs_of(member: Member) -> list[float]:
    return [member.weight * member.points.slowdown(k) for k in range(len(member.points.times_s))]


@pytest.mark.parametrize("seed", range(40))
def test_small_cases_against_every_choice(seed: int) -> None:
    rng = random.Random(seed)
    members = [random_member(rng, f"job {k}", rng.randint(1, 5)) for k in range(rng.randint(1, 4))]
    most_w, least_w = (sum(member.points.powers_w[end] for member in members) for end in (0, -1))
    cap_w = rng.uniform(least_w, most_w)
    totals, largest = [], []
    for choice in itertools.product(*(range(len(member.points.times_s)) for member in members)):
        at = [costs_of(member)[k] for member, k in zip(members, choice, strict=True)]
        if sum(member.points.powers_w[k] for member, k in zip(members, choice, strict=True)) <= cap_w:
            totals.append(sum(at))
            largest.append(max(at))
    shares = share_power(members, cap_w)
    assert shares.power_w <= cap_w
    assert 0.0 <= shares.cost_bound <= min(totals) + 1e-12
    assert min(totals) <= shares.cost + 1e-12
    fair = share_power(members, cap_w, objective=Objective.MAX_MIN)
    assert fair.power_w <= cap_w
    assert fair.cost == pytest.approx(min(largest), abs=1e-12)


@pytest.fixture(scope="module")
def points() -> OperatingPoints:
    schedule = perseus_dist.Schedule.one_f_one_b(pp=4, microbatches=8)
    planned = perseus_dist.plan(EXAMPLE, schedule, blocking_power_w=80)._planned  # all plans' figures
    return OperatingPoints.of_plans(
        s_from_ps(planned.time_ps).tolist(),
        j_from_uj(planned.total_uj).tolist(),
        full_time_s=float(s_from_ps(planned.baseline.time_ps)),
        full_energy_j=float(j_from_uj(planned.baseline.total_uj)),
        num_pipelines=8,
    )


def test_points_begin_at_full_speed_and_go_on_beyond_least_energy(points: OperatingPoints) -> None:
    assert points.times_s[0] == pytest.approx(points.full_time_s)
    assert points.powers_w[0] < points.full_power_w  # at the same time, less
    energies_j = [time_s * power_w for time_s, power_w in zip(points.times_s, points.powers_w, strict=True)]
    assert min(energies_j) < energies_j[-1]  # T* lies between
    assert all(later < earlier for earlier, later in itertools.pairwise(points.powers_w))


@pytest.mark.parametrize("share", [0.9, 0.75, 0.6])
@pytest.mark.parametrize("num_jobs", [2, 3, 5, 16])
def test_jobs_with_real_frontiers_are_within_a_hundredth_of_the_exact_optimum(
    points: OperatingPoints, num_jobs: int, share: float
) -> None:
    """Without exchanges between pairs, few jobs were up to 1.4 % above it."""
    from scipy.optimize import Bounds, LinearConstraint, milp  # type: ignore[import-untyped]

    rng = random.Random(num_jobs)
    members = [Member(name=str(k), points=points, weight=rng.uniform(0.5, 3)) for k in range(num_jobs)]
    cap_w = share * num_jobs * points.full_power_w
    shares = share_power(members, cap_w)
    assert shares.is_met
    width = len(points.times_s)
    cost = [one for member in members for one in costs_of(member)]
    picks = [[float(column // width == row) for column in range(num_jobs * width)] for row in range(num_jobs)]
    exact = milp(
        cost,
        constraints=[
            LinearConstraint([list(points.powers_w) * num_jobs], -1e9, cap_w),
            LinearConstraint(picks, 1, 1),
        ],
        integrality=1,
        bounds=Bounds(0, 1),
        options={"mip_rel_gap": 1e-4},
    )
    assert shares.cost_bound <= exact.fun * (1 + 1e-9)
    assert shares.cost <= 1.01 * exact.fun


def least_total(members: list[Member], cap_w: float) -> float:
    """The least sum of weighted slowdowns within a cap, by a mixed-integer programme."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    widths = [len(member.points.times_s) for member in members]
    begins = list(itertools.accumulate(widths, initial=0))
    picks = [[float(low <= column < high) for column in range(begins[-1])] for low, high in itertools.pairwise(begins)]
    exact = milp(
        [cost for member in members for cost in costs_of(member)],
        constraints=[
            LinearConstraint([[power_w for member in members for power_w in member.points.powers_w]], -1e9, cap_w),
            LinearConstraint(picks, 1, 1),
        ],
        integrality=1,
        bounds=Bounds(0, 1),
        options={"mip_rel_gap": 1e-4},
    )
    return float(exact.fun)


@pytest.mark.parametrize("seed", range(12))
def test_few_jobs_below_a_cap_that_hardly_binds_are_within_half_a_hundredth_of_the_exact_optimum(seed: int) -> None:
    """Exchanges between pairs alone were up to 3.3 % above it."""
    rng = random.Random(seed)
    members = []
    for name in range(rng.choice((3, 6, 8))):
        step, full_w, degree = rng.uniform(8e-4, 2e-3), rng.uniform(500, 2000), rng.uniform(1.5, 2.6)
        times_s = tuple(1 + step * number for number in range(50))
        points = OperatingPoints(
            times_s=times_s,
            powers_w=tuple(full_w / time_s**degree for time_s in times_s),
            full_time_s=1.0,
            full_power_w=1.1 * full_w,
        )
        members.append(Member(name=str(name), points=points, weight=rng.choice((1.0, 2.0))))
    for cut in (0.004, 0.006, 0.02):
        cap_w = (1 - cut) * sum(member.points.powers_w[0] for member in members)
        shares = share_power(members, cap_w)
        assert shares.is_met
        assert shares.cost <= 1.005 * least_total(members, cap_w)


def test_what_cannot_be_met_is_said_and_floors_and_the_guard_band_are_kept(points: OperatingPoints) -> None:
    member = Member(name="a", points=points, max_slowdown=0.05)
    shares = share_power([member], 1.0)
    assert not shares.is_met
    assert points.slowdown(shares.points[0]) <= 0.05
    assert shares.power_w == shares.least_power_w
    cap_w = 0.9 * points.full_power_w
    assert share_power([member], cap_w, guard_band=0.05).power_w <= 0.95 * cap_w
    whole = Member(name="b", points=OperatingPoints.at_full_power(full_time_s=1.0, full_power_w=500.0))
    for beside in (0.0, 0.01, 0.3, 0.9):  # a cap that is kept by itself, and not with its guard band
        tight = share_power([whole], 500.0 / (1 - beside) * 1.001, guard_band=beside)
        assert tight.is_met
        over = share_power([whole], 500.0 / (1 - beside) * 0.999, guard_band=beside)
        assert (over.is_met, over.power_w) == (False, 500.0)
    both = share_power([member, whole], 500.0 + points.powers_w[0])
    assert both.points == (0, 0)
    assert both.cost == both.slowdown_per_w == 0.0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cap_w": 0.0}, "cap_w: saw 0, expected a positive number of watts"),
        ({"cap_w": float("nan")}, "cap_w: saw nan"),
        ({"guard_band": 1.0}, "guard_band: saw 1, expected from 0 to below 1"),
        ({"members": []}, "members: saw none"),
    ],
)
def test_numbers_out_of_range_are_refused(points: OperatingPoints, change: dict[str, object], said: str) -> None:
    given: dict[str, object] = {"members": [Member(name="a", points=points)], "cap_w": 1.0, **change}
    with pytest.raises(PlanningError, match=said.replace("(", r"\(")):
        share_power(**given)  # type: ignore[arg-type]
    with pytest.raises(PlanningError, match="weight: saw -1"):
        share_power([Member(name="a", points=points, weight=-1.0)], 1.0)


def test_a_division_ends_within_one_segment_whose_slope_is_the_price() -> None:
    curves = [lower_hull([0, 1, 2, 3], [9, 4, 3.5, 3.4]), lower_hull([0, 1, 2], [5, 3, 4])]
    division = divide(curves, 2.5)
    assert [(at.vertex, at.share) for at in division.positions] == [(1, 0.5), (1, 0.0)]
    assert division.multiplier == -0.5
    assert division.cost == pytest.approx(3.75 + 3)
    assert divide(curves, 99).amount == 5
    assert divide(curves, -1).amount == 0
