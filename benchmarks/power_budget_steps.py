"""Sixteen simulated jobs of four shapes under one power budget, in steps down and up, in virtual time.

    python benchmarks/power_budget_steps.py [--record]

Each step sets the budget to a share of what the jobs draw under their own targets, with a guard band, and lasts for so
many seconds. *Below* is the time and the number of the slowest job's iterations from the order until power is below the
cap for good; power is the sum of each job's mean over the iteration that it is in, by the simulator's truth. *Above* is
the most by which it exceeds the cap after that. *Lost* is throughput, the mean over the jobs, against their own
targets' plans; beside it what two other ways to keep the same cap lose: one slowdown for all jobs under plans, and the
same power limit for all GPUs without plans, against full clocks.
"""

import argparse
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from measuring import print_table, record_result

from perseus_dist.planner.budget.demand import demand_of
from perseus_dist.planner.job.facts.policies import BudgetSet
from perseus_dist.planner.job.job import Phase
from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.simulation.job import SimulatedJob
from perseus_dist.simulation.virtual.fleet import VirtualFleet
from perseus_dist.simulation.virtual.run import virtual_job
from perseus_dist.simulation.virtual.training import VirtualTraining
from perseus_dist.simulator.machine import SimulatedMachine
from perseus_dist.simulator.presets import find_preset

PRESET = "a100"
SHAPES = (  # stages, pipelines, microbatches, imbalance, times as long
    (2, 1, 8, 0.2, 0.5),
    (4, 1, 8, 0.1, 1.0),
    (2, 2, 6, 0.4, 0.5),
    (3, 1, 12, 0.0, 0.7),
)
JOBS_OF_SHAPE = 4
CUTS = (0.1, 0.25, 0.4, 0.5, 0.0)
GUARD_BAND = 0.02
STEP_S = 60.0
MIN_LIMIT_W, MAX_LIMIT_W = find_preset(PRESET).power_limits_w[:2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limited:
    """A job of each shape without Perseus, all GPUs at one power limit: [W] of all, and [s] an iteration of each."""

    power_w: float
    times_s: tuple[float, ...]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write benchmarks/results/power_budget_steps.json")
    args = parser.parse_args()
    columns = (
        "power",
        "cap [W]",
        "planned [W]",
        "below after [s]",
        "iterations",
        "most above [%]",
        "lost [%]",
        "one slowdown [%]",
        "power limits [%]",
    )
    with TemporaryDirectory() as folder, ExitStack() as jobs:
        profiles = [profile_of(shape, Path(folder) / f"{number}.csv") for number, shape in enumerate(SHAPES)]
        fleet = VirtualFleet(
            [
                jobs.enter_context(
                    virtual_job(simulated(shape, f"job-{number}-{copy}", profile), PRESET, quick_plans=True)
                )
                for copy in range(JOBS_OF_SHAPE)
                for number, (shape, profile) in enumerate(zip(SHAPES, profiles, strict=True))
            ]
        )
        rows = steps(fleet)
    print_table(columns, rows)
    if args.record:
        command = "python benchmarks/power_budget_steps.py --record"
        record_result("power_budget_steps", command=command, columns=columns, rows=rows)


def simulated(shape: tuple[int, int, int, float, float], job_id: str, profile: str | None) -> SimulatedJob:
    """A job of a shape."""
    pp, dp, microbatches, imbalance, time_scale = shape
    return SimulatedJob(
        schedule=one_f_one_b(pp=pp, microbatches=microbatches),
        num_pipelines=dp,
        num_iterations=10**6,
        imbalance=imbalance,
        job_id=job_id,
        time_scale=time_scale,
        profile=profile,
    )


def profile_of(shape: tuple[int, int, int, float, float], path: Path, preset: str = PRESET) -> str:
    """The profile that a job of a shape measures."""
    with virtual_job(simulated(shape, "first", None), preset, quick_plans=True) as job:
        while job.planner.job.plan is None:
            job.run_iteration()
        path.write_bytes(job.planner.job.plan.profile_csv)
    return str(path)


def steps(fleet: VirtualFleet) -> list[tuple[str, ...]]:
    """A row for each step."""
    while any(job.planner.job.phase is not Phase.ENFORCING or job.planner.job.awaits_frontier for job in fleet.jobs):
        fleet.run_until(fleet.now_s + 5)
    fleet.run_until(fleet.now_s + STEP_S)
    own_s = [job.iterations[-1].time_s for job in fleet.jobs]
    own_w = mean_power_w(fleet, fleet.now_s - STEP_S / 2, fleet.now_s)
    rows = []
    for cut in CUTS:
        begin_s, cap_w = fleet.now_s, (1 - cut) * own_w
        slowest_s = max(job.iterations[-1].time_s for job in fleet.jobs)
        if cut:
            fleet.governor.apply(BudgetSet(name="all", watts=cap_w, guard_band=GUARD_BAND))
        else:
            fleet.governor.drop_budget("all")
        fleet.evaluate()
        planned_w = fleet.governor.states[0].planned_w if cut else own_w
        fleet.run_until(begin_s + STEP_S)
        now_s = [job.iterations[-1].time_s for job in fleet.jobs]
        label = f"-{100 * cut:.0f} %" if cut else "none again"
        cells = [label, f"{cap_w:,.0f}", f"{planned_w:,.0f}"]
        cells += below(fleet, begin_s, cap_w, slowest_s) if cut else ["", "", ""]
        cells.append(f"{100 * lost(own_s, now_s):.2f}")
        cells += [one_slowdown(fleet, cap_w, own_s), power_limits(cap_w)] if cut else ["", ""]
        rows.append(tuple(cells))
    return rows


def below(fleet: VirtualFleet, begin_s: float, cap_w: float, iteration_s: float) -> list[str]:
    """Seconds and iterations until power is below the cap for good, and the most above it afterwards."""
    moments = [begin_s + step / 20 for step in range(round(20 * (STEP_S - 5)))]
    powers_w = [fleet.power_w(moment) for moment in moments]
    first = next((number for number, power_w in enumerate(powers_w) if power_w <= cap_w), None)
    if first is None:
        return ["never", "", f"{100 * (powers_w[-1] / cap_w - 1):.2f}"]
    after_s = moments[first] - begin_s
    above = max(0.0, max(powers_w[first:]) / cap_w - 1)
    return [f"{after_s:.2f}", f"{after_s / iteration_s:.2f}", f"{100 * above:.2f}"]


def mean_power_w(fleet: VirtualFleet, begin_s: float, end_s: float) -> float:
    """[W] of all jobs over a while."""
    return sum(fleet.power_w(begin_s + (end_s - begin_s) * step / 200) for step in range(200)) / 200


def lost(own_s: Sequence[float], now_s: Sequence[float]) -> float:
    """Share of throughput, the mean over jobs."""
    return sum(1 - own / now for own, now in zip(own_s, now_s, strict=True)) / len(own_s)


def one_slowdown(fleet: VirtualFleet, cap_w: float, own_s: Sequence[float]) -> str:
    """Loss of the least common slowdown that keeps the cap, every job at its slowest plan within it."""
    points = [found.points for job in fleet.jobs if (found := demand_of(job.planner.job))]
    usable_w, slowdown = cap_w * (1 - GUARD_BAND), 0.0
    while slowdown < 1 and sum(one.no_slower_than(slowdown).powers_w[-1] for one in points) > usable_w:
        slowdown += 1e-3
    if slowdown >= 1:
        return "cannot"
    return f"{100 * lost(own_s, [one.no_slower_than(slowdown).times_s[-1] for one in points]):.2f}"


def power_limits(cap_w: float) -> str:
    """Loss of the highest power limit for all GPUs that keeps the cap, without plans, against full clocks."""
    usable_w = cap_w * (1 - GUARD_BAND) / JOBS_OF_SHAPE
    full = limited(MAX_LIMIT_W)
    low_w, high_w = MIN_LIMIT_W, MAX_LIMIT_W
    if limited(low_w).power_w > usable_w:
        return "cannot"
    while high_w - low_w > 1:
        middle_w = (low_w + high_w) / 2
        if limited(middle_w).power_w <= usable_w:
            low_w = middle_w
        else:
            high_w = middle_w
    return f"{100 * lost(full.times_s, limited(low_w).times_s):.2f}"


def limited(limit_w: float, preset: str = PRESET) -> Limited:
    """All shapes under a power limit."""
    powers_w, times_s = [], []
    for shape in SHAPES:
        of_job = simulated(shape, "limited", None)
        machine = SimulatedMachine(preset, count=of_job.num_ranks, virtual=True)
        try:
            for gpu in machine.gpus:
                gpu.set_power_limit_w(limit_w)
            job = VirtualTraining(of_job, machine)
            for _ in range(3):
                iteration = job.run_iteration()
            assert iteration is not None
            powers_w.append(iteration.energy_j / iteration.time_s)
            times_s.append(iteration.time_s)
        finally:
            machine.close()
    return Limited(power_w=sum(powers_w), times_s=tuple(times_s))


if __name__ == "__main__":
    main()
