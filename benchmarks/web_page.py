"""The planner's page with many jobs and several people who look at it.

    python benchmarks/web_page.py [--jobs 100] [--record]

Jobs of two ranks, and one of sixteen, that report once a second, the planner in another process, real HTTP on loopback.
Measured: how long the fleet and the large job take to load (document, style and modules, a new connection each time),
how long after ``SetTarget`` over gRPC the new target has reached each of nine streams of events (five of the fleet,
four of that job), and what the planner spends on them.
"""

import argparse
import asyncio
import json
import re
import time
from collections.abc import Sequence

import grpc
import httpx
from load_agent import LoadAgent, LoadJob
from measuring import conditions, print_table, record_result
from planner_load import (
    PATIENCE_S,
    PlannerProcess,
    allow_many_files,
    planner_with,
    report_for,
    report_for_ever,
    times_text,
)

from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.rpc.connection import CHANNEL_OPTIONS
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.rpc.v1.planner_pb2_grpc import PlannerStub

NUM_OF_FLEET, NUM_OF_JOB = 5, 4
SECONDS = 10
PLANNED_S = 400.0
COLUMNS = ("load", "bar", "measured")


class Stream:
    """A browser's stream of events, and when each text was first seen in it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.text = ""
        self.changed = asyncio.Condition()

    async def run(self) -> None:
        """Read, for ever."""
        async with httpx.AsyncClient(timeout=None) as client, client.stream("GET", self._url) as answer:
            answer.raise_for_status()
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    async with self.changed:
                        self.text = json.dumps(json.loads(line[6:]), ensure_ascii=False)
                        self.changed.notify_all()

    async def seen_at_s(self, text: str) -> float:
        """[s] monotonic, when a text was there."""
        async with self.changed, asyncio.timeout(PATIENCE_S):
            await self.changed.wait_for(lambda: text in self.text)
            return time.monotonic()


async def load_s(url: str, path: str) -> float:
    """[s] for a page and all that it names."""
    begin_s = time.monotonic()
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_S) as client:
        page = await client.get(path, headers={"Accept": "text/html"})
        page.raise_for_status()
        wanted = set(re.findall(r'"(/static/[^"]+)"', page.text)) | {"/static/live.js", "/static/morph.js"}
        for answer in await asyncio.gather(*map(client.get, sorted(wanted))):
            answer.raise_for_status()
    return time.monotonic() - begin_s


async def latencies_s(planner: PlannerProcess, streams: Sequence[Stream], rounds: int) -> list[float]:
    """[s] from the call to the last stream that shows it, of each round."""
    found = []
    async with grpc.aio.insecure_channel(planner.address, options=CHANNEL_OPTIONS) as channel:
        stub = PlannerStub(channel)  # type: ignore[no-untyped-call]  # generated
        for number in range(rounds):
            slowdown = 1.0101 + number / 1000
            seen = [
                asyncio.create_task(stream.seen_at_s(f"{slowdown:g} \N{MULTIPLICATION SIGN}")) for stream in streams
            ]
            await asyncio.sleep(0.137 * (number % 8))  # not in step with the page's own rhythm
            called_s = time.monotonic()
            target = pb.Target(slowdown=slowdown)
            await stub.SetTarget(pb.SetTargetRequest(job_id="job-000", target=target), timeout=PATIENCE_S)
            found.append(max(await asyncio.gather(*seen)) - called_s)
    return found


async def measure(num_jobs: int, rounds: int) -> list[tuple[str, str, str]]:
    """All rows."""
    small, large = one_f_one_b(pp=1, microbatches=1), one_f_one_b(pp=4, microbatches=8)
    jobs = [LoadJob(job_id="job-000", schedule=large, dp_size=4)]
    jobs += [LoadJob(job_id=f"job-{number:03}", schedule=small, dp_size=2) for number in range(1, num_jobs)]
    async with planner_with(jobs, "--web", "127.0.0.1:0") as (planner, agents):
        await _until_planned(agents)
        alone_s = await _spent_s(planner, agents)
        paths = [*["/events"] * NUM_OF_FLEET, *["/jobs/job-000/events"] * NUM_OF_JOB]
        streams = [Stream(planner.web_url.rstrip("/") + path) for path in paths]
        reading = [asyncio.create_task(stream.run()) for stream in streams]
        watched_s = await _spent_s(planner, agents)
        reporting = asyncio.create_task(report_for_ever(agents))
        loads_s = {
            path: [await load_s(planner.web_url, path) for _ in range(rounds)] for path in ("/", "/jobs/job-000")
        }
        live_s = await latencies_s(planner, streams, rounds)
        for task in (reporting, *reading):
            task.cancel()
        await asyncio.gather(reporting, *reading, return_exceptions=True)
    there = f"{num_jobs} jobs, {len(streams)} streams of events"
    return [
        (f"{there}: the fleet, until all of it is loaded", "1 s", times_text(loads_s["/"])),
        (f"{there}: a job, until all of it is loaded", "1 s", times_text(loads_s["/jobs/job-000"])),
        (f"{there}: `SetTarget` to the last stream that shows it", "2 s", times_text(live_s)),
        (
            f"{there}: processor time of the planner, of a core",
            "",
            f"{watched_s / SECONDS:.1%}, without any stream {alone_s / SECONDS:.1%}",
        ),
    ]


async def _until_planned(agents: Sequence[LoadAgent]) -> None:
    """Until the large job has its plan; the others are planned meanwhile, or while the page is measured."""
    async with asyncio.timeout(PLANNED_S):
        while not all(agent.switches for agent in agents if agent.job.job_id == "job-000"):
            await asyncio.gather(*(agent.report(num_iterations=4) for agent in agents))
            await asyncio.sleep(0.5)


async def _spent_s(planner: PlannerProcess, agents: Sequence[LoadAgent]) -> float:
    before_s = planner.cpu_s()
    await report_for(agents, SECONDS)
    return planner.cpu_s() - before_s


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--record", action="store_true", help="write benchmarks/results/web_page.json")
    args = parser.parse_args()
    allow_many_files()
    told = conditions()
    rows = asyncio.run(measure(args.jobs, args.rounds))
    print(told)
    print_table(COLUMNS, rows)
    if args.record:
        record_result("web_page", command="python benchmarks/web_page.py --record", columns=COLUMNS, rows=rows)


if __name__ == "__main__":
    main()
