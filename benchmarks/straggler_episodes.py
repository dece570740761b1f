"""What reacting to stragglers saves, of what an oracle saves that knows of them at once.

    python benchmarks/straggler_episodes.py [--processes 2] [--record]

One rank of pipeline 0 is slow for 40 iterations: by itself, by heat, or by a power cap. PP4 M8 and PP2 M4 on simulated
A100, 1F1B, saved profile, target T_min, noise of 0.5 %, in virtual time. Counted is the energy of all other pipelines'
GPUs, over the episode and over its second half:

- *unmoved*: the plan of T_min, and all wait for the straggler: the episode's first iteration, before anything answers;
- *ours*: the detector finds the straggler, and the others wait at slower clocks; probes and falls included;
- *oracle*: an operator reports the straggler as it begins, by how much the same history without Perseus is longer. The
  median iteration of the second half stands for all, so that the oracle has switched before the first one.

A share is (unmoved - ours) / (unmoved - oracle). The bars: 80 % over the episode, 95 % over its second half. The job's
iterations may be shorter than the oracle's, because a straggler that is found has a plan of its own for its pipeline.
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from typing import NamedTuple

from measuring import conditions, print_table, record_result

from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.simulation.chaos.scenario.events import Event, HeatCap, PowerCap, SlowDown, StragglerOrder
from perseus_dist.simulation.chaos.scenario.scenario import ScenarioJob
from perseus_dist.simulation.chaos.world.profile_rows import undisturbed_profile
from perseus_dist.simulation.chaos.world.world_faults import WorldFaults
from perseus_dist.simulation.job import SimulatedJob
from perseus_dist.simulation.virtual.run import virtual_job
from perseus_dist.simulation.virtual.training import VirtualTraining, virtual_training

FIRST, EPISODE, RANK = 60, 40, 1
HALF = EPISODE // 2
FAULTS: tuple[tuple[str, Event], ...] = (
    *(
        (f"{slowdown:g} times slower", SlowDown(iteration=FIRST, rank=RANK, slowdown=slowdown))
        for slowdown in (1.1, 1.2, 1.5)
    ),
    *((f"heat, {mhz} MHz", HeatCap(iteration=FIRST, rank=RANK, thermal_cap_mhz=mhz)) for mhz in (1110, 900)),
    ("power cap, 250 W", PowerCap(iteration=FIRST, rank=RANK, power_limit_w=250.0)),
)
COLUMNS = (
    "straggler",
    "PP",
    "DP",
    "T' over T_min",
    "oracle saves [%]",
    "ours, episode [%]",
    "second half [%]",
    "longer than without [%]",
)


class Case(NamedTuple):
    """One episode."""

    name: str
    fault: Event
    job: ScenarioJob


class Played(NamedTuple):
    """Iterations of an episode: the job's times [s], and energies of all pipelines but the straggler's [J]."""

    times_s: list[float]
    others_j: list[float]


def main() -> None:
    """Read the command line, play all, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=1, help="episodes to play at a time (default: 1)")
    parser.add_argument("--record", action="store_true", help="write benchmarks/results/straggler_episodes.json")
    args = parser.parse_args()
    print(conditions())
    with ProcessPoolExecutor(args.processes) as pool:
        rows = list(pool.map(_row, _cases()))
    print_table(COLUMNS, rows)
    if args.record:
        command = "python benchmarks/straggler_episodes.py --record"
        record_result("straggler_episodes", command=command, columns=COLUMNS, rows=rows)


def _cases() -> list[Case]:
    sizes = ((4, 8), (2, 4))
    return [
        Case(name, fault, ScenarioJob(schedule="1f1b", pp=pp, microbatches=microbatches, dp=dp, noise_percent=0.5))
        for (pp, microbatches), dp, (name, fault) in product(sizes, (2, 4, 8), FAULTS)
    ]


def _row(case: Case) -> tuple[str, ...]:
    job, fault = case.job, case.fault
    with TemporaryDirectory() as folder:
        profile = Path(folder) / "profile.csv"
        simulated = SimulatedJob(
            schedule=job.make_schedule(),
            num_pipelines=job.dp,
            num_iterations=FIRST + EPISODE,
            imbalance=job.imbalance,
        )
        profile.write_text(undisturbed_profile(simulated, job.gpu))
        simulated = replace(simulated, profile=str(profile))
        with virtual_training(simulated, job.gpu, noise_percent=job.noise_percent, seed=1) as training:
            before_s = median(_trained(training, job, FIRST).times_s)
            WorldFaults(training).apply(fault)
            without = _trained(training, job, EPISODE)
        degree = median(without.times_s) / before_s
        ours = _episode(simulated, job, [fault], acts_on_stragglers=True)
        report = StragglerOrder(iteration=FIRST, pipeline=0, degree=degree)
        oracle = _episode(simulated, job, [fault, report], acts_on_stragglers=False)

    unmoved_j, oracle_j = ours.others_j[0], median(oracle.others_j[HALF:])
    shares = [(unmoved_j - mean(ours.others_j[begin:])) / (unmoved_j - oracle_j) for begin in (0, HALF)]
    longer = sum(ours.times_s) / sum(without.times_s) - 1
    return (
        case.name,
        str(job.pp),
        str(job.dp),
        f"{degree:.3f}",
        f"{100 * (1 - oracle_j / unmoved_j):.1f}",
        *(f"{100 * share:.0f}" for share in shares),
        f"{100 * longer:+.1f}",
    )


def _episode(simulated: SimulatedJob, job: ScenarioJob, events: list[Event], *, acts_on_stragglers: bool) -> Played:
    policy = replace(Policy(), acts_on_stragglers=acts_on_stragglers)
    with virtual_job(simulated, job.gpu, policy, noise_percent=job.noise_percent, seed=1) as training:
        _trained(training, job, FIRST)
        faults = WorldFaults(training)
        for event in events:
            faults.apply(event)
        return _trained(training, job, EPISODE)


def _trained(training: VirtualTraining, job: ScenarioJob, num_iterations: int) -> Played:
    played = Played([], [])
    for _ in range(num_iterations):
        before_j = _others_j(training, job)
        trained = training.run_iteration()
        assert trained is not None
        played.times_s.append(trained.time_s)
        played.others_j.append(_others_j(training, job) - before_j)
    return played


def _others_j(training: VirtualTraining, job: ScenarioJob) -> float:
    return sum(gpu.state().true_energy_j for gpu in training.machine.gpus[job.ranks_per_pipeline :])


if __name__ == "__main__":
    main()
