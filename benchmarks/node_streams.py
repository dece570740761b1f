"""Ranks behind node relays at one planner, and without: processor time, switches, memory.

    python benchmarks/node_streams.py [--nodes 1250] [--ranks 8] [--seconds 20] [--iteration-s 0.5 5 10] [--record]

The planner is a process of its own. Each simulated node is the relay's own stream to it (``relay.uplink``: batching and
all), in this process, with simulated ranks behind it that report once a second, evenly spread; the socket between
ranks and relay is left out, because it costs the planner nothing. Without relays each rank has a connection. A switch
is timed from the call of ReportStraggler to the last rank that has it, ranks and planner sharing this machine.
"""

import argparse
import asyncio
import gc
import shlex
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
from load_agent import LoadAgent, LoadJob
from measuring import conditions, print_table, record_result
from planner_load import JOB_ID, PATIENCE_S, PP_SIZE, PlannerProcess, allow_many_files

from perseus_dist.messages.from_agent import AgentMessage
from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.relay.uplink import Uplink, UplinkChannel
from perseus_dist.rpc.codec import decode_planner_message, encode_agent_message
from perseus_dist.rpc.connection import CHANNEL_OPTIONS
from perseus_dist.rpc.node_wire import Ended
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.rpc.v1.planner_pb2_grpc import PlannerStub

COLUMNS = ("load", "bar", "measured")
SETTLE_S = 5.0
WHOLE_PATIENCE_S = 400.0


class RelayedAgent(LoadAgent):
    """A rank behind a node's relay."""

    channel: UplinkChannel | None = None

    async def run_behind(self, uplink: Uplink) -> None:
        """Keep attached by way of a relay, for ever."""
        while True:
            if await uplink.wait_open(PATIENCE_S):
                self.channel = uplink.open(self.token)
                await self._send(self._attach())
                while not isinstance(frame := await self.channel.received.get(), Ended):
                    await self._take_bytes(frame)
                self.attached.clear()
            await asyncio.sleep(0.2)

    async def _take_bytes(self, data: bytes) -> None:
        if data[:1] != b"*":  # tables are not looked into: field 5 of PlannerMessage
            await self._take(decode_planner_message(data))

    async def _send(self, message: AgentMessage) -> None:
        assert self.channel is not None
        self.channel.send(encode_agent_message(message))


@asynccontextmanager
async def ranks(address: str, job: LoadJob, per_node: int, *, relayed: bool) -> AsyncIterator[list[LoadAgent]]:
    """All of a job, attached."""
    agents: list[LoadAgent] = []
    tasks = []
    if relayed:
        for index, rank in enumerate(job.ranks()):
            if index % per_node == 0:
                uplink = Uplink(address, None)
                tasks.append(asyncio.create_task(uplink.run()))
            behind = RelayedAgent(job=job, rank=rank, address=address)
            agents.append(behind)
            tasks.append(asyncio.create_task(behind.run_behind(uplink)))
    else:
        agents = [LoadAgent(job=job, rank=rank, address=address) for rank in job.ranks()]
        tasks = [asyncio.create_task(agent.run()) for agent in agents]
    try:
        async with asyncio.timeout(WHOLE_PATIENCE_S):
            for agent in agents:
                await agent.attached.wait()
        yield agents
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def report_for(agents: Sequence[LoadAgent], seconds: int, iteration_s: float) -> None:
    """One message of each rank a second, spread over it, with the iterations that have ended by then."""
    begin_s = time.monotonic()

    async def reports(index: int, agent: LoadAgent) -> None:
        for second in range(seconds):
            await asyncio.sleep(begin_s + second + index / len(agents) - time.monotonic())
            await agent.report(int((second + 1) / iteration_s) - int(second / iteration_s))

    await asyncio.gather(*(reports(index, agent) for index, agent in enumerate(agents)))


async def until_planned(agents: Sequence[LoadAgent]) -> None:
    """Report until every rank has a switch."""
    async with asyncio.timeout(WHOLE_PATIENCE_S):
        while not all(agent.switches for agent in agents):
            for agent in agents:
                await agent.report(4)
            await asyncio.sleep(1.0)


async def switch_s(stub: PlannerStub, agents: Sequence[LoadAgent]) -> float:
    """[s] from the call to the last rank's switch."""
    newest = max(agent.switches[-1][0] for agent in agents)
    called_s = time.monotonic()
    straggler = pb.StragglerReport(id="load", degree=1.2, dp_rank=0)
    await stub.ReportStraggler(pb.ReportStragglerRequest(job_id=JOB_ID, straggler=straggler), timeout=PATIENCE_S)
    last_s = await until_switched(agents, newest)
    newest = max(agent.switches[-1][0] for agent in agents)
    await stub.ClearStraggler(pb.ClearStragglerRequest(job_id=JOB_ID, id="load"), timeout=PATIENCE_S)
    await until_switched(agents, newest)
    return last_s - called_s


async def until_switched(agents: Sequence[LoadAgent], newest: int) -> float:
    """Wait for a switch beyond ``newest`` on all ranks; [s] monotonic, when the last one had it."""
    async with asyncio.timeout(PATIENCE_S):
        while any(agent.switches[-1][0] <= newest for agent in agents):
            await asyncio.sleep(0.01)
    return max(agent.switches[-1][1] for agent in agents)


async def measure(args: argparse.Namespace, num_nodes: int, *, relayed: bool) -> list[list[str]]:
    """Rows of one fleet."""
    num_ranks = num_nodes * args.ranks
    job = LoadJob(job_id=JOB_ID, schedule=one_f_one_b(pp=PP_SIZE, microbatches=12), dp_size=num_ranks // PP_SIZE)
    how = f"{num_nodes:,} node streams of {args.ranks} ranks" if relayed else f"{num_ranks:,} streams of ranks"
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        planner = PlannerProcess(Path(folder))
        await planner.start()
        try:
            async with ranks(planner.address, job, args.ranks, relayed=relayed) as agents:
                await until_planned(agents)
                await asyncio.sleep(SETTLE_S)
                gc.collect()
                gc.freeze()
                for iteration_s in args.iteration_s:
                    before_s = planner.cpu_s()
                    before = sum(agent.num_telemetry for agent in agents)
                    began_s = time.monotonic()
                    await report_for(agents, args.seconds, iteration_s)
                    await asyncio.sleep(1.5)
                    passed_s = time.monotonic() - began_s
                    sent = sum(agent.num_telemetry for agent in agents) - before
                    spent_s = planner.cpu_s() - before_s
                    each_us = spent_s / sent * 1e6
                    share = each_us * num_ranks / 1e6
                    text = f"{each_us:.0f} us a rank and second, {share:.0%} of a core at 1 Hz ({passed_s:.0f} s)"
                    bar = "50% of a core" if relayed else ""
                    rows.append([f"{how}, iterations of {iteration_s:g} s: processor time of the planner", bar, text])
                async with grpc.aio.insecure_channel(planner.address, options=CHANNEL_OPTIONS) as channel:
                    stub = PlannerStub(channel)  # type: ignore[no-untyped-call]  # generated
                    times_s = sorted([await switch_s(stub, agents) for _ in range(args.rounds)])
                p99_s = times_s[min(len(times_s) - 1, int(0.99 * len(times_s)))]
                text = f"{statistics.median(times_s):.2f} s at the median, {p99_s:.2f} s at p99, of {len(times_s)}"
                bar = "0.5 s at p99" if relayed else ""
                rows.append([f"{how}: `ReportStraggler` to the last rank that has its switch", bar, text])
                memory_mb = await planner.metric("process_resident_memory_bytes") / 1e6
                rows.append([f"{how}: memory of the planner", "", f"{memory_mb:.0f} MB"])
        finally:
            await planner.end(signal.SIGTERM)
    return rows


async def run(args: argparse.Namespace) -> None:
    """Measure, and print the table."""
    told = conditions()
    rows = []
    if args.direct:
        rows += await measure(args, args.direct, relayed=False)
    rows += await measure(args, args.nodes, relayed=True)
    print(told)
    print_table(COLUMNS, rows)
    if args.record:
        record_result("node_streams", command=shlex.join(["python", *sys.argv]), columns=COLUMNS, rows=rows)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1250)
    parser.add_argument("--direct", type=int, default=125, help="nodes whose ranks come without relays, to compare")
    parser.add_argument("--ranks", type=int, default=8, help="of a node")
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--iteration-s", type=float, nargs="+", default=[1.0, 5.0, 10.0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--record", action="store_true")
    allow_many_files()
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
