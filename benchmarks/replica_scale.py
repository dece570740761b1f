"""10,000 and 100,000 ranks over replicas, simulated from what each message costs a planner here.

    python benchmarks/replica_scale.py [--nodes 250] [--seconds 20] [--record]

Measured first, on a replica on PostgreSQL that times itself (``timed_planner.py``), with a job of 8 ranks on each node
behind node relays: what each node message, tick, switch and commit takes, one by one; what the process spends besides,
as a mean; and its memory. Then played, event by event: each replica is one server that works through what has come, in
order; nodes send once a second, at the beats that relays share; all jobs tick once a second; every ten seconds each job
is switched, which is committed and then written to every node stream of the job. Each duration is drawn from those
measured. A job is as large as the measured one, under its plan, and belongs to one replica, so that nothing but memory
and the number of jobs is extrapolated. The network, relays, agents and other programs beside the planner are not in
what is played; in the switches that were measured they are. Ten replicas of each fleet are played, each with phases of
its own, or all of fewer.
"""

import argparse
import asyncio
import heapq
import json
import os
import random
import shlex
import signal
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import grpc
from load_agent import LoadAgent, LoadJob
from measuring import conditions, print_table, record_result
from node_streams import SETTLE_S, WHOLE_PATIENCE_S, ranks, report_for, switch_s, until_planned
from planner_load import JOB_ID, PP_SIZE, PlannerProcess, allow_many_files

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from postgres_server import running_server

from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.relay.uplink_batch import BEAT_S
from perseus_dist.rpc.connection import CHANNEL_OPTIONS
from perseus_dist.rpc.v1.planner_pb2_grpc import PlannerStub

RANKS = 8
SWITCH_PERIOD_S = 10.0
PLAYED_S = 120.0
WARM_UP_S = 5.0
MAX_PLAYED = 10
IDLE_S = 10.0
STEADY_S = 12.0
FLEETS = ((10_000, 1), (10_000, 2), (100_000, 10), (100_000, 20), (100_000, 40))  # ranks, replicas
COLUMNS = (
    "ranks",
    "replicas",
    "iterations [s]",
    "of a core, mean replica",
    "switch, p50 [ms]",
    "p99 [ms]",
    "memory [MB]",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What a planner spends, [s] each.

    Attributes:
        messages: Of node messages, one each.
        ticks: Of ticks of the whole job, one each.
        reports: Of reports of stragglers, until all switches wait to be written.
        commits: Of a switch, until it is durable, one each.
        writes: Of switches, on average over the streams that one of them went to.
        beside_s: On each node message besides: gRPC, the store, other threads.
    """

    messages: Sequence[float]
    ticks: Sequence[float]
    reports: Sequence[float]
    commits: Sequence[float]
    writes: Sequence[float]
    beside_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A replica: the share of a core that it needs, and the times [s] to the last stream of a job, sorted."""

    share: float
    switches_s: Sequence[float]

    def switch_s(self, share: float) -> float:
        """[s] that a share of the switches take no longer than."""
        return self.switches_s[min(len(self.switches_s) - 1, int(share * len(self.switches_s)))]


@dataclass(slots=True, kw_only=True)
class Seen:
    """The fleet that was measured.

    Attributes:
        idle_share: Of a core that the replica took without jobs.
        empty_mb, whole_mb: [MB] memory of the planner without ranks and with them.
        switches_s: Times [s] to the last rank that has its switch, sorted.
        shares: By [s] of an iteration, the share of a core that the planner took.
    """

    idle_share: float = 0.0
    empty_mb: float = 0.0
    whole_mb: float = 0.0
    switches_s: Sequence[float] = ()
    shares: dict[float, float] = field(default_factory=dict)


def play(costs: Costs, num_nodes: int, num_jobs: int, rng: random.Random) -> Played:
    """One replica, event by event.

    Args:
        costs: Of iterations of one length.
        num_nodes: Node streams.
        num_jobs: Jobs that they belong to, in equal parts.
        rng: Draws durations and phases.
    """
    coming: list[tuple[float, int, str]] = []  # when, a number that keeps the order, what
    for number in range(num_nodes):
        heapq.heappush(coming, (BEAT_S * rng.randrange(round(1 / BEAT_S)), number, "message"))
    tick_s = rng.random()
    for number in range(num_jobs):
        heapq.heappush(coming, (tick_s, num_nodes + number, "tick"))
        heapq.heappush(coming, (SWITCH_PERIOD_S * rng.random(), num_nodes + num_jobs + number, "report"))
    num_streams = num_nodes // num_jobs
    free_s = busy_s = 0.0
    count = num_nodes + 2 * num_jobs
    begun_s: dict[int, float] = {}
    left: dict[int, int] = {}
    switches_s = []
    write_of: dict[int, float] = {}
    while coming:
        at_s, number, what = heapq.heappop(coming)
        if at_s > PLAYED_S:
            continue
        begin_s = max(free_s, at_s)
        match what:
            case "message":
                spent_s = rng.choice(costs.messages) + costs.beside_s
                heapq.heappush(coming, (at_s + 1.0, number, what))
            case "tick":
                spent_s = rng.choice(costs.ticks)
                heapq.heappush(coming, (at_s + 1.0, number, what))
            case "report":
                spent_s = rng.choice(costs.reports)
                heapq.heappush(coming, (at_s + SWITCH_PERIOD_S, number, what))
                begun_s[number], left[number], write_of[number] = at_s, num_streams, rng.choice(costs.writes)
                durable_s = begin_s + spent_s + rng.choice(costs.commits)
                for _ in range(num_streams):  # behind all that has come by then
                    count += 1
                    heapq.heappush(coming, (durable_s, count, f"write {number}"))
            case _:
                job = int(what.split()[1])
                spent_s = write_of[job]
                left[job] -= 1
                if not left[job] and at_s > WARM_UP_S:
                    switches_s.append(begin_s + spent_s - begun_s[job])
        free_s = begin_s + spent_s
        busy_s += spent_s
    return Played(share=busy_s / PLAYED_S, switches_s=sorted(switches_s))


def pooled(replicas: Sequence[Played]) -> Played:
    """All of them as one: the mean share, and every switch."""
    return Played(
        share=statistics.mean(replica.share for replica in replicas),
        switches_s=sorted(time_s for replica in replicas for time_s in replica.switches_s),
    )


async def times(planner: PlannerProcess, file: Path) -> dict[str, list[float]]:
    """What a planner has timed since the last call."""
    file.unlink(missing_ok=True)
    os.kill(planner.pid(), signal.SIGUSR1)
    while not file.exists():
        await asyncio.sleep(0.01)
    found: dict[str, list[float]] = json.loads(file.read_text())
    return found


async def until_steady(planner: PlannerProcess, agents: Sequence[LoadAgent]) -> None:
    """Report until the planner has decided nothing for a while: sweeps and switches are over."""
    known, since_s = -1, time.monotonic()
    async with asyncio.timeout(WHOLE_PATIENCE_S):
        while time.monotonic() < since_s + STEADY_S:
            await report_for(agents, 1, 1.0)
            if (told := planner.log().count("job load: ")) != known:
                known, since_s = told, time.monotonic()


async def measure(args: argparse.Namespace, url: str) -> tuple[dict[float, Costs], Seen]:
    """Costs by [s] of an iteration, and the whole fleet's, of a replica on a database."""
    num_ranks = args.nodes * RANKS
    job = LoadJob(job_id=JOB_ID, schedule=one_f_one_b(pp=PP_SIZE, microbatches=12), dp_size=num_ranks // PP_SIZE)
    costs, seen = {}, Seen()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "times.json"
        timed = (str(Path(__file__).with_name("timed_planner.py")),)
        address = free_address()
        options = ("--store", url, "--advertise", address)
        planner = PlannerProcess(Path(folder), *options, variables={"TIMES": str(file)}, program=timed)
        planner.address = address
        await planner.start()
        try:
            await asyncio.sleep(SETTLE_S)
            before_s = planner.cpu_s()
            await asyncio.sleep(IDLE_S)
            seen.idle_share = (planner.cpu_s() - before_s) / IDLE_S
            seen.empty_mb = await planner.metric("process_resident_memory_bytes") / 1e6
            async with ranks(planner.address, job, RANKS, relayed=True) as agents:
                await until_planned(agents)
                await until_steady(planner, agents)
                async with grpc.aio.insecure_channel(planner.address, options=CHANNEL_OPTIONS) as channel:
                    stub = PlannerStub(channel)  # type: ignore[no-untyped-call]  # generated
                    await times(planner, file)
                    seen.switches_s = sorted([await switch_s(stub, agents) for _ in range(args.rounds)])
                    switching = await times(planner, file)
                for iteration_s in args.iteration_s:
                    await until_steady(planner, agents)
                    await times(planner, file)
                    before_s, began_s = planner.cpu_s(), time.monotonic()
                    await report_for(agents, args.seconds, iteration_s)
                    await asyncio.sleep(1.5)
                    spent_s, passed_s = planner.cpu_s() - before_s, time.monotonic() - began_s
                    found = await times(planner, file)
                    in_loop_s = sum(found["message"]) + sum(found["tick"])
                    beside_s = (spent_s - in_loop_s - seen.idle_share * passed_s) / len(found["message"])
                    costs[iteration_s] = Costs(
                        messages=found["message"],
                        ticks=found["tick"],
                        reports=switching["report"],
                        commits=switching["commit"],
                        writes=switching["write"],
                        beside_s=max(beside_s, 0.0),
                    )
                    seen.shares[iteration_s] = spent_s / args.seconds
                    mean_s, median_s = statistics.mean(found["message"]), statistics.median(found["message"])
                    print(
                        f"iterations of {iteration_s:g} s: {len(found['message'])} messages in {passed_s:.1f} s, "
                        f"{mean_s * 1e6:.0f} us each (median {median_s * 1e6:.0f}), {beside_s * 1e6:.0f} us besides; "
                        f"ticks {statistics.mean(found['tick']) * 1e3:.2f} ms"
                    )
                seen.whole_mb = await planner.metric("process_resident_memory_bytes") / 1e6
        finally:
            await planner.end(signal.SIGTERM)
    print(
        f"reports {statistics.mean(switching['report']) * 1e3:.1f} ms, "
        f"commits {statistics.median(switching['commit']) * 1e3:.1f} to {max(switching['commit']) * 1e3:.0f} ms, "
        f"writes {statistics.mean(switching['write']) * 1e6:.0f} us a stream"
    )
    return costs, seen


def free_address() -> str:
    """A loopback address that no program listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{found.getsockname()[1]}"


async def run(args: argparse.Namespace) -> None:
    """Measure, play, and print the table."""
    told = conditions()
    with running_server(fsync=True) as server:
        costs, seen = await measure(args, server.url(server.fresh_database()))
    num_ranks = args.nodes * RANKS
    memory_mb = (seen.whole_mb - seen.empty_mb) / num_ranks
    times_s = seen.switches_s
    print(told)
    print(f"without jobs {seen.idle_share:.1%} of a core and {seen.empty_mb:.0f} MB; {memory_mb * 1e3:.0f} kB a rank")
    rng = random.Random(0)
    rows = []
    for iteration_s, of_length in costs.items():
        again = play(of_length, args.nodes, 1, rng)
        rows.append(
            [
                f"{num_ranks:,}, measured; played",
                "1",
                f"{iteration_s:g}",
                f"{seen.shares[iteration_s]:.0%}; {again.share + seen.idle_share:.0%}",
                f"{statistics.median(times_s) * 1e3:.0f}; {again.switch_s(0.5) * 1e3:.0f}",
                f"{times_s[-1] * 1e3:.0f} (longest of {len(times_s)}); {again.switch_s(0.99) * 1e3:.0f}",
                f"{seen.whole_mb:.0f}",
            ]
        )
    for fleet, num_replicas in FLEETS:
        for iteration_s, of_length in costs.items():
            of_replica = fleet // num_replicas
            num_jobs = max(1, round(of_replica / num_ranks))
            played = pooled(
                [play(of_length, of_replica // RANKS, num_jobs, rng) for _ in range(min(num_replicas, MAX_PLAYED))]
            )
            rows.append(
                [
                    f"{fleet:,}",
                    str(num_replicas),
                    f"{iteration_s:g}",
                    f"{played.share + seen.idle_share:.0%}",
                    f"{played.switch_s(0.5) * 1e3:.0f}",
                    f"{played.switch_s(0.99) * 1e3:.0f}",
                    f"{seen.empty_mb + memory_mb * of_replica:.0f}",
                ]
            )
    print_table(COLUMNS, rows)
    if args.record:
        record_result("replica_scale", command=shlex.join(["python", *sys.argv]), columns=COLUMNS, rows=rows)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=250)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--iteration-s", type=float, nargs="+", default=[1.0, 10.0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--record", action="store_true")
    allow_many_files()
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
