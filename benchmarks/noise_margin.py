"""Plans under noise of each instruction by itself: how late they are without a margin and with it, and what it costs.

    python benchmarks/noise_margin.py [--draws 50] [--record]

Profiles are those of simulated GPUs, 1F1B, the last stage 10 % heavier than the first, and say that runs spread as they
do; 16 runs of each clock were measured, and the profile's errors are drawn as well. The plan for the time at
all-maximum clocks is replayed in iterations in which every computation takes a random time of its own, two pipelines
wait for each other, and so is the iteration at all-maximum clocks. Plans without a margin are on the same profiles.
Figures are means over three profiles.
"""

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from measuring import conditions, print_table, record_result

from perseus_dist import _solver
from perseus_dist.planning.frontier.frontier import Frontier, plan_frontier
from perseus_dist.planning.frontier.noise_margin import margin_for, plan_with_margin
from perseus_dist.planning.frontier.problem import PlanningProblem, make_problem, menu_maker
from perseus_dist.planning.frontier.replay import replay
from perseus_dist.planning.profile.profile import Measurements, Profile, read_profile
from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.simulation.job import SimulatedJob
from perseus_dist.simulation.simulated_profile import profile_of_times
from perseus_dist.simulator.presets import find_presets
from perseus_dist.units import uw_from_w

SHAPES = ((2, 4), (4, 16), (8, 16))  # stages, microbatches
NOISES = (0.005, 0.01, 0.02, 0.03, 0.05)
NUM_RUNS, NUM_PIPELINES, NUM_PROFILES = 16, 2, 3
COLUMNS = (
    *("GPU", "stages", "microbatches", "noise [%]", "margin", "late without [%]", "late [%]"),
    *("saved without [%]", "saved [%]", "CPU without [s]", "CPU [s]"),
)


def main() -> None:
    """Plan and play all cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=50, metavar="N", help="iterations of each plan")
    parser.add_argument("--record", action="store_true", help="write benchmarks/results/noise_margin.json")
    args = parser.parse_args()
    before = conditions()
    rows = []
    for gpu in ("a100", "h100"):
        for pp, microbatches in SHAPES:
            truth, job = _problem(gpu, pp, microbatches)
            for noise in NOISES:
                rows.append((gpu.upper(), str(pp), str(microbatches), *_cells(truth, job, noise, args.draws)))
                print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    print(before)
    print_table(COLUMNS, rows)
    if args.record:
        command = "python benchmarks/noise_margin.py --record"
        record_result("noise_margin", command=command, columns=COLUMNS, rows=rows)


@dataclass(frozen=True, slots=True)
class _Job:
    profile: Profile
    make: Callable[[Profile], PlanningProblem]


def _problem(gpu: str, pp: int, microbatches: int) -> tuple[PlanningProblem, _Job]:
    schedule = one_f_one_b(pp=pp, microbatches=microbatches)
    job = SimulatedJob(schedule=schedule, num_pipelines=1, num_iterations=1, imbalance=0.1)
    presets = find_presets(gpu, pp)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "profile.csv"
        file.write_text(profile_of_times(presets, job.instruction_times()))
        profile = read_profile(file)
    blocking_uw = [int(uw_from_w(preset.blocking_power_w)) for preset in presets]

    def make(of: Profile) -> PlanningProblem:
        return make_problem(schedule, of, blocking_uw_of_rank=blocking_uw)

    return make(profile), _Job(profile, make)


def _measured(found: Measurements, noise: float, random: np.random.Generator) -> Measurements:
    shape, error = found.times_s.shape, noise / np.sqrt(NUM_RUNS)
    return replace(
        found,
        times_s=found.times_s * random.normal(1, error, shape),
        energies_j=found.energies_j * random.normal(1, error, shape),
        num_samples=np.full(shape, float(NUM_RUNS)),
        time_std_s=noise * found.times_s,
        energy_std_j=noise * found.energies_j,
    )


def _cells(truth: PlanningProblem, job: _Job, noise: float, num_draws: int) -> tuple[str, ...]:
    found = np.array([_figures(truth, job, noise, num_draws, seed) for seed in range(NUM_PROFILES)])
    margin, late_without, late, saved_without, saved, cpu_without_s, cpu_s = found.mean(axis=0).tolist()
    shares = (late_without, late, saved_without, saved)
    late_text = [f"{100 * share:.2f}" for share in shares[:2]]
    saved_text = [f"{100 * share:.1f}" for share in shares[2:]]
    return f"{100 * noise:g}", f"{margin:.2f}", *late_text, *saved_text, f"{cpu_without_s:.3f}", f"{cpu_s:.3f}"


def _figures(truth: PlanningProblem, job: _Job, noise: float, num_draws: int, seed: int) -> tuple[float, ...]:
    random = np.random.default_rng(seed)
    rows = {key: _measured(found, noise, random) for key, found in job.profile.measurements.items()}
    noisy = job.make(replace(job.profile, measurements=rows))
    began_s = time.process_time()
    without = plan_frontier(noisy)
    cpu_without_s, began_s = time.process_time() - began_s, time.process_time()
    kept = margin_for(noisy)
    with_margin = plan_with_margin(noisy, kept.margin, plan_frontier) if kept.is_needed else plan_frontier(noisy)
    cpu_s = time.process_time() - began_s
    played = [_played(truth, frontier, noise, num_draws) for frontier in (without, with_margin)]
    return (kept.margin, *(late for late, _ in played), *(saved for _, saved in played), cpu_without_s, cpu_s)


def _played(truth: PlanningProblem, frontier: Frontier, noise: float, num_draws: int) -> tuple[float, float]:
    """(how much later than full clocks, how much of their energy is saved) under the true times, with noise."""
    plan = frontier.clock_indices[frontier.point_for_deadline(frontier.baseline.time_ps)]
    at_max = np.zeros_like(plan)
    curves = [truth.curves[index] for index in truth.curve_of.tolist()]
    make = menu_maker(curves, np.arange(len(curves), dtype=np.int32), truth.dag)
    effective_uj = np.concatenate([curve.effective_uj for curve in curves])
    random = np.random.default_rng(2)
    total_ps = np.zeros(2)
    for _ in range(num_draws):
        latest_ps = [0, 0]
        for _ in range(NUM_PIPELINES):
            factors = random.lognormal(-noise * noise / 2, noise, len(curves))
            durations_ps = np.concatenate(
                [curve.durations_ps * one for curve, one in zip(curves, factors, strict=True)]
            )
            menu = make(np.rint(durations_ps).astype(np.int64), effective_uj)
            for place, clocks in enumerate((plan, at_max)):
                time_ps = _solver.replay(
                    menu=menu,
                    edge_from=truth.edge_from,
                    edge_to=truth.edge_to,
                    plan=clocks.astype(np.int32),
                    latency_ps=np.zeros(len(durations_ps), dtype=np.int64),
                )[0]
                latest_ps[place] = max(latest_ps[place], time_ps)
        total_ps += latest_ps
    planned, full = replay(truth, plan), replay(truth, at_max)
    return float(total_ps[0] / total_ps[1]) - 1, 1 - planned.total_uj / full.total_uj


if __name__ == "__main__":
    main()
