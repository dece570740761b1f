"""Jobs whose instructions cannot be seen, in the service and in virtual time: by rank, and by phase, in markdown.

    python benchmarks/coarse_jobs.py [--record]

Each job is measured while its instructions can be seen, as in eager iterations; then its agents see iterations alone,
as in a CUDA graph, and follow plans by rank, or plans by phase by time. A plan by instruction stands beside it.
Computations take another time in each iteration by chance (normal deviation). Savings and slowdowns are true ones of
the simulated GPUs: medians of 60 iterations under the plan beside the mean of 60 of the same job without one.
``--record`` writes benchmarks/results/coarse_jobs.json.
"""

import argparse
from dataclasses import replace
from statistics import fmean, median

from measuring import print_table, record_result

from perseus_dist.planning.schedule.granularity import Granularity
from perseus_dist.planning.schedule.schedule import Schedule, interleaved, one_f_one_b
from perseus_dist.simulation.job import SimulatedJob
from perseus_dist.simulation.virtual.run import virtual_job
from perseus_dist.simulation.virtual.training import VirtualIteration

JOBS: tuple[tuple[str, str, Schedule, float], ...] = (
    ("A100, 4 stages, 8 microbatches", "a100", one_f_one_b(pp=4, microbatches=8), 0.1),
    ("A100, 4 stages, 16 microbatches", "a100", one_f_one_b(pp=4, microbatches=16), 0.1),
    ("A40, 4 stages, 8 microbatches", "a40", one_f_one_b(pp=4, microbatches=8), 0.1),
    ("A100, 2 x 2 stages interleaved, 8 microbatches", "a100", interleaved(pp=2, microbatches=8, chunks=2), 0.3),
)
TARGETS = (None, "slowdown=1.05")
NOISE_PERCENT = 1.0
NUM_SETTLING, NUM_MEASURED = 40, 60
COLUMNS = ("job", "target", "a clock for each", "predicted [%]", "saved [%]", "slowdown [%]")
NAMES = {Granularity.RANK: "rank", Granularity.PHASE: "rank and phase", Granularity.INSTRUCTION: "instruction"}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write benchmarks/results/coarse_jobs.json")
    args = parser.parse_args()
    rows = []
    for name, preset, schedule, imbalance in JOBS:
        seen = SimulatedJob(schedule=schedule, num_pipelines=1, num_iterations=0, imbalance=imbalance)
        full = without_plan(replace(seen, granularity=Granularity.RANK), preset)
        for target in TARGETS:
            for granularity, unit in NAMES.items():
                predicted, planned = under_plan(replace(seen, target=target), granularity, preset)
                saved = 1 - median(one.energy_j for one in planned) / fmean(one.energy_j for one in full)
                slower = median(one.time_s for one in planned) / fmean(one.time_s for one in full) - 1
                cells = [f"{100 * share:z.2f}" for share in (predicted, saved, slower)]
                rows.append([name, target or "t_min", unit, *cells])
    print_table(COLUMNS, rows)
    if args.record:
        record_result("coarse_jobs", command="python benchmarks/coarse_jobs.py --record", columns=COLUMNS, rows=rows)


def without_plan(unseen: SimulatedJob, preset: str) -> list[VirtualIteration]:
    """Iterations of a job without a profile."""
    with virtual_job(unseen, preset, noise_percent=NOISE_PERCENT) as job:
        iterations = [job.run_iteration() for _ in range(NUM_MEASURED)]
        return [one for one in iterations if one is not None]


def under_plan(seen: SimulatedJob, granularity: Granularity, preset: str) -> tuple[float, list[VirtualIteration]]:
    """The predicted saving, and iterations while the plan is in force."""
    with virtual_job(seen, preset, noise_percent=NOISE_PERCENT) as job:
        while job.planner.job.plan is None:
            job.run_iteration()
        if granularity != Granularity.INSTRUCTION:
            job.next_job(replace(seen, granularity=granularity))
        for _ in range(NUM_SETTLING):
            job.run_iteration()
        iterations = [job.run_iteration() for _ in range(NUM_MEASURED)]
        predicted = job.status.predicted_saving
        assert predicted is not None
        return predicted, [one for one in iterations if one is not None and one.phase == "enforcing"]


if __name__ == "__main__":
    main()
