"""What plans by rank, by phase and by instruction save, side by side on the measured profiles, in markdown.

    python benchmarks/granularity_table.py [../shared/data] [--record]

Two models on 8 pp_ranks, 1F1B, one pipeline; every plan is realised on the measured times and energies, clock changes
take no time. Savings are in percent of the energy of all-max: no later than all-max, within 2, 5 and 10 % more time,
and while all wait for a straggler that takes 1.1 or 1.2 times as long. The gap is to the bound of all plans of the same
granularity, the worst from the fastest plan to T*. ``--record`` writes benchmarks/results/granularity.json.
"""

import argparse
import time
from pathlib import Path

from emulation_table import DEFAULT_DATA, MODELS, PP
from measuring import print_table, record_result

from perseus_dist.planning.coarse.coarse_frontier import plan_by
from perseus_dist.planning.frontier.plan import plan_for_deadline, plan_for_straggler
from perseus_dist.planning.frontier.problem import PlanningProblem, make_problem
from perseus_dist.planning.frontier.replay import replay_all_max
from perseus_dist.planning.profile.profile import read_profile
from perseus_dist.planning.schedule.granularity import Granularity
from perseus_dist.planning.schedule.schedule import one_f_one_b

MICROBATCHES = (12, 96)
SLOWDOWNS = (1.0, 1.02, 1.05, 1.1)
STRAGGLERS = (1.1, 1.2)
COLUMNS = (
    *("model", "M", "a clock for each", "at T_min", *(f"{slowdown:g}x" for slowdown in SLOWDOWNS[1:])),
    *(f"straggler {straggler:g}x" for straggler in STRAGGLERS),
    *("worst gap [%]", "changes per rank", "planning, CPU [s]"),
)
NAMES = {Granularity.RANK: "rank", Granularity.PHASE: "rank and phase", Granularity.INSTRUCTION: "instruction"}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path, default=DEFAULT_DATA, help="the folder with sosp24/")
    parser.add_argument("--record", action="store_true", help="write benchmarks/results/granularity.json")
    args = parser.parse_args()
    rows = []
    for model, profile, _, blocking_uw in MODELS:
        measured = read_profile(args.data / "sosp24" / "stage_profile" / profile)
        for microbatches in MICROBATCHES:
            schedule = one_f_one_b(pp=PP, microbatches=microbatches)
            problem = make_problem(schedule, measured, blocking_uw_of_rank=[blocking_uw] * PP)
            rows += [
                [model, str(microbatches), name, *figures(problem, granularity)] for granularity, name in NAMES.items()
            ]
    print_table(COLUMNS, rows)
    if args.record:
        record_result(
            "granularity", command="python benchmarks/granularity_table.py --record", columns=COLUMNS, rows=rows
        )


def figures(problem: PlanningProblem, granularity: Granularity) -> list[str]:
    """The cells of one row."""
    all_max_ps = replay_all_max(problem).time_ps
    deadlines_ps = [round(factor * all_max_ps) for factor in (*SLOWDOWNS, *STRAGGLERS)]
    began = time.process_time()
    frontier = plan_by(problem, granularity, deadlines_ps=deadlines_ps)
    took_s = time.process_time() - began
    plans = [
        *(plan_for_deadline(frontier, deadline_ps) for deadline_ps in deadlines_ps[: len(SLOWDOWNS)]),
        *(plan_for_straggler(frontier, deadline_ps) for deadline_ps in deadlines_ps[len(SLOWDOWNS) :]),
    ]
    most_changes = max(int(plan.execution.changes.max()) for plan in plans)
    return [
        *(f"{100 * plan.saving_share:z.1f}" for plan in plans),
        f"{100 * float(frontier.gaps[frontier.deadline_points].max()):z.2f}",
        str(most_changes),
        f"{took_s:.1f}",
    ]


if __name__ == "__main__":
    main()
