"""Looking up plans in a loaded frontier: GPT-3 175B on A100, PP8, 1F1B; the bar is 1 ms a lookup.

    python benchmarks/lookup.py [--microbatches 96] [--record]

The frontier is planned, saved and loaded again. 1,000 deadlines are drawn uniformly between T_min and T*, seed 2024,
and each is looked up on its own: ``point_for_deadline`` says which plan, ``plan_for_deadline`` also replays it, so
that its start and end times, clocks and energies are at hand.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from measuring import add_profile_arguments, conditions, print_table, record_result

from perseus_dist.planning.frontier.frontier import plan_frontier
from perseus_dist.planning.frontier.frontier_file import load_frontier, save_frontier
from perseus_dist.planning.frontier.plan import plan_for_deadline
from perseus_dist.planning.frontier.problem import make_problem
from perseus_dist.planning.profile.profile import read_profile
from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.units import uw_from_w

PP = 8
NUM_LOOKUPS = 1000
NUM_LOADS = 100


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_profile_arguments(parser)
    parser.add_argument("--microbatches", type=int, default=12)
    parser.add_argument("--record", action="store_true", help="write benchmarks/results/lookup.json")
    args = parser.parse_args()
    problem = make_problem(
        one_f_one_b(pp=PP, microbatches=args.microbatches),
        read_profile(args.profile),
        blocking_uw_of_rank=[int(uw_from_w(args.blocking_power_w))] * PP,
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "frontier.npz"
        save_frontier(plan_frontier(problem), path)
        size_kib = path.stat().st_size / 1024
        frontier = load_frontier(path)
        load_us = timed_us(lambda _: load_frontier(path), [0] * NUM_LOADS)
    rng = np.random.default_rng(2024)
    deadlines_ps = rng.integers(frontier.fastest_ps, frontier.t_star_ps, NUM_LOOKUPS, endpoint=True).tolist()
    point_us = timed_us(frontier.point_for_deadline, deadlines_ps)
    plan_us = timed_us(lambda deadline_ps: plan_for_deadline(frontier, deadline_ps), deadlines_ps)
    print(
        f"{args.profile.name}, PP{PP} M{args.microbatches}, {problem.num_instructions} instructions, "
        f"{len(frontier.time_ps)} plans; {conditions()}.\n"
    )
    rows = [
        [name, f"{statistics.median(us):,.1f}", f"{statistics.quantiles(us, n=100)[98]:,.1f}", f"{max(us):,.1f}"]
        for name, us in (
            ("`point_for_deadline`, which plan", point_us),
            ("`plan_for_deadline`, with its clocks, starts and ends", plan_us),
            (f"`load_frontier`, {size_kib:.0f} KiB, {NUM_LOADS} times", load_us),
        )
    ]
    columns = (f"{NUM_LOOKUPS:,} lookups", "median [us]", "99 % [us]", "worst [us]")
    print_table(columns, rows)
    if args.record:
        record_result("lookup", command="python benchmarks/lookup.py --record", columns=columns, rows=rows)


def timed_us(look_up: Callable[[int], object], deadlines_ps: list[int]) -> list[float]:
    """[us] of each call."""
    elapsed_us = []
    for deadline_ps in deadlines_ps:
        began = time.perf_counter()
        look_up(deadline_ps)
        elapsed_us.append(1e6 * (time.perf_counter() - began))
    return elapsed_us


if __name__ == "__main__":
    main()
