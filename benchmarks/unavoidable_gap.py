"""How much of a plan's gap to the bound no plan of measured clocks avoids, by a mixed-integer programme on small cases.

    python benchmarks/unavoidable_gap.py [--time-limit-s 60] [--noise-percent 1 --seeds 3] [--record]

The programme is written from the problem statement: each instruction takes one of all its measured clocks and begins
after those that it waits for. It knows neither paths nor hulls, and shares the DAG and the measurements with the
package. HiGHS solves it; where the time runs out, the optimum lies between its bound and the best plan that it found,
and the unavoidable share of the gap is that of its bound. Where it says that there is no plan as good as ours, which
is replayed, it is wrong and counts as if it had proven nothing. With noise, which is that of ``realised_gaps`` (normal,
independent at every clock, stage and kind, on times and on energies), figures are means over seeds, and the last row
of a profile is their mean over its cases. Needs scipy (the ``dev`` extra).
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import numpy as np
from measuring import print_table, record_result
from realised_gaps import thinned, with_noise

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Of one plan, above the bound, as shares of all energy in percent.

    Attributes:
        ours, unavoidable, best: Of our plan, of the programme's bound and of its best plan.
    """

    ours: float
    unavoidable: float
    best: float

    @property
    def is_proven(self) -> bool:
        """Whether the programme's best plan is known to be the best there is."""
        return self.best - self.unavoidable <= 1e-3


def main() -> None:
    """Solve all cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--time-limit-s", type=float, default=60, help="of each programme")
    parser.add_argument("--noise-percent", type=float, default=0, metavar="X", help="on times and energies")
    parser.add_argument("--seeds", type=int, default=1, help="drawn profiles for each case with noise")
    parser.add_argument(
        "--record", nargs="?", const="unavoidable_gap", metavar="NAME", help="write benchmarks/results/NAME.json"
    )
    args = parser.parse_args()
    rows = []
    for name in CASES:
        of_profile: list[Gap] = []
        for text, schedule in SCHEDULES.items():
            found: dict[float, list[Gap]] = {slowdown: [] for slowdown in SLOWDOWNS}
            for seed in range(args.seeds):
                problem = small_problem(name, schedule, args.noise_percent / 100, seed)
                frontier = plan_frontier(problem)
                for slowdown, gaps in found.items():
                    gaps.append(gap_of(problem, frontier, slowdown, args.time_limit_s))
            for slowdown, gaps in found.items():
                rows.append((name, text, f"{slowdown:.2f}", *cells(gaps)))
                print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
                of_profile += gaps
        if args.noise_percent:
            rows.append((name, "all", "all", *cells(of_profile)))
    print_table(COLUMNS, rows)
    if args.record:
        command = " ".join(["python benchmarks/unavoidable_gap.py", *sys.argv[1:]])
        record_result(args.record, command=command, columns=COLUMNS, rows=rows)


def gap_of(problem: PlanningProblem, frontier: Frontier, slowdown: float, time_limit_s: float) -> Gap:
    """Of the plan for a slowdown."""
    deadline_ps = round(frontier.baseline.time_ps * slowdown)
    ours, bound, optimum, waiting = energies_uj(problem, frontier, deadline_ps, time_limit_s)
    if optimum.least_uj > ours + 1e-6 * waiting:  # our plan is there, by its replay: HiGHS is wrong, and proves nothing
        optimum = Optimum(best_uj=ours, least_uj=bound)
    gaps = (100 * max(uj - bound, 0) / (bound + waiting) for uj in (ours, optimum.least_uj, optimum.best_uj))
    return Gap(**dict(zip(("ours", "unavoidable", "best"), gaps, strict=True)))


def cells(gaps: Sequence[Gap]) -> tuple[str, ...]:
    """Means over profiles, and how many optima are proven."""
    ours, unavoidable, best = (fmean(getattr(gap, name) for gap in gaps) for name in ("ours", "unavoidable", "best"))
    num_proven = sum(gap.is_proven for gap in gaps)
    proven = "yes" if num_proven == len(gaps) else f"no, {best:.3f} found"
    if len(gaps) > 1:
        proven = f"{num_proven} of {len(gaps)}"
    return f"{ours:.3f}", f"{unavoidable:.3f}", proven, f"{ours - unavoidable:.3f}"


def small_problem(name: str, schedule: Schedule, noise: float = 0, seed: int = 0) -> PlanningProblem:
    """A case's first stages with some of their clocks, with noise as a share of each time and energy."""
    file, blocking_w, step = CASES[name]
    profile = read_profile(PROFILES / file)
    random = np.random.default_rng(seed)
    measurements = {
        key: with_noise(found, noise, random)
        for key, found in thinned(profile, step).measurements.items()
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
