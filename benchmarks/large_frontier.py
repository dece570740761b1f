"""Frontiers of large pipelines: the first plan, all plans to the tolerance, and the exact ones beside them.

    python benchmarks/large_frontier.py [--exact-up-to 8192] [--record]

61 clocks of the law in ``growth.py``; stages of one load, or no two alike. Every case is planned in a fresh process:
the first plan, the frontier and its plans to the default tolerance and, where that does not take minutes, the exact
frontier and its plans. Times of the wall clock count what else the machine does; those of the CPU count both cores. The
ratio is that of CPU times, within one process.
"""

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from growth import Case, synthetic_profile
from measuring import in_fresh_process, print_table, record_result

from perseus_dist.planning.frontier.frontier import Frontier, plan_first, plan_frontier
from perseus_dist.planning.frontier.problem import PlanningProblem, make_problem
from perseus_dist.planning.schedule.schedule import interleaved, one_f_one_b
from perseus_dist.units import uw_from_w

CASES = (  # whether stages are alike
    (Case(pp=8, chunks=4, microbatches=64), False),
    (Case(pp=16, chunks=4, microbatches=64), False),
    (Case(pp=64, chunks=1, microbatches=128), True),
    (Case(pp=64, chunks=1, microbatches=128), False),
    (Case(pp=16, chunks=4, microbatches=256), False),
    (Case(pp=16, chunks=4, microbatches=512), False),
)
LARGEST_FRONTIER = 32_768  # above, the first plan alone
BLOCKING_W = 80.0
COLUMNS = (
    *("schedule", "stages", "instructions", "first plan, wall [s]", "CPU [s]", "saves [%]", "of", "plans, wall [s]"),
    *("CPU [s]", "certified [%]", "vertices", "plans", "worst gap [%]", "peak [MiB]", "exact, CPU [s]", "ratio"),
)


def main() -> None:
    """Measure all cases, or one in this process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exact-up-to", type=int, default=8192, help="instructions; 37 s at 8,192, minutes above")
    parser.add_argument("--record", action="store_true", help="write benchmarks/results/large_frontier.json")
    parser.add_argument("--measure", type=int, metavar="CASE", help="print one case as JSON, and stop")
    args = parser.parse_args()
    if args.measure is not None:
        print(json.dumps(measure(*CASES[args.measure], exact_up_to=args.exact_up_to)))
        return
    rows = []
    for index, (case, is_alike) in enumerate(CASES):
        figures = in_fresh_process(__file__, "--measure", index, "--exact-up-to", args.exact_up_to)
        rows.append(row(case, figures, is_alike=is_alike))
        print(" | ".join(rows[-1]), file=sys.stderr)
    print_table(COLUMNS, rows)
    if args.record:
        record_result(
            "large_frontier", command="python benchmarks/large_frontier.py --record", columns=COLUMNS, rows=rows
        )


def measure(case: Case, is_alike: bool, *, exact_up_to: int) -> dict[str, Any]:  # noqa: FBT001 - of a table of cases
    """All figures of one case."""
    problem = problem_of(case, is_alike=is_alike)
    first, figures = timed("first", lambda: plan_first(problem))
    at_t_min = first.point_for_deadline(first.baseline.time_ps)
    figures["saves_percent"] = 100 * float(1 - first.total_uj[at_t_min] / first.baseline.total_uj)
    if case.num_instructions <= LARGEST_FRONTIER:
        frontier, of_all = timed("all", lambda: plan_frontier(problem))
        at_t_min = frontier.point_for_deadline(frontier.baseline.time_ps)
        figures |= of_all | {
            "saves_in_all_percent": 100 * float(1 - frontier.total_uj[at_t_min] / frontier.baseline.total_uj),
            "certified_percent": 100 * frontier.bound.tolerance,
            "vertices": len(frontier.bound.time_ps),
            "plans": len(frontier.deadline_points),
            "worst_gap_percent": 100 * float(frontier.gaps[frontier.deadline_points].max()),
        }
    figures["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if case.num_instructions <= exact_up_to:
        _, of_exact = timed("exact", lambda: plan_frontier(problem, tolerance=0))
        figures |= of_exact | {"ratio": of_exact["exact_cpu_s"] / figures["all_cpu_s"]}
    return figures


def problem_of(case: Case, *, is_alike: bool) -> PlanningProblem:
    """A pipeline of the synthetic family."""
    profile = synthetic_profile(case.pp * case.chunks, case.chunks)
    if is_alike:
        of_first = {key: profile.measurements[0, key[1]] for key in profile.measurements}
        profile = replace(profile, measurements=of_first)
    if case.chunks == 1:
        schedule = one_f_one_b(pp=case.pp, microbatches=case.microbatches)
    else:
        schedule = interleaved(pp=case.pp, microbatches=case.microbatches, chunks=case.chunks)
    return make_problem(schedule, profile, blocking_uw_of_rank=[int(uw_from_w(BLOCKING_W))] * case.pp)


def timed(name: str, plan: Callable[[], Frontier]) -> tuple[Frontier, dict[str, Any]]:
    """A frontier, and what it took."""
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    frontier = plan()
    return frontier, {
        f"{name}_wall_s": time.perf_counter() - wall_s,
        f"{name}_cpu_s": time.process_time() - cpu_s,
    }


def row(case: Case, figures: dict[str, Any], *, is_alike: bool) -> list[str]:
    """As the table shows it; what was not measured is a dash."""
    formats = (
        *(("first_wall_s", ".2f"), ("first_cpu_s", ".2f"), ("saves_percent", ".2f"), ("saves_in_all_percent", ".2f")),
        *(
            ("all_wall_s", ".1f"),
            ("all_cpu_s", ".1f"),
            ("certified_percent", ".4f"),
            ("vertices", ",d"),
            ("plans", "d"),
        ),
        *(("worst_gap_percent", ".3f"), ("peak_mib", ",.0f"), ("exact_cpu_s", ".1f"), ("ratio", ".1f")),
    )
    cells = [format(figures[key], form) if key in figures else "-" for key, form in formats]
    return [case.name, "alike" if is_alike else "all different", f"{case.num_instructions:,}", *cells]


if __name__ == "__main__":
    main()
