"""The frontier of large pipelines: to a tolerance, against the exact one, and the first plan before it."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from perseus_dist.library.plan_table import gap_text
from perseus_dist.planning.frontier import frontier as module
from perseus_dist.planning.frontier import frontier_file
from perseus_dist.planning.frontier.frontier import TOLERANCE, plan_first, plan_frontier
from perseus_dist.planning.frontier.frontier_file import load_frontier, save_frontier
from perseus_dist.planning.frontier.problem import PlanningProblem, make_problem
from perseus_dist.planning.profile.profile import Measurements, Profile
from perseus_dist.planning.schedule.instruction import Kind
from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.units import FloatArray, uw_from_w

PP, MICROBATCHES, BLOCKING_W = 8, 24, 80.0


def pipeline(*, alike: bool) -> PlanningProblem:
    """61 clocks and a smooth law of time and power; stages of one load, or each of its own."""
    clocks_mhz = np.linspace(1980, 990, 61).round().astype(np.int64)
    x = clocks_mhz / 1980
    rng = np.random.default_rng(2024)
    measurements = {}
    for stage in range(PP):
        load = 1.0 if alike else rng.uniform(1, 1.15)
        for kind, work_s in ((Kind.FORWARD, 0.050), (Kind.BACKWARD, 0.100)):
            times_s = load * work_s * (0.78 / x + 0.22)
            measurements[stage, str(kind)] = one_gpu(clocks_mhz, times_s, (100 + 600 * x**2.6) * times_s)
    profile = Profile(source="a law", measurements=measurements)
    schedule = one_f_one_b(pp=PP, microbatches=MICROBATCHES)
    return make_problem(schedule, profile, blocking_uw_of_rank=[int(uw_from_w(BLOCKING_W))] * PP)


def one_gpu(clocks_mhz: np.ndarray, times_s: FloatArray, energies_j: FloatArray) -> Measurements:
    shape = (1, len(clocks_mhz))
    return Measurements(
        clocks_mhz=clocks_mhz,
        gpus=("",),
        times_s=times_s.reshape(shape),
        energies_j=energies_j.reshape(shape),
        num_samples=np.ones(shape),
        time_std_s=np.full(shape, np.nan),
        energy_std_j=np.full(shape, np.nan),
    )


@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("tolerance", [1e-2, 1e-3, 1e-4])
def test_the_bound_lies_below_the_exact_one_within_the_tolerance(*, alike: bool, tolerance: float) -> None:
    problem = pipeline(alike=alike)
    exact = plan_frontier(problem, num_points=4, tolerance=0).bound
    bound = plan_frontier(problem, num_points=4, tolerance=tolerance).bound
    assert exact.tolerance == 0
    assert 0 < bound.tolerance <= tolerance
    assert len(bound.time_ps) < len(exact.time_ps) / 10
    times_ps = np.union1d(exact.time_ps, bound.time_ps)
    ratio = exact.total_uj(times_ps) / bound.total_uj(times_ps) - 1
    assert ratio.min() > -1e-9
    assert ratio.max() <= bound.tolerance + 1e-9
    assert bound.time_ps[0] == exact.time_ps[0]


def test_plans_are_on_time_and_as_close_to_the_exact_bound() -> None:
    problem = pipeline(alike=False)
    exact, within = plan_frontier(problem, tolerance=0), plan_frontier(problem, tolerance=1e-4)
    assert within.time_ps[0] <= within.baseline.time_ps
    assert len(within.deadline_points) > 200
    above = within.total_uj / exact.bound.total_uj(within.time_ps) - 1
    assert above.max() < exact.gaps.max() + 2e-4
    for point in range(0, len(within.time_ps), 20):
        assert within.execution(point).time_ps == within.time_ps[point]


def test_exact_unless_the_pipeline_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = pipeline(alike=True)
    assert plan_frontier(problem, num_points=2).bound.tolerance == 0
    monkeypatch.setattr(module, "MOST_EXACT_WORK", 1)
    assert plan_frontier(problem, num_points=2).bound.tolerance == 0, "so few pieces take no longer exactly"
    monkeypatch.setattr(module, "MOST_EXACT_PIECES", 1)
    assert 0 < plan_frontier(problem, num_points=2).bound.tolerance <= TOLERANCE


@pytest.mark.parametrize("latency_ps", [0, 12 * 10**9])
def test_the_first_plan_is_on_time_and_saves_most_of_it(monkeypatch: pytest.MonkeyPatch, latency_ps: int) -> None:
    problem = pipeline(alike=False)
    full = plan_frontier(problem, num_points=20, switch_latency_ps=latency_ps, thorough=False)
    late_ps = full.baseline.time_ps * 11 // 10
    monkeypatch.setattr(module, "MOST_EXACT_WORK", 1)
    first = plan_first(problem, switch_latency_ps=latency_ps, deadlines_ps=[late_ps])
    assert first.bound.tolerance > TOLERANCE
    for deadline_ps in (first.baseline.time_ps, late_ps):
        rough, fine = (frontier.total_uj[frontier.point_for_deadline(deadline_ps)] for frontier in (first, full))
        saved, saved_in_full = first.baseline.total_uj - rough, first.baseline.total_uj - fine
        assert saved >= 0.8 * saved_in_full
    assert (first.gaps >= 0).all()


def test_the_tolerance_is_saved_and_said(tmp_path: Path) -> None:
    frontier = plan_frontier(pipeline(alike=True), num_points=8, tolerance=1e-3)
    save_frontier(frontier, tmp_path / "frontier.npz")
    again = load_frontier(tmp_path / "frontier.npz")
    assert again.bound.tolerance == frontier.bound.tolerance
    assert f"at most {100 * frontier.bound.tolerance:.2g} % below the exact one" in gap_text(again)
    with np.load(tmp_path / "frontier.npz") as archive:
        arrays = dict(archive)
    header = json.loads(arrays.pop("header").tobytes()) | {"schema_version": 2}
    del header["tolerance"], header["sha256"]
    header["sha256"] = frontier_file._digest(header, arrays)
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    np.savez(tmp_path / "before.npz", **arrays)
    assert load_frontier(tmp_path / "before.npz").bound.tolerance == 0, "all bounds were exact then"
    exact = replace(frontier, bound=replace(frontier.bound, tolerance=0.0))
    assert "above the exact lower bound and" in gap_text(exact)
