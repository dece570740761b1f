"""How much of a plan's gap to the bound no plan of measured clocks avoids, by a mixed-integer programme on small cases.

    python benchmarks/unavoidable_gap.py [--time-limit-s 60] [--record]

The programme is written from the problem statement: each instruction takes one of all its measured clocks and begins
after those that it waits for. It knows neither paths nor hulls, and shares the DAG and the measurements with the
package. HiGHS solves it; where the time runs out, the optimum lies between its bound and the best plan that it found,
and the unavoidable share of the gap is that of its bound. Needs scipy (the ``dev`` extra).
"""

import argparse
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from measuring import print_table, record_result

from perseus_dist.planning.frontier.frontier import Frontier, plan_frontier
from perseus_dist.planning.frontier.problem import PlanningProblem, make_problem
from perseus_dist.planning.profile.profile import read_profile
from perseus_dist.planning.schedule.schedule import Schedule, gpipe, one_f_one_b
from perseus_dist.units import uw_from_w

PROFILES = Path(__file__).resolve().parents[2] / "shared/data/sosp24/stage_profile"
CASES = {  # file, blocking power of one GPU [W], every how-manieth clock
    "GPT-3 A100": ("gpt3-175b+a100_sxm_bf16.csv", 83.64, 5),
    "Bloom A40": ("bloom+a40_bf16.csv", 70.38, 8),
}
SCHEDULES = {
    "1F1B PP2 M3": one_f_one_b(pp=2, microbatches=3),
    "1F1B PP3 M4": one_f_one_b(pp=3, microbatches=4),
    "GPipe PP3 M3": gpipe(pp=3, microbatches=3),
    "1F1B PP4 M6": one_f_one_b(pp=4, microbatches=6),
}
SLOWDOWNS = (1.0, 1.03, 1.1)
COLUMNS = (
    "profile",
    "schedule",
    "slowdown",
    "our gap [%]",
    "unavoidable [%]",
    "optimum proven",
    "avoidable, at most [%]",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """What the programme found.

    Attributes:
        best_uj: Effective energy of its best plan.
        least_uj: Below which there is none.
    """

    best_uj: float
    least_uj: float


def main() -> None:
    """Solve all cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--time-limit-s", type=float, default=60, help="of each programme")
    parser.add_argument("--record", action="store_true", help="write benchmarks/results/unavoidable_gap.json")
    args = parser.parse_args()
    rows = []
    for name in CASES:
        for text, schedule in SCHEDULES.items():
            problem = small_problem(name, schedule)
            frontier = plan_frontier(problem)
            for slowdown in SLOWDOWNS:
                deadline_ps = round(frontier.baseline.time_ps * slowdown)
                ours, bound, optimum, waiting = energies_uj(problem, frontier, deadline_ps, args.time_limit_s)
                gap, least, best = (
                    100 * max(uj - bound, 0) / (bound + waiting) for uj in (ours, optimum.least_uj, optimum.best_uj)
                )
                is_proven = optimum.best_uj - optimum.least_uj <= 1e-5 * (bound + waiting)
                row = (name, text, f"{slowdown:.2f}", f"{gap:.3f}", f"{least:.3f}")
                rows.append((*row, "yes" if is_proven else f"no, {best:.3f} found", f"{gap - least:.3f}"))
                print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    print_table(COLUMNS, rows)
    if args.record:
        command = f"python benchmarks/unavoidable_gap.py --time-limit-s {args.time_limit_s:g} --record"
        record_result("unavoidable_gap", command=command, columns=COLUMNS, rows=rows)


def small_problem(name: str, schedule: Schedule) -> PlanningProblem:
    """A case's first stages with some of their clocks."""
    file, blocking_w, step = CASES[name]
    profile = read_profile(PROFILES / file)
    measurements = {
        key: replace(
            found,
            **{
                attribute: getattr(found, attribute)[..., ::step]
                for attribute in ("clocks_mhz", "times_s", "energies_j", "num_samples", "time_std_s", "energy_std_j")
            },
        )
        for key, found in profile.measurements.items()
        if key[0] < schedule.num_stages
    }
    return make_problem(
        schedule,
        replace(profile, measurements=measurements),
        blocking_uw_of_rank=[int(uw_from_w(blocking_w))] * schedule.num_ranks,
    )


def energies_uj(
    problem: PlanningProblem, frontier: Frontier, deadline_ps: int, time_limit_s: float
) -> tuple[int, float, Optimum, float]:
    """Effective energies of our plan for a deadline, of the bound and of the programme; blocking energy of them all."""
    point = frontier.point_for_straggler(deadline_ps)
    waiting_uj = problem.total_blocking_uw * deadline_ps / 1e12
    bound_uj = float(frontier.bound.total_uj(np.array(deadline_ps))) - waiting_uj
    return int(frontier.effective_uj[point]), bound_uj, least(problem, deadline_ps, time_limit_s), waiting_uj


def least(problem: PlanningProblem, deadline_ps: int, time_limit_s: float) -> Optimum:
    """The least effective energy of all plans within a deadline."""
    from scipy.optimize import Bounds, LinearConstraint, milp  # type: ignore[import-untyped]
    from scipy.sparse import lil_array  # type: ignore[import-untyped]

    curves = [problem.curves[number] for number in problem.curve_of.tolist()]
    begin = np.cumsum([0, *(len(curve.clocks_mhz) for curve in curves)])
    num_clocks, num_instructions, edges = int(begin[-1]), len(curves), problem.dag.edges.tolist()
    energy = np.concatenate([curve.effective_uj for curve in curves]) / 1e6
    duration = np.concatenate([curve.durations_ps for curve in curves]) / deadline_ps
    rows = lil_array((len(edges) + num_instructions, num_clocks + num_instructions))
    one_each = lil_array((num_instructions, num_clocks + num_instructions))
    for row, (before, after) in enumerate(edges):  # start + duration <= start of the next
        own = slice(begin[before], begin[before + 1])
        rows[row, own] = duration[own]
        rows[row, num_clocks + before], rows[row, num_clocks + after] = 1, -1
    for i in range(num_instructions):
        own = slice(begin[i], begin[i + 1])
        rows[len(edges) + i, own] = duration[own]
        rows[len(edges) + i, num_clocks + i] = 1
        one_each[i, own] = 1
    limits = np.concatenate((np.zeros(len(edges)), np.ones(num_instructions)))
    solved = milp(
        np.concatenate((energy, np.zeros(num_instructions))),
        constraints=[LinearConstraint(rows.tocsr(), ub=limits + 1e-9), LinearConstraint(one_each.tocsr(), 1, 1)],
        integrality=np.concatenate((np.ones(num_clocks), np.zeros(num_instructions))),
        bounds=Bounds(0, np.concatenate((np.ones(num_clocks), np.full(num_instructions, np.inf)))),
        options={"mip_rel_gap": 1e-6, "time_limit": time_limit_s},
    )
    if solved.x is None:
        raise RuntimeError(f"HiGHS found no plan: {solved.message}")
    return Optimum(best_uj=float(solved.fun) * 1e6, least_uj=float(solved.mip_dual_bound) * 1e6)


if __name__ == "__main__":
    main()
