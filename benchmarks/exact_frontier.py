"""Where the exact frontier takes too long: its time beside ``frontier.exact_work``, and beside that of a tolerance.

    python benchmarks/exact_frontier.py [--limit-s 20] [--record]

Profiles are of the synthetic law in ``growth.py`` with 12, 24 or 61 clocks, and with times and energies that are off by
normal noise: noise takes most pieces of a hull away, and each that is left costs more. Every case is planned in this
process, exactly and to the default tolerance; times are those of the CPU. Exact runs that take longer than the limit
are cancelled, and shown as such.
"""

import argparse
import sys
import time

import numpy as np
from growth import Case, one_gpu
from measuring import print_table, record_result

from perseus_dist.errors import PlanningError
from perseus_dist.planning.frontier.frontier import TOLERANCE, exact_work, is_traced_exactly, plan_frontier
from perseus_dist.planning.frontier.problem import PlanningProblem, make_problem
from perseus_dist.planning.profile.profile import Profile
from perseus_dist.planning.schedule.instruction import Kind
from perseus_dist.planning.schedule.schedule import interleaved, one_f_one_b
from perseus_dist.units import uw_from_w

CASES = (  # pipeline, clocks, noise
    (Case(pp=4, chunks=1, microbatches=512), 61, 0.0),
    (Case(pp=8, chunks=1, microbatches=32), 24, 0.01),
    (Case(pp=8, chunks=1, microbatches=128), 24, 0.01),
    (Case(pp=8, chunks=1, microbatches=128), 61, 0.0),
    (Case(pp=8, chunks=1, microbatches=128), 61, 0.002),
    (Case(pp=8, chunks=4, microbatches=64), 24, 0.01),
    (Case(pp=8, chunks=4, microbatches=64), 61, 0.0),
    (Case(pp=16, chunks=1, microbatches=64), 24, 0.01),
    (Case(pp=16, chunks=1, microbatches=64), 61, 0.0),
    (Case(pp=16, chunks=1, microbatches=128), 12, 0.0),
    (Case(pp=32, chunks=1, microbatches=64), 24, 0.01),
    (Case(pp=32, chunks=1, microbatches=128), 12, 0.01),
    (Case(pp=64, chunks=1, microbatches=64), 24, 0.0),
    (Case(pp=64, chunks=1, microbatches=128), 24, 0.01),
)
BLOCKING_W = 80.0
COLUMNS = (
    *("schedule", "clocks", "noise [%]", "instructions", "pieces", "work [10^9]", "exact [s]", "of 10^9 of work [s]"),
    *(f"to {100 * TOLERANCE:g} % [s]", "by default"),
)


def main() -> None:
    """Measure all cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit-s", type=float, default=20.0, help="CPU time after which an exact run is given up")
    parser.add_argument("--record", action="store_true", help="write benchmarks/results/exact_frontier.json")
    args = parser.parse_args()
    rows = []
    for case, num_clocks, noise in CASES:
        rows.append(row(case, num_clocks, noise, limit_s=args.limit_s))
        print(" | ".join(rows[-1]), file=sys.stderr)
    print_table(COLUMNS, rows)
    if args.record:
        record_result(
            "exact_frontier", command="python benchmarks/exact_frontier.py --record", columns=COLUMNS, rows=rows
        )


def row(case: Case, num_clocks: int, noise: float, *, limit_s: float) -> tuple[str, ...]:
    """One line of the table."""
    problem = make_problem(
        one_f_one_b(pp=case.pp, microbatches=case.microbatches)
        if case.chunks == 1
        else interleaved(pp=case.pp, microbatches=case.microbatches, chunks=case.chunks),
        noisy_profile(case, num_clocks, noise),
        blocking_uw_of_rank=[int(uw_from_w(BLOCKING_W))] * case.pp,
    )
    work = exact_work(problem)
    num_pieces = work // (problem.num_instructions * case.pp)
    exact_s, tolerated_s = cpu_s(problem, 0.0, limit_s), cpu_s(problem, TOLERANCE, np.inf)
    return (
        case.name,
        str(num_clocks),
        f"{100 * noise:g}",
        f"{problem.num_instructions:,}",
        f"{num_pieces:,}",
        f"{work / 1e9:.2f}",
        f"> {limit_s:.0f}" if exact_s is None else f"{exact_s:.2f}",
        "" if exact_s is None else f"{1e9 * exact_s / work:.2f}",
        f"{tolerated_s:.2f}",
        "exact" if is_traced_exactly(problem) else "to tolerance",
    )


def noisy_profile(case: Case, num_clocks: int, noise: float) -> Profile:
    """The law of ``growth.synthetic_profile`` at so many clocks, with noise."""
    num_stages = case.pp * case.chunks
    clocks_mhz = np.linspace(1980, 990, num_clocks).round().astype(np.int64)
    x = clocks_mhz / 1980
    rng = np.random.default_rng(2024)
    measurements = {}
    for stage in range(num_stages):
        load, a = rng.uniform(1, 1.15), rng.uniform(0.75, 0.80)
        for kind, work_s in ((Kind.FORWARD, 0.050), (Kind.BACKWARD, 0.100)):
            times_s = load * work_s / case.chunks * (a / x + 1 - a) * rng.normal(1, noise, num_clocks)
            energies_j = (100 + 600 * x**2.6) * times_s * rng.normal(1, noise, num_clocks)
            measurements[stage, str(kind)] = one_gpu(clocks_mhz, times_s, energies_j)
    return Profile(source="synthetic with noise", measurements=measurements)


def cpu_s(problem: PlanningProblem, tolerance: float, limit_s: float) -> float | None:
    """CPU time [s] of the bound and two plans; None where it is more than the limit."""
    began_s = time.process_time()
    try:
        plan_frontier(
            problem,
            num_points=2,
            thorough=False,
            tolerance=tolerance,
            progress=lambda _phase, _done: time.process_time() < began_s + limit_s,
        )
    except PlanningError:
        return None
    return time.process_time() - began_s


if __name__ == "__main__":
    main()
