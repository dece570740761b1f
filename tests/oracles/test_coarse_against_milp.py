"""Plans with shared clocks against an independent mixed-integer programme, and their bound against its optimum.

The programme is written from the problem statement: each rank, or each rank and phase, takes one of the measured
clocks, and every instruction begins after those that it waits for. It knows neither paths nor dominated clocks, and
shares the DAG and the curves with the package.
"""

from pathlib import Path

import numpy as np
import pytest

from perseus_dist.planning.coarse.coarse_frontier import plan_coarse_frontier
from perseus_dist.planning.frontier.problem import PlanningProblem, make_problem
from perseus_dist.planning.frontier.replay import replay_all_max
from perseus_dist.planning.profile.profile import Measurements, Profile, read_profile
from perseus_dist.planning.schedule.granularity import Granularity
from perseus_dist.planning.schedule.instruction import Kind
from perseus_dist.planning.schedule.schedule import Schedule, gpipe, interleaved, one_f_one_b

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "profiles" / "gpu_model_pp4.csv"
BEST_SHARE = 0.005  # of the total energy, by which a plan may be above the optimum


def least_uj(problem: PlanningProblem, granularity: Granularity, deadline_ps: int) -> float:
    """Least effective energy [uJ] of all plans with shared clocks within a deadline."""
    # Here, since each process of a run of the tests imports this module, and one of them runs it.
    from scipy.optimize import Bounds, LinearConstraint, milp  # type: ignore[import-untyped]
    from scipy.sparse import lil_array  # type: ignore[import-untyped]

    dag = problem.dag
    labels: dict[tuple[object, ...], int] = {}
    group_of = []
    for pp_rank, order in enumerate(dag.schedule.ranks):
        first_backward = min(i for i, one in enumerate(order) if one.kind in "BI")
        last_forward = max(i for i, one in enumerate(order) if one.kind == "F")
        for position in range(len(order)):
            phase = "warm" if position < first_backward else "cool" if position > last_forward else "steady"
            label = (pp_rank, phase if granularity == "phase" else "")
            group_of.append(labels.setdefault(label, len(labels)))
    clocks = [
        sorted({mhz for i in np.flatnonzero(np.array(group_of) == group).tolist()
                for mhz in problem.curves[problem.curve_of[i]].clocks_mhz.tolist()})
        for group in range(len(labels))
    ]  # fmt: skip
    begin = np.cumsum([0, *map(len, clocks)])
    num_clocks, num_instructions = int(begin[-1]), len(dag.instructions)
    energy = np.zeros(num_clocks)
    duration = lil_array((num_instructions, num_clocks))
    for i, group in enumerate(group_of):
        curve = problem.curves[problem.curve_of[i]]
        for number, mhz in enumerate(clocks[group]):
            at = curve.clocks_mhz.tolist().index(mhz)
            energy[begin[group] + number] += curve.effective_uj[at] / 1e6
            duration[i, begin[group] + number] = curve.durations_ps[at] / deadline_ps
    rows = lil_array((len(dag.edges) + num_instructions, num_clocks + num_instructions))
    limits = np.zeros(len(dag.edges) + num_instructions)
    for row, (before, after) in enumerate(dag.edges.tolist()):  # start + duration <= start of the next
        rows[[row], :num_clocks] = duration[[before], :]
        rows[row, num_clocks + before], rows[row, num_clocks + after] = 1, -1
    for i in range(num_instructions):
        rows[[len(dag.edges) + i], :num_clocks] = duration[[i], :]
        rows[len(dag.edges) + i, num_clocks + i] = 1
        limits[len(dag.edges) + i] = 1
    one_each = lil_array((len(labels), num_clocks + num_instructions))
    for group in range(len(labels)):
        one_each[group, begin[group] : begin[group + 1]] = 1
    solved = milp(
        np.concatenate((energy, np.zeros(num_instructions))),
        constraints=[
            LinearConstraint(rows.tocsr(), ub=limits + 1e-9),
            LinearConstraint(one_each.tocsr(), 1, 1),
        ],
        integrality=np.concatenate((np.ones(num_clocks), np.zeros(num_instructions))),
        bounds=Bounds(0, np.concatenate((np.ones(num_clocks), np.full(num_instructions, np.inf)))),
        options={"mip_rel_gap": 1e-6, "time_limit": 60},
    )
    assert solved.status == 0, solved.message
    return float(solved.fun) * 1e6


def drawn_problem(schedule: Schedule, seed: int, *, num_clocks: int) -> PlanningProblem:
    """Stages of loads of their own, with noise of 0.5 % in times and energies."""
    draw = np.random.default_rng(seed)
    clocks_mhz = np.linspace(1410, 900, num_clocks).round().astype(np.int64)
    measurements = {}
    for stage in range(schedule.num_stages):
        load, bound = draw.uniform(0.8, 1.3), draw.uniform(0.6, 0.95)
        for kind, work_s in ((Kind.FORWARD, 0.03), (Kind.BACKWARD, 0.06)):
            slowing = bound * 1410 / clocks_mhz + 1 - bound
            times_s = load * work_s * slowing * draw.normal(1, 0.005, num_clocks)
            power_w = (100 + 220 * (clocks_mhz / 1410) ** 2.6) * draw.normal(1, 0.005, num_clocks)
            measurements[stage, kind.value] = Measurements(
                line=2, gpus=("",), clocks_mhz=clocks_mhz, times_s=times_s[None], energies_j=(times_s * power_w)[None],
                num_samples=np.ones((1, num_clocks)), time_std_s=np.zeros((1, num_clocks)),
                energy_std_j=np.zeros((1, num_clocks)),
            )  # fmt: skip
    profile = Profile(source="drawn", measurements=measurements, rejected=())
    return make_problem(schedule, profile, blocking_uw_of_rank=[70_000_000] * schedule.num_ranks)


def check(problem: PlanningProblem, granularity: Granularity, slowdown: float) -> float:
    """The plan is on time, no better than the optimum and close to it; returns how far above, of the total energy."""
    deadline_ps = round(replay_all_max(problem).time_ps * slowdown)
    frontier = plan_coarse_frontier(problem, granularity, deadlines_ps=[deadline_ps], is_whole=False)
    point = frontier.point_for_straggler(deadline_ps)
    optimum_uj = least_uj(problem, granularity, deadline_ps)
    waiting_uj = problem.total_blocking_uw * deadline_ps / 1e12
    bound_uj = float(frontier.bound.total_uj(np.array(deadline_ps))) - waiting_uj
    above = (int(frontier.effective_uj[point]) - optimum_uj) / (optimum_uj + waiting_uj)
    assert frontier.time_ps[point] <= deadline_ps
    assert bound_uj <= optimum_uj + 1e-6 * (optimum_uj + waiting_uj)
    assert -1e-6 <= above <= BEST_SHARE
    return above


@pytest.mark.parametrize("granularity", [Granularity.RANK, Granularity.PHASE])
@pytest.mark.parametrize("slowdown", [1.0, 1.02, 1.1])
def test_the_example_profile(granularity: Granularity, slowdown: float) -> None:
    schedule = one_f_one_b(pp=4, microbatches=6)
    problem = make_problem(schedule, read_profile(EXAMPLE), blocking_uw_of_rank=[80_000_000] * 4)
    check(problem, granularity, slowdown)


@pytest.mark.parametrize("seed", range(6))
def test_drawn_problems(seed: int) -> None:
    schedules = (
        one_f_one_b(pp=2, microbatches=4),
        gpipe(pp=3, microbatches=3),
        interleaved(pp=2, microbatches=4, chunks=2),
        one_f_one_b(pp=4, microbatches=5),
        one_f_one_b(pp=5, microbatches=6),
        one_f_one_b(pp=1, microbatches=3),
    )
    problem = drawn_problem(schedules[seed], seed, num_clocks=8)
    for granularity in (Granularity.RANK, Granularity.PHASE):
        for slowdown in (1.0, 1.04, 1.15):
            check(problem, granularity, slowdown)
