"""How often the true saving lies in the interval that was predicted, and how wide that is.

    python benchmarks/saving_intervals.py [../shared/data] [--seeds N] [--record]

*Profiles*: the public stage profiles stand for the truth. Five measurements of each point are drawn around it, a plan
is made of their means, and what it saves is counted on the truth. 8 stages, 12 microbatches, 1F1B; with all clocks, and
with every sixth.

*Jobs* in virtual time sweep, plan and train under noise on every computation: the interval is that of the moment when
the plan comes into force, before the self-check knows any iteration under it. The truth is what iterations under the
plan draw against those of the same job without Perseus. 4 stages, 8 microbatches, 1F1B.
"""

import argparse
import statistics
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from measuring import print_table, record_result

from perseus_dist.planner.job.predicted_saving import saving_interval
from perseus_dist.planning.frontier.frontier import NUM_QUICK_POINTS, plan_frontier
from perseus_dist.planning.frontier.problem import make_problem
from perseus_dist.planning.frontier.replay import replay, replay_all_max
from perseus_dist.planning.frontier.saving_interval import saving_intervals
from perseus_dist.planning.profile.profile import Measurements, Profile, read_profile
from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.simulation.job import SimulatedJob
from perseus_dist.simulation.virtual.run import virtual_job
from perseus_dist.simulation.virtual.training import virtual_training
from perseus_dist.units import UW_PER_W

DEFAULT_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
PROFILES = (  # name, file, blocking power [W] of one GPU
    ("GPT-3 175B, A100", "gpt3-175b+a100_sxm_bf16.csv", 83.64),
    ("Bloom 176B, A40", "bloom+a40_bf16.csv", 70.38),
)
NOISE_PERCENT, NUM_MEASURED = (0.2, 1.0, 3.0), 5
GPUS, JOB_NOISE_PERCENT = ("a100", "a40", "h100", "h200"), (0.0, 0.5, 2.0)
NUM_ITERATIONS, NUM_FULL, NUM_LAST, IMBALANCE = 140, 40, 60, 0.15
COLUMNS = (
    "what",
    "noise [%]",
    "intervals",
    "true saving inside",
    "half-width, mean [points]",
    "widest [points]",
    "farthest outside [points]",
)


class Found(NamedTuple):
    """An interval of savings, and the true one; shares."""

    low: float
    high: float
    true: float


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path, default=DEFAULT_DATA, help="the folder with sosp24/")
    parser.add_argument("--seeds", type=int, default=4, help="jobs of each kind, and five times as many profiles")
    parser.add_argument("--record", action="store_true", help="write benchmarks/results/saving_intervals.json")
    args = parser.parse_args()
    rows = []
    for name, file, blocking_power_w in PROFILES:
        whole = read_profile(args.data / "sosp24" / "stage_profile" / file)
        for every in (1, 6):
            truth = Profile(
                source=name, measurements={key: thinned(one, every) for key, one in whole.measurements.items()}
            )
            clocks = "all clocks" if every == 1 else f"every {every}th clock"
            for noise_percent in NOISE_PERCENT:
                found = [of_profile(truth, noise_percent, seed, blocking_power_w) for seed in range(5 * args.seeds)]
                rows.append(row(f"{name}, {clocks}", noise_percent, found))
    for gpu in GPUS:
        for noise_percent in JOB_NOISE_PERCENT:
            jobs = [of_job(gpu, noise_percent, seed) for seed in range(args.seeds)]
            rows.append(row(f"job on simulated {gpu.upper()}", noise_percent, jobs))
            print(rows[-1], flush=True)
    print_table(COLUMNS, rows)
    if args.record:
        command = "python benchmarks/saving_intervals.py --record"
        record_result("saving_intervals", command=command, columns=COLUMNS, rows=rows)


def row(name: str, noise_percent: float, found: Iterable[Found]) -> tuple[str, ...]:
    """A line of the table."""
    found = list(found)
    halves = [50 * (one.high - one.low) for one in found]
    outside = [100 * max(one.low - one.true, one.true - one.high, 0.0) for one in found]
    return (
        name,
        f"{noise_percent:g}",
        str(len(found)),
        f"{outside.count(0.0)} of {len(found)}",
        f"{statistics.fmean(halves):.2f}",
        f"{max(halves):.2f}",
        f"{max(outside):.2f}",
    )


def of_profile(truth: Profile, noise_percent: float, seed: int, blocking_power_w: float) -> Found:
    """A plan of a noisy measurement of the truth."""
    random, schedule = np.random.default_rng(seed), one_f_one_b(pp=truth.num_stages, microbatches=12)
    blocking_uw_of_rank = [round(UW_PER_W * blocking_power_w)] * truth.num_stages
    measurements = {key: measured(one, noise_percent / 100, random) for key, one in truth.measurements.items()}
    true, problem = (
        make_problem(schedule, one, blocking_uw_of_rank=blocking_uw_of_rank)
        for one in (truth, replace(truth, measurements=measurements))
    )
    frontier = plan_frontier(problem, num_points=NUM_QUICK_POINTS, thorough=False)
    plan = frontier.clock_indices[frontier.point_for_deadline(frontier.baseline.time_ps)]
    intervals = saving_intervals(problem, [plan])
    assert intervals is not None
    saved = 1 - replay(true, plan).total_uj / replay_all_max(true).total_uj
    return Found(intervals[0].low, intervals[0].high, saved)


def thinned(one: Measurements, every: int) -> Measurements:
    """With some of the clocks, the maximum among them."""
    kept = slice(None, None, every)
    names = ("times_s", "energies_j", "num_samples", "time_std_s", "energy_std_j")
    return replace(one, clocks_mhz=one.clocks_mhz[kept], **{name: getattr(one, name)[:, kept] for name in names})


def measured(true: Measurements, noise: float, random: np.random.Generator) -> Measurements:
    """Some measurements of each point."""
    times_s, energies_j = (
        values * (1 + noise * random.standard_normal((NUM_MEASURED, *values.shape)))
        for values in (true.times_s, true.energies_j)
    )
    return replace(
        true,
        times_s=times_s.mean(axis=0),
        energies_j=energies_j.mean(axis=0),
        num_samples=np.full(true.times_s.shape, float(NUM_MEASURED)),
        time_std_s=times_s.std(axis=0, ddof=1),
        energy_std_j=energies_j.std(axis=0, ddof=1),
    )


def of_job(gpu: str, noise_percent: float, seed: int) -> Found:
    """A job in virtual time."""
    schedule = one_f_one_b(pp=4, microbatches=8)
    simulated = SimulatedJob(schedule=schedule, num_pipelines=1, num_iterations=NUM_ITERATIONS, imbalance=IMBALANCE)
    with virtual_training(simulated, gpu, noise_percent=noise_percent, seed=seed) as training:
        for _ in range(NUM_FULL):
            training.run_iteration()
        full_j = statistics.median(one.energy_j for one in training.iterations)
    interval = None
    with virtual_job(simulated, gpu, noise_percent=noise_percent, seed=seed) as job:
        for _ in range(NUM_ITERATIONS):
            job.run_iteration()
            interval = interval or saving_interval(job.planner.job)
        planned_j = statistics.median(one.energy_j for one in job.iterations[-NUM_LAST:] if one.phase == "enforcing")
    if interval is None:
        raise SystemExit(f"saving_intervals.py: the job on {gpu}, seed {seed}, has no plan with an interval")
    return Found(*interval, 1 - planned_j / full_j)


if __name__ == "__main__":
    main()
