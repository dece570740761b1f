"""Sixteen jobs on three planners under one power budget: the first order moves all of them to one planner.

    python benchmarks/power_budget_replicas.py [--record]

A budget is kept by one replica, which also has all jobs that it covers. *Moved* is measured: three real planners on
PostgreSQL, sixteen jobs of two to four ranks spread over them, from the start of the command that sets the budget until
the last rank of a job is attached at the replica that keeps it. The steps are those of ``power_budget_steps.py``, in
virtual time, with each of these times: a job's planner is killed as the budget is set, and its agents can find the
keeper that much later, which knows of the job what is stored; it counts no job before that. Every first order is played
from the beginning, and further ones behind it, as no job moves any more.
"""

import argparse
import asyncio
import json
import math
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from load_agent import LoadAgent, LoadJob
from measuring import conditions, print_table, record_result
from planner_load import PlannerProcess, allow_many_files
from power_budget_steps import (
    CUTS,
    GUARD_BAND,
    JOBS_OF_SHAPE,
    PRESET,
    SHAPES,
    STEP_S,
    below,
    lost,
    mean_power_w,
    one_slowdown,
    power_limits,
    profile_of,
    simulated,
)

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from postgres_server import PostgresServer, running_server

from perseus_dist.planner.job.facts.policies import BudgetSet
from perseus_dist.planner.job.job import Phase
from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.simulation.virtual.fleet import VirtualFleet
from perseus_dist.simulation.virtual.run import VirtualJob, virtual_job

NUM_PLANNERS = 3
FIRST_CUTS = (0.1, 0.25, 0.5)
PATIENCE_S = 120.0
NUM_REPORTS = 40
COLUMNS = (
    "power",
    "cap [W]",
    "jobs moved after [s], median and last",
    "below after [s]",
    "iterations",
    "most above [%]",
    "lost [%]",
    "one slowdown [%]",
    "power limits [%]",
)


class MovingFleet(VirtualFleet):
    """Jobs of several planners, which come to the one that keeps the budgets.

    Attributes:
        arrive_s: By job, [s] when its ranks are attached there; infinity for a job that is elsewhere for good.
    """

    def __init__(self, jobs: Sequence[VirtualJob]) -> None:
        super().__init__(jobs)
        self.arrive_s = [-math.inf] * len(jobs)

    def move(self, moves_s: Sequence[float]) -> None:
        """From now on each job is at no planner, for so many seconds."""
        self.arrive_s = [self.now_s + move_s for move_s in moves_s]
        for job, move_s in zip(self.jobs, moves_s, strict=True):
            if move_s:
                job.faults.kill_planner()

    def evaluate(self) -> None:
        """Look at the budgets, as the keeper does, with the jobs that it has by now."""
        here = [job for job, at_s in zip(self.jobs, self.arrive_s, strict=True) if job.machine.now_ns / 1e9 >= at_s]
        for job in here:
            if not job.planner.is_alive:
                job.faults.restart_planner()
        found = self.governor.evaluate([job.planner.job for job in here], self.now_s, self.prices)
        by_name = {job.planner.job.job_id: job for job in here}
        for job_id, order in found.orders:
            by_name[job_id].planner.tell(order)


def free_address() -> str:
    """A loopback address that no program listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{found.getsockname()[1]}"


def owners(server: PostgresServer) -> dict[str, str]:
    """By job, the address of its living owner."""
    rows = server.execute(
        "SELECT job, address FROM perseus_dist.leases JOIN perseus_dist.planners ON number = planner "
        "WHERE job <> '' AND alive_until > now()",
        "fresh",
    )
    return dict(rows)


async def moves() -> list[float]:
    """[s] from SetBudget until each job's last rank is attached at the keeper; 0 for jobs that were there before."""
    with running_server(fsync=True) as server, ExitStack() as folders:
        url = server.url(server.fresh_database())
        planners = []
        for _ in range(NUM_PLANNERS):
            address = free_address()
            folder = Path(folders.enter_context(tempfile.TemporaryDirectory()))
            planner = PlannerProcess(folder, "--store", url, "--advertise", address)
            planner.address = address
            planners.append(planner)
            await planner.start()
        addresses = [planner.address for planner in planners]
        agents: dict[str, list[LoadAgent]] = {}
        for number in range(JOBS_OF_SHAPE * len(SHAPES)):
            pp, dp, microbatches, *_ = SHAPES[number % len(SHAPES)]
            job = LoadJob(job_id=f"job-{number}", schedule=one_f_one_b(pp=pp, microbatches=microbatches), dp_size=dp)
            to = ",".join(addresses[number % NUM_PLANNERS :] + addresses[: number % NUM_PLANNERS])
            agents[job.job_id] = [LoadAgent(job=job, rank=rank, address=to) for rank in job.ranks()]
        tasks = [asyncio.create_task(agent.run()) for of_job in agents.values() for agent in of_job]
        try:
            async with asyncio.timeout(PATIENCE_S):
                for of_job in agents.values():
                    for agent in of_job:
                        await agent.attached.wait()
            for _ in range(NUM_REPORTS):  # until profiles and plans are stored
                for of_job in agents.values():
                    await asyncio.gather(*(agent.report(2) for agent in of_job))
                await asyncio.sleep(0.5)
            async with asyncio.timeout(PATIENCE_S):
                before = owners(server)
                token = (planners[0].folder / "operator-token", "--planner", ",".join(addresses))
                began_s = time.monotonic()
                command = [sys.executable, "-m", "perseus_dist", "policy", "set", "hall", "--watts", "1e9", "--json"]
                setting = await asyncio.create_subprocess_exec(
                    *command, "--token-file", *map(str, token), stdout=subprocess.PIPE
                )
                said, _ = await setting.communicate()
                print(f"SetBudget is acknowledged after {time.monotonic() - began_s:.2f} s: {said[:60]!r}")
                while len({*owners(server).values()}) > 1 or not all(
                    agent.attached.is_set() for of_job in agents.values() for agent in of_job
                ):
                    await asyncio.sleep(0.02)
                (keeper,) = {*owners(server).values()}
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for planner in planners:
                await planner.end(signal.SIGTERM)
        spread = {address: [*before.values()].count(address) for address in addresses}
        print(f"jobs before: {json.dumps(spread)}, keeper {keeper}")
        return [
            0.0 if before[job_id] == keeper else max(agent.attached_at_s for agent in of_job) - began_s
            for job_id, of_job in agents.items()
        ]


@contextmanager
def fleet_of(profiles: Sequence[str]) -> Iterator[MovingFleet]:
    """Sixteen jobs under their plans, at three planners."""
    with ExitStack() as jobs:
        fleet = MovingFleet(
            [
                jobs.enter_context(
                    virtual_job(simulated(shape, f"job-{number}-{copy}", profile), PRESET, quick_plans=True)
                )
                for copy in range(JOBS_OF_SHAPE)
                for number, (shape, profile) in enumerate(zip(SHAPES, profiles, strict=True))
            ]
        )
        while any(
            job.planner.job.phase is not Phase.ENFORCING or job.planner.job.awaits_frontier for job in fleet.jobs
        ):
            fleet.run_until(fleet.now_s + 5)
        fleet.run_until(fleet.now_s + STEP_S)
        yield fleet


def play(profiles: Sequence[str], cuts: Sequence[float], moves_s: Sequence[float]) -> Iterator[tuple[str, ...]]:
    """A row for each order; the first one moves the jobs."""
    with fleet_of(profiles) as fleet:
        own_s = [job.iterations[-1].time_s for job in fleet.jobs]
        own_w = mean_power_w(fleet, fleet.now_s - STEP_S / 2, fleet.now_s)
        for index, cut in enumerate(cuts):
            begin_s, cap_w = fleet.now_s, (1 - cut) * own_w
            slowest_s = max(job.iterations[-1].time_s for job in fleet.jobs)
            if cut:
                fleet.governor.apply(BudgetSet(name="all", watts=cap_w, guard_band=GUARD_BAND))
            else:
                fleet.governor.drop_budget("all")
            moved = ""
            if not index:
                fleet.move(moves_s)
                moved = f"{statistics.median(moves_s):.2f}, {max(moves_s):.2f}"
            fleet.evaluate()
            fleet.run_until(begin_s + STEP_S)
            now_s = [job.iterations[-1].time_s for job in fleet.jobs]
            cells = [f"-{100 * cut:.0f} %" if cut else "none again", f"{cap_w:,.0f}", moved]
            cells += below(fleet, begin_s, cap_w, slowest_s) if cut else ["", "", ""]
            cells.append(f"{100 * lost(own_s, now_s):.2f}")
            cells += [one_slowdown(fleet, cap_w, own_s), power_limits(cap_w)] if cut else ["", ""]
            yield tuple(cells)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write benchmarks/results/power_budget_replicas.json")
    args = parser.parse_args()
    allow_many_files()
    print(conditions())
    moves_s = asyncio.run(moves())
    rows: list[tuple[str, ...]] = []
    with tempfile.TemporaryDirectory() as folder:
        profiles = [profile_of(shape, Path(folder) / f"{number}.csv") for number, shape in enumerate(SHAPES)]
        for cut in FIRST_CUTS:
            later = [one for one in CUTS if one != cut] if cut == FIRST_CUTS[0] else []
            rows += play(profiles, [cut, *later], moves_s)
    print_table(COLUMNS, rows)
    if args.record:
        command = "python benchmarks/power_budget_replicas.py --record"
        record_result("power_budget_replicas", command=command, columns=COLUMNS, rows=rows)


if __name__ == "__main__":
    main()
