"""Replicas on one PostgreSQL database are killed under jobs spread over them; what they acknowledged is checked.

    python tests/stress/replica_kills.py [--kills 200] [--seed 0]

Three ``perseus-dist planner --advertise`` share a database of its own server, with flushed commits. Each time the owner
of a random job gets SIGKILL at a random moment, or one time in three SIGSTOP; it is started again, or goes on, once the
others have its jobs. Jobs, operators and
what is checked of their acknowledgements are those of ``planner_kills.py``. Besides, from the database:

- a job's epochs only grow, and each epoch has one owner;
- how long it takes from then until each job of the killed replica has another owner.

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
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

import grpc

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "support")]

from planner_kills import KILLS_PER_JOB, History, LivingJob, check, operate  # noqa: E402
from postgres_server import PostgresServer, running_server  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from measuring import conditions, print_table  # noqa: E402
from planner_load import PlannerProcess  # noqa: E402

from perseus_dist.rpc.connection import CHANNEL_OPTIONS, OWNER_KEY  # noqa: E402
from perseus_dist.rpc.v1 import planner_pb2 as pb  # noqa: E402
from perseus_dist.rpc.v1.planner_pb2_grpc import PlannerStub  # noqa: E402

NUM_REPLICAS = 3
NUM_JOBS = 4
LONGEST_LIFE_S = 1.0
PATIENCE_S = 60.0
_POLL_S = 0.02
_MAX_REDIRECTS = 4

Leases = dict[str, tuple[int, int, str]]
"""By job: its owner's number, the epoch, and the address of an owner that lives, or an empty one."""


class ReplicaStub:
    """Has the methods of ``PlannerStub``: asks one replica after the other, and follows them to the owner."""

    def __init__(self, addresses: Sequence[str], cleanup: AsyncExitStack) -> None:
        self._addresses = addresses
        self._cleanup = cleanup
        self._stubs: dict[str, PlannerStub] = {}

    def __getattr__(self, method: str) -> Any:
        return lambda request, timeout: self._call(method, request, timeout)

    async def ListJobs(self, request: pb.ListJobsRequest, timeout: float) -> pb.ListJobsResponse:  # noqa: N802
        """Of all replicas."""
        merged = pb.ListJobsResponse()
        for address in self._addresses:
            stub = await self._stub(address)
            merged.jobs.extend((await stub.ListJobs(request, timeout=timeout, wait_for_ready=True)).jobs)
        return merged

    async def _call(self, method: str, request: object, timeout: float) -> object:
        address, *others = self._addresses
        num_redirects = 0
        while True:
            stub = await self._stub(address)
            try:
                return await getattr(stub, method)(request, timeout=timeout)
            except grpc.aio.AioRpcError as error:
                owner = next((str(value) for key, value in error.trailing_metadata() or () if key == OWNER_KEY), "")
                if owner and num_redirects < _MAX_REDIRECTS:
                    address, num_redirects = owner, num_redirects + 1
                elif error.code() is grpc.StatusCode.UNAVAILABLE and others:
                    address = others.pop(0)
                else:
                    raise

    async def _stub(self, address: str) -> PlannerStub:
        if address not in self._stubs:
            options = (*CHANNEL_OPTIONS, ("grpc.max_reconnect_backoff_ms", 500))
            channel = await self._cleanup.enter_async_context(grpc.aio.insecure_channel(address, options=options))
            self._stubs[address] = PlannerStub(channel)  # type: ignore[no-untyped-call]  # generated
        return self._stubs[address]


class Replicas:
    """The processes, and what the database says of them."""

    def __init__(self, folder: Path, server: PostgresServer, history: History) -> None:
        self._server = server
        self._history = history
        self._owner_of: dict[tuple[str, int], int] = {}
        self._newest: dict[str, int] = {}
        self.processes: dict[str, PlannerProcess] = {}
        for number in range(NUM_REPLICAS):
            own = folder / f"replica-{number}"
            own.mkdir()
            address = f"127.0.0.1:{_free_port()}"
            process = PlannerProcess(own, "--store", server.url("fresh"), "--advertise", address)
            process.address = address
            self.processes[address] = process

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


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


async def campaign(num_kills: int, seed: int) -> bool:
    """Run it and print the table; whether everything held."""
    told, chance, history = conditions(), random.Random(seed), History()
    jobs: list[LivingJob] = []
    gone: list[LivingJob] = []
    takeovers_s: list[float] = []
    num_started = num_said = 0
    with tempfile.TemporaryDirectory() as folder, running_server(fsync=True) as server:
        server.fresh_database()
        replicas = Replicas(Path(folder), server, history)
        addresses = list(replicas.processes)
        for process in replicas.processes.values():
            await process.start()
        async with AsyncExitStack() as cleanup:
            stub = cast("PlannerStub", ReplicaStub(addresses, cleanup))
            for kill in range(num_kills):
                while len(jobs) < NUM_JOBS or (kill % KILLS_PER_JOB == 0 and len(jobs) == NUM_JOBS):
                    chance.shuffle(addresses)
                    jobs.append(LivingJob.start(f"job-{num_started}", ",".join(addresses), history))
                    num_started += 1
                if len(jobs) > NUM_JOBS:
                    gone.append(jobs.pop(0))
                    await gone[-1].end()
                await check(stub, gone + jobs, history)
                operators = [asyncio.create_task(operate(stub, job, chance, history)) for job in jobs if job.is_known]
                await asyncio.sleep(chance.uniform(0.2, LONGEST_LIFE_S))
                leases = await replicas.leases()
                living = {job: lease for job, lease in leases.items() if lease[2]}
                if living:
                    dead, _, address = living[chance.choice(sorted(living))]
                    is_killed = chance.random() < 2 / 3
                    if is_killed:
                        await replicas.processes[address].end(signal.SIGKILL)
                    else:
                        os.kill(replicas.processes[address].pid(), signal.SIGSTOP)
                        history.counts["owners stopped (SIGSTOP), which go on after the takeover"] += 1
                    orphans = {job for job, (owner, _, _) in leases.items() if owner == dead}
                    takeovers_s += [await replicas.await_owners(orphans, dead)]
                    history.counts["jobs taken over"] += len(orphans)
                    if not is_killed:  # operators and agents are still there when it wakes up
                        os.kill(replicas.processes[address].pid(), signal.SIGCONT)
                        await asyncio.sleep(chance.uniform(0.0, LONGEST_LIFE_S))
                for operator in operators:
                    operator.cancel()
                for result in await asyncio.gather(*operators, return_exceptions=True):
                    if isinstance(result, Exception):
                        raise result
                if living and is_killed:
                    await replicas.processes[address].start()
                if len(history.breaches) > num_said or (kill + 1) % 20 == 0:
                    print(f"{kill + 1}/{num_kills} kills, {len(history.breaches)} breaches", flush=True)
                    for breach in history.breaches[num_said:]:
                        print(breach, flush=True)
                    num_said = len(history.breaches)
            await check(stub, gone + jobs, history)
        for job in jobs:
            await job.end()
        for process in replicas.processes.values():
            await process.end(signal.SIGTERM)
            if "Traceback" in (log := process.log()):
                history.breaches.append("a log has a traceback: " + log[log.index("Traceback") :][:2000])
    print(told)
    rows = [["owners killed (SIGKILL) or stopped", str(len(takeovers_s))], ["jobs", str(num_started)]]
    rows += [[name, f"{number:,}"] for name, number in sorted(history.counts.items())]
    rows += [["until all its jobs have an owner, median", f"{statistics.median(takeovers_s):.2f} s"]]
    rows += [["99th percentile", f"{sorted(takeovers_s)[int(0.99 * (len(takeovers_s) - 1))]:.2f} s"]]
    print_table(("what", "number"), [*rows, ["acknowledgements that did not hold", str(len(history.breaches))]])
    return not history.breaches


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    return 0 if asyncio.run(campaign(args.kills, args.seed)) else 1


if __name__ == "__main__":
    sys.exit(main())
