"""The planner under load: real gRPC on loopback, agents in this process, the planner in another.

    python benchmarks/planner_load.py [--only telemetry] [--only reattach] [--only switch]

- telemetry: 1,000 agents of one job that report once a second; the planner's processor time for each message.
- reattach: 3,000 agents; the planner is killed (SIGKILL) and started again; until the last agent is attached.
- switch: 64 agents with a plan; from the call of ReportStraggler until the last of them has its switch, while the
  planner is otherwise idle and while it plans another job with a large schedule.
"""

import argparse
import asyncio
import json
import os
import resource
import signal
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
from load_agent import LoadAgent, LoadJob
from measuring import conditions, print_table

from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.rpc.connection import CHANNEL_OPTIONS
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.rpc.v1.planner_pb2_grpc import PlannerStub

PARTS = ("telemetry", "reattach", "switch")
PP_SIZE = 8
PATIENCE_S = 120.0
SETTLE_S = 3.0
JOB_ID = "load"
LARGE_JOB_ID = "large"


class PlannerProcess:
    """``perseus-dist planner`` with a state folder of its own; ``program`` starts it otherwise."""

    def __init__(
        self,
        folder: Path,
        *options: str,
        variables: Mapping[str, str] | None = None,
        program: Sequence[str] = ("-m", "perseus_dist"),
    ) -> None:
        self.folder = folder
        self._program = program
        self._variables = {**os.environ, **(variables or {})}
        self._options = options
        self._address_file = folder / "address.json"
        self._process: asyncio.subprocess.Process | None = None
        self.address = "127.0.0.1:0"
        self.metrics_address = ""
        self.web_url = ""

    async def start(self) -> None:
        """Start it, the first time on any port and later on the same, and wait until it listens."""
        self._address_file.unlink(missing_ok=True)
        command = [sys.executable, *self._program, "planner", "--bind", self.address, "--metrics-port", "0"]
        command += ["--state-dir", str(self.folder), "--address-file", str(self._address_file), *self._options]
        with (self.folder / "planner.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(*command, stderr=log, env=self._variables)
        deadline = time.monotonic() + PATIENCE_S
        while not self._address_file.exists():
            if self._process.returncode is not None or time.monotonic() > deadline:
                raise SystemExit((self.folder / "planner.log").read_text()[-2000:])
            await asyncio.sleep(0.01)
        told = json.loads(self._address_file.read_text())
        self.address, self.metrics_address, self.web_url = told["address"], told["metrics_address"], told["web_url"]

    async def end(self, number: signal.Signals) -> None:
        """Send it a signal and wait for its end."""
        assert self._process is not None
        if self._process.returncode is None:
            self._process.send_signal(number)
        await self._process.wait()

    def pid(self) -> int:
        """Process id."""
        assert self._process is not None
        return self._process.pid

    def cpu_s(self) -> float:
        """Processor time of the process so far, without its worker's."""
        assert self._process is not None
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def log(self) -> str:
        """What it has logged so far."""
        return (self.folder / "planner.log").read_text()

    async def metric(self, name: str) -> float:
        """One of its metrics, by its name and labels."""

        def fetch() -> str:
            with urllib.request.urlopen(f"http://{self.metrics_address}/metrics") as answer:
                return str(answer.read(), "utf-8")

        for line in (await asyncio.to_thread(fetch)).splitlines():
            if line.startswith(f"{name} "):
                return float(line.split()[-1])
        return 0.0


@asynccontextmanager
async def planner_with(jobs: Sequence[LoadJob], *options: str) -> AsyncIterator[tuple[PlannerProcess, list[LoadAgent]]]:
    """A planner, and the agents of some jobs attached to it."""
    with tempfile.TemporaryDirectory() as folder:
        planner = PlannerProcess(Path(folder), *options)
        await planner.start()
        agents = [LoadAgent(job=job, rank=rank, address=planner.address) for job in jobs for rank in job.ranks()]
        tasks = [asyncio.create_task(agent.run()) for agent in agents]
        try:
            await until_attached(agents)
            yield planner, agents
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await planner.end(signal.SIGTERM)


async def until_attached(agents: Sequence[LoadAgent]) -> None:
    """Wait for all."""
    async with asyncio.timeout(PATIENCE_S):
        for agent in agents:
            await agent.attached.wait()


async def report_for(agents: Sequence[LoadAgent], seconds: int) -> None:
    """One telemetry message of each agent a second, evenly spread over the second."""
    begin = time.monotonic()

    async def reports(index: int, agent: LoadAgent) -> None:
        for second in range(seconds):
            await asyncio.sleep(begin + second + index / len(agents) - time.monotonic())
            await agent.report(num_iterations=2)

    await asyncio.gather(*(reports(index, agent) for index, agent in enumerate(agents)))


async def report_for_ever(agents: Sequence[LoadAgent]) -> None:
    """As ``report_for``, until the task is cancelled."""
    while True:
        await report_for(agents, 1)


def times_text(times_s: Sequence[float]) -> str:
    """[s] A row's cell: median and worst."""
    return f"{statistics.median(times_s):.2f} s at the median, {max(times_s):.2f} s at worst, of {len(times_s)}"


def allow_many_files() -> None:
    """As many open files as this user may have: each agent has a connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, hard), hard))


async def telemetry(num_agents: int, seconds: int) -> list[str]:
    """Processor time for each message."""
    job = LoadJob(job_id=JOB_ID, schedule=one_f_one_b(pp=PP_SIZE, microbatches=12), dp_size=num_agents // PP_SIZE)
    counter = 'perseus_received_messages_total{kind="Telemetry"}'
    async with planner_with([job]) as (planner, agents):
        await until_planned(agents)
        await asyncio.sleep(SETTLE_S)
        before, before_s = sum(agent.num_telemetry for agent in agents), planner.cpu_s()
        await report_for(agents, seconds)
        await asyncio.sleep(1.0)  # what idling costs is part of it
        spent_s = planner.cpu_s() - before_s
        all_sent = sum(agent.num_telemetry for agent in agents)
        lost, sent = all_sent - await planner.metric(counter), all_sent - before
        resident_mb = await planner.metric("process_resident_memory_bytes") / 1e6
    per_message = f"{spent_s / sent * 1e6:.0f} us of processor time a message, {lost:.0f} of {all_sent} lost"
    return [f"{num_agents} agents, 1 Hz, {seconds} s", f"{per_message}, {resident_mb:.0f} MB resident"]


async def reattach(num_agents: int) -> list[str]:
    """From the kill until the last agent is back."""
    job = LoadJob(job_id=JOB_ID, schedule=one_f_one_b(pp=PP_SIZE, microbatches=12), dp_size=num_agents // PP_SIZE)
    async with planner_with([job]) as (planner, agents):
        await asyncio.sleep(SETTLE_S)
        killed_at_s = time.monotonic()
        await planner.end(signal.SIGKILL)
        await planner.start()
        listening_s = time.monotonic() - killed_at_s
        async with asyncio.timeout(PATIENCE_S):
            while not all(agent.attached_at_s > killed_at_s for agent in agents):
                await asyncio.sleep(0.05)
        times_s = sorted(agent.attached_at_s - killed_at_s for agent in agents)
    when = f"half after {statistics.median(times_s):.1f} s, all after {times_s[-1]:.1f} s"
    return [f"{num_agents} agents after SIGKILL", f"{when} (planner listening again after {listening_s:.1f} s)"]


async def switch(num_agents: int, rounds: int) -> list[list[str]]:
    """From ReportStraggler to the last agent's switch; the planner idle, then planning."""
    small = LoadJob(job_id=JOB_ID, schedule=one_f_one_b(pp=PP_SIZE, microbatches=12), dp_size=num_agents // PP_SIZE)
    large = LoadJob(job_id=LARGE_JOB_ID, schedule=one_f_one_b(pp=32, microbatches=256), dp_size=1)
    rows = []
    async with planner_with([small, large]) as (planner, agents):
        ours = [agent for agent in agents if agent.job is small]
        others = [agent for agent in agents if agent.job is large]
        await until_planned(ours)
        async with grpc.aio.insecure_channel(planner.address, options=CHANNEL_OPTIONS) as channel:
            stub = PlannerStub(channel)  # type: ignore[no-untyped-call]  # generated
            rows.append(["planner idle", _told(await _rounds(stub, ours, rounds))])
            planning = asyncio.create_task(until_planned(others))
            await _until_phase(stub, "planning")
            begin_s = time.monotonic()
            latencies_s: list[float] = []
            while not planning.done() and len(latencies_s) < rounds:
                latencies_s += await _rounds(stub, ours, 1)
            await planning
            told = f"{_told(latencies_s)}; tables sent {time.monotonic() - begin_s:.1f} s after planning began"
            rows.append([f"while {len(others)} ranks are planned for", told])
    return [[f"{num_agents} agents, {row[0]}", row[1]] for row in rows]


async def until_planned(agents: Sequence[LoadAgent]) -> None:
    """Report quickly, so that warm-up and sweep are over soon, until every agent has a switch."""
    async with asyncio.timeout(PATIENCE_S):
        while not all(agent.switches for agent in agents):
            await asyncio.gather(*(agent.report(num_iterations=4) for agent in agents))
            await asyncio.sleep(0.1)


async def _until_phase(stub: PlannerStub, phase: str) -> None:
    async for status in stub.WatchJob(pb.WatchJobRequest(job_id=LARGE_JOB_ID)):
        if status.phase == phase:
            return


async def _rounds(stub: PlannerStub, agents: Sequence[LoadAgent], rounds: int) -> list[float]:
    """Seconds from the call to the last agent's switch, of each of some reports."""
    latencies_s = []
    straggler = pb.StragglerReport(id="load", degree=1.2, dp_rank=0)
    for _ in range(rounds):
        seen, called_s = [len(agent.switches) for agent in agents], time.monotonic()
        await stub.ReportStraggler(pb.ReportStragglerRequest(job_id=JOB_ID, straggler=straggler), timeout=PATIENCE_S)
        await _until_switched(agents, seen)
        latencies_s.append(max(agent.switches[-1][1] for agent in agents) - called_s)
        seen = [len(agent.switches) for agent in agents]
        await stub.ClearStraggler(pb.ClearStragglerRequest(job_id=JOB_ID, id="load"), timeout=PATIENCE_S)
        await _until_switched(agents, seen)
    return latencies_s


async def _until_switched(agents: Sequence[LoadAgent], seen: Sequence[int]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while any(len(agent.switches) == had for agent, had in zip(agents, seen, strict=True)):
            await asyncio.sleep(0.002)


def _told(latencies_s: Sequence[float]) -> str:
    median_ms, worst_ms = statistics.median(latencies_s) * 1e3, max(latencies_s) * 1e3
    return f"{median_ms:.0f} ms at the median, {worst_ms:.0f} ms at worst, {len(latencies_s)} switches"


async def run(args: argparse.Namespace) -> None:
    """Run what is asked for, and print the table."""
    told, parts = conditions(), args.only or PARTS
    rows = []
    if "telemetry" in parts:
        rows.append(await telemetry(args.agents, args.seconds))
    if "reattach" in parts:
        rows.append(await reattach(args.reattaching))
    if "switch" in parts:
        rows += await switch(args.switching, args.rounds)
    print(told)
    print_table(("load", "result"), rows)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS, action="append", help="can be given more than once; default: all")
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--reattaching", type=int, default=3000)
    parser.add_argument("--switching", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=20)
    allow_many_files()
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
