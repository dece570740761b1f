"""Replicas on one PostgreSQL database are struck under jobs spread over them; what they acknowledged is checked.

    python tests/stress/replica_kills.py [--strikes 200] [--seed 0] [--only KIND] [--move-clocks]

Three ``perseus-dist planner --advertise`` share a database of its own server, with flushed commits. Each time something
happens to the owner of a random job, at a random moment:

- kill: SIGKILL; it is started again once the others have its jobs;
- stop: SIGSTOP; it goes on once the others have its jobs;
- freeze: SIGSTOP for a minute, in which the others serve its jobs;
- database: a network between it and the database loses all, until the others have its jobs, and a little longer;
- agents: a network between it and all agents and operators loses all, for a few seconds; it keeps its jobs;
- workers: its planning processes get SIGKILL again and again, for some seconds; it keeps its jobs;
- server: the database crashes under all replicas, and is started again some seconds later.

Jobs, operators and what is checked of their acknowledgements are those of ``planner_kills.py``. Besides:

- of a job's changes there are as many audit records on all replicas together as were acknowledged at least, and as many
  as were asked for at most, those included that a client asked for again elsewhere;
- a job's epochs, in the database, only grow, and each epoch has one owner;
- how long it takes from a strike until each job of that replica has another owner, and from the start of a database
  that had crashed until each job has an owner that lives;
- all ranks of the jobs that have not left are attached in the end.

With ``--move-clocks`` the wall clocks of all replicas jump by two days, forth and back, every 2 s.

Prints a table, and exits with 1 if a line of it is a breach.
"""

import argparse
import asyncio
import os
import random
import signal
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import cast

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # its handlers break a database that is started beside it

import grpc

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from forwarder import Forwarder
from planner_history import (
    KILLS_PER_JOB,
    History,
    LivingJob,
    ReplicaStub,
    audit_records,
    check,
    operate,
    policy_history,
)
from policy_history import prepare
from postgres_server import PORT, PostgresServer, running_server

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from measuring import conditions, print_table
from planner_load import PlannerProcess

from perseus_dist.planner.store.state_dir import RIGHTS
from perseus_dist.rpc.connection import CHANNEL_OPTIONS
from perseus_dist.rpc.v1.planner_pb2_grpc import PlannerStub

NUM_REPLICAS = 3
NUM_JOBS = 4
LONGEST_LIFE_S = 1.0
LONGEST_CUT_S = 4.0
LONGEST_CRASH_S = 8.0
FREEZE_S = 60.0
PATIENCE_S = 60.0
SLOW_S = 3.0
KINDS = {  # how often, against each other
    "kill": 4,
    "stop": 2,
    "freeze": 1,
    "database": 2,
    "agents": 1,
    "workers": 2,
    "server": 2,
}
COUNTED = {
    "kill": "owners killed (SIGKILL)",
    "stop": "owners stopped (SIGSTOP), which go on after the takeover",
    "freeze": f"owners stopped for {FREEZE_S:g} s",
    "database": "owners cut off from the database, until after the takeover",
    "agents": "owners cut off from agents and operators",
    "workers": "owners whose planning processes were killed for some seconds",
    "server": "crashes of the database",
}
MOVED_CLOCK = {"PYTHONPATH": str(Path(__file__).parents[1] / "support" / "moved_clock")}
_POLL_S = 0.02

Leases = dict[str, tuple[int, int, str]]
"""By job: its owner's number, the epoch, and the address of an owner that lives, or an empty one."""


def grpc_stub(cleanup: AsyncExitStack) -> Callable[[str], Awaitable[PlannerStub]]:
    """Stubs of replicas by their addresses."""

    async def make(address: str) -> PlannerStub:
        options = (*CHANNEL_OPTIONS, ("grpc.max_reconnect_backoff_ms", 500))
        channel = await cleanup.enter_async_context(grpc.aio.insecure_channel(address, options=options))
        return PlannerStub(channel)  # type: ignore[no-untyped-call]  # generated

    return make


class Replicas:
    """The processes, and what the database says of them."""

    def __init__(
        self, folder: Path, server: PostgresServer, history: History, cleanup: AsyncExitStack, *, move_clocks: bool
    ) -> None:
        self._server = server
        self._history = history
        self._owner_of: dict[tuple[str, int], int] = {}
        self._newest: dict[str, int] = {}
        self.recoveries_s: list[float] = []
        self.processes: dict[str, PlannerProcess] = {}
        self.links: dict[str, dict[str, Forwarder]] = {}
        for number in range(NUM_REPLICAS):
            own = folder / f"replica-{number}"
            own.mkdir()
            address, bound = (f"127.0.0.1:{_free_port()}" for _ in range(2))
            name = f".s.PGSQL.{PORT}"
            self.links[address] = {
                "agents": Forwarder(address, bound),
                "database": Forwarder(str(own / name), str(server.folder / name)),
            }
            for link in self.links[address].values():
                cleanup.callback(link.close)
            url = server.url("fresh").replace(str(server.folder), str(own))
            variables = MOVED_CLOCK if move_clocks else None
            options = ("--store", url, "--advertise", address, *prepare(own))
            process = PlannerProcess(own, *options, variables=variables)
            process.address = bound
            self.processes[address] = process
            cleanup.push_async_callback(self._end, process)

    @staticmethod
    async def _end(process: PlannerProcess) -> None:
        with suppress(AssertionError):  # it has not begun
            await process.end(signal.SIGKILL)

    async def strike(
        self, kind: str, address: str, orphans: set[str], dead: int, chance: random.Random
    ) -> float | None:
        """Strike, wait for what must come of it, and let the replica go on; how long the takeover took [s]."""
        process, took_s = self.processes[address], None
        match kind:
            case "kill":
                await process.end(signal.SIGKILL)
                return await self.await_owners(orphans, dead)
            case "stop" | "freeze":
                stopped_s = time.monotonic()
                os.kill(process.pid(), signal.SIGSTOP)
                took_s = await self.await_owners(orphans, dead)
                if kind == "freeze":
                    await asyncio.sleep(stopped_s + FREEZE_S - time.monotonic())
                os.kill(process.pid(), signal.SIGCONT)
            case "database":
                self.links[address][kind].cut()
                took_s = await self.await_owners(orphans, dead)
                await asyncio.sleep(chance.uniform(0.0, LONGEST_CUT_S))
                self.links[address][kind].heal()
            case "workers":
                until_s = time.monotonic() + LONGEST_CUT_S
                while time.monotonic() < until_s:
                    self._history.counts["planning processes killed"] += _kill_workers(process.pid())
                    await asyncio.sleep(chance.uniform(0.0, 0.2))
            case "server":
                await self._crash_server(chance)
            case _:
                self.links[address][kind].cut()
                await asyncio.sleep(chance.uniform(0.0, LONGEST_CUT_S))
                self.links[address][kind].heal()
        await asyncio.sleep(chance.uniform(0.0, LONGEST_LIFE_S))  # agents and operators are still there
        return took_s

    async def _crash_server(self, chance: random.Random) -> None:
        """Without a database no replica serves for long; once it is there again, each job has an owner soon."""
        await asyncio.to_thread(self._server.stop, signal.SIGQUIT)
        await asyncio.sleep(chance.uniform(0.0, LONGEST_CRASH_S))
        await asyncio.to_thread(self._server.start)
        self.recoveries_s.append(await self.await_owners(set(self._newest), 0))

    async def leases(self) -> Leases:
        """The leases now, checked against those before."""
        rows = await asyncio.to_thread(
            self._server.execute,
            "SELECT job, planner, epoch, coalesce((SELECT address FROM perseus_dist.planners "
            "WHERE number = planner AND alive_until > now()), '') FROM perseus_dist.leases WHERE job <> ''",
            "fresh",
        )
        leases: Leases = {job: (owner, epoch, address) for job, owner, epoch, address in rows}
        for job, (owner, epoch, _) in leases.items():
            if epoch < self._newest.get(job, 0):
                self._history.breaches.append(f"{job}: epoch {epoch} after {self._newest[job]}")
            self._newest[job] = epoch
            if owner and self._owner_of.setdefault((job, epoch), owner) != owner:
                self._history.breaches.append(f"{job}: epoch {epoch} has two owners")
        return leases

    async def await_owners(self, jobs: set[str], dead: int) -> float:
        """Until jobs have living owners that are not the dead one [s]."""
        began_s = time.monotonic()
        while time.monotonic() < began_s + PATIENCE_S:
            leases = await self.leases()
            if all(job not in leases or (leases[job][2] and leases[job][0] != dead) for job in jobs):
                return time.monotonic() - began_s
            await asyncio.sleep(_POLL_S)
        raise SystemExit(f"{', '.join(sorted(jobs))}: not taken over within {PATIENCE_S:g} s")


def _kill_workers(planner: int) -> int:
    """SIGKILL to the planning processes of a planner; how many there were."""
    num_killed = 0
    for children in Path(f"/proc/{planner}/task").glob("*/children"):
        for pid in children.read_text().split():
            with suppress(ProcessLookupError, FileNotFoundError):
                if b"planning_worker" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(int(pid), signal.SIGKILL)
                    num_killed += 1
    return num_killed


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


async def campaign(num_strikes: int, seed: int, kinds: Sequence[str], *, move_clocks: bool) -> bool:
    """Run it and print the table; whether everything held."""
    told, chance, history = conditions(), random.Random(seed), History()
    policies = policy_history(history)
    jobs: list[LivingJob] = []
    gone: list[LivingJob] = []
    takeovers_s: list[float] = []
    num_started = num_said = 0
    with tempfile.TemporaryDirectory() as folder, running_server(fsync=True) as server:
        server.fresh_database()
        async with AsyncExitStack() as cleanup:
            replicas = Replicas(Path(folder), server, history, cleanup, move_clocks=move_clocks)
            addresses = list(replicas.processes)
            for process in replicas.processes.values():
                await process.start()
            calls = ReplicaStub(addresses, grpc_stub(cleanup))
            stub = cast("PlannerStub", calls)
            for strike in range(num_strikes):
                while len(jobs) < NUM_JOBS or (strike % KILLS_PER_JOB == 0 and len(jobs) == NUM_JOBS):
                    chance.shuffle(addresses)
                    jobs.append(LivingJob.start(f"job-{num_started}", ",".join(addresses), history))
                    num_started += 1
                if len(jobs) > NUM_JOBS:
                    gone.append(jobs.pop(0))
                    await gone[-1].end()
                await check(stub, gone + jobs, history)
                await policies.check(stub)
                operators = [asyncio.create_task(operate(stub, job, chance, history)) for job in jobs if job.is_known]
                operators.append(asyncio.create_task(policies.operate(stub, chance)))
                await asyncio.sleep(chance.uniform(0.2, LONGEST_LIFE_S))
                leases = await replicas.leases()
                living = {job: lease for job, lease in leases.items() if lease[2]}
                if living:
                    dead, _, address = living[chance.choice(sorted(living))]
                    (kind,) = chance.choices(kinds, [KINDS[one] for one in kinds])
                    history.counts[COUNTED[kind]] += 1
                    orphans = {job for job, (owner, _, _) in leases.items() if owner == dead}
                    took_s = await replicas.strike(kind, address, orphans, dead, chance)
                    if took_s is not None:
                        takeovers_s.append(took_s)
                        if took_s > SLOW_S:
                            print(f"strike {strike + 1} ({kind}): {took_s:.2f} s until all jobs had owners", flush=True)
                        history.counts["jobs taken over"] += len(orphans)
                for operator in operators:
                    operator.cancel()
                for result in await asyncio.gather(*operators, return_exceptions=True):
                    if isinstance(result, Exception):
                        raise result
                if living and kind == "kill":
                    await replicas.processes[address].start()
                if len(history.breaches) > num_said or (strike + 1) % 20 == 0:
                    print(f"{strike + 1}/{num_strikes} strikes, {len(history.breaches)} breaches", flush=True)
                    for breach in history.breaches[num_said:]:
                        print(breach, flush=True)
                    num_said = len(history.breaches)
            await check(stub, gone + jobs, history)
            await policies.check(stub)
            await _await_ranks(jobs, history)
            for job in jobs:
                await job.end()
            for process in replicas.processes.values():
                await process.end(signal.SIGTERM)
                if "Traceback" in (log := process.log()):
                    history.breaches.append("a log has a traceback: " + log[log.index("Traceback") :][:2000])
            databases = [process.folder / RIGHTS for process in replicas.processes.values()]
            history.check_audit(audit_records(databases), calls.repeated)
    print(told)
    rows = [["jobs", str(num_started)], *([name, f"{number:,}"] for name, number in sorted(history.counts.items()))]
    if takeovers_s:
        rows += [["until all its jobs have an owner, median", f"{statistics.median(takeovers_s):.2f} s"]]
        rows += [["99th percentile", f"{sorted(takeovers_s)[int(0.99 * (len(takeovers_s) - 1))]:.2f} s"]]
        rows += [["the longest", f"{max(takeovers_s):.2f} s"]]
    if recoveries_s := replicas.recoveries_s:
        text = f"{statistics.median(recoveries_s):.2f} s, {max(recoveries_s):.2f} s"
        rows += [["from the start of a crashed database until each job has an owner, median and the longest", text]]
    print_table(("what", "number"), [*rows, ["acknowledgements that did not hold", str(len(history.breaches))]])
    for breach in history.breaches[num_said:]:
        print(breach)
    return not history.breaches


async def _await_ranks(jobs: Sequence[LivingJob], history: History) -> None:
    """Until all are attached; those that are not after a while are breaches."""
    until_s = time.monotonic() + PATIENCE_S
    while away := [agent.rank for job in jobs for agent in job.agents if not agent.attached.is_set()]:
        if time.monotonic() > until_s:
            history.breaches += [f"{rank.job_id}, rank {rank.rank} does not come back" for rank in away]
            return
        await asyncio.sleep(0.1)


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strikes", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=tuple(KINDS), action="append", help="strikes of this kind; may be repeated")
    parser.add_argument("--move-clocks", action="store_true", help="replicas' wall clocks jump")
    args = parser.parse_args()
    kinds = args.only or list(KINDS)
    return 0 if asyncio.run(campaign(args.strikes, args.seed, kinds, move_clocks=args.move_clocks)) else 1


if __name__ == "__main__":
    sys.exit(main())
