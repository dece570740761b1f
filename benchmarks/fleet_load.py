"""A whole fleet at one planner: agents, the page in Chromium, streams of events and Prometheus, all at once.

    python benchmarks/fleet_load.py [--jobs 100] [--agents 1000] [--seconds 120] [--record]

The planner is a process of its own; agents report once a second over gRPC; Debian's Prometheus scrapes every 15 s;
nine clients read streams of events, five of the fleet and four of one job; Chromium loads fleet and job in turn.
``SetTarget`` is called again and again: the browser says when it shows the new target, and the last of the nine streams
when it has it. All of it runs on this machine. Needs Debian's prometheus and chromium, and playwright.
"""

import argparse
import asyncio
import json
import shutil
import signal
import time
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
from load_agent import LoadAgent, LoadJob
from measuring import conditions, print_table, record_result
from planner_load import (
    PATIENCE_S,
    PlannerProcess,
    allow_many_files,
    planner_with,
    report_for_ever,
    times_text,
)
from playwright.async_api import Page, async_playwright, expect
from web_page import Stream

from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.rpc.connection import CHANNEL_OPTIONS
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.rpc.v1.planner_pb2_grpc import PlannerStub

JOB_ID = "job-000"
PP_SIZE, MICROBATCHES = 5, 4
STREAMS = [*["/events"] * 5, *[f"/jobs/{JOB_ID}/events"] * 4]
SCRAPE_S = 15
PLANNED_S = 900.0
COLUMNS = ("all at once", "bar", "measured")
# In the page: resolves with the time [ms since 1970] at which a text is shown.
SHOWN_AT_MS = """
(text) => new Promise((resolve) => {
  const main = document.querySelector("main");
  const look = () => {
    if (!main.textContent.includes(text)) return;
    observer.disconnect();
    resolve(performance.timeOrigin + performance.now());
  };
  const observer = new MutationObserver(look);
  observer.observe(main, { subtree: true, childList: true, characterData: true });
  look();
})
"""
# In the page: [ms] from the navigation's start until everything that it names is loaded.
LOADED_MS = "() => performance.getEntriesByType('navigation')[0].loadEventEnd"


@asynccontextmanager
async def prometheus(target: str) -> AsyncIterator[str]:
    """Debian's Prometheus that scrapes a planner; its URL."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        config = folder / "prometheus.yml"
        config.write_text(
            f"global: {{scrape_interval: {SCRAPE_S}s}}\n"
            f"scrape_configs: [{{job_name: planner, static_configs: [{{targets: ['{target}']}}]}}]\n"
        )
        log = folder / "prometheus.log"
        with log.open("wb") as file:
            process = await asyncio.create_subprocess_exec(
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                "--web.listen-address=127.0.0.1:0",
                stderr=file,
            )
        try:
            yield "http://" + await _listening_at(log)
        finally:
            process.send_signal(signal.SIGTERM)
            await process.wait()


async def _listening_at(log: Path) -> str:
    async with asyncio.timeout(PATIENCE_S):
        while '"Listening on"' not in (text := log.read_text()):
            await asyncio.sleep(0.1)
    return text.partition('"Listening on" address=')[2].split()[0]


def query(url: str, expression: str) -> float:
    """The one number that an expression has."""
    with urllib.request.urlopen(f"{url}/api/v1/query?{urllib.parse.urlencode({'query': expression})}") as answer:
        told: dict[str, Any] = json.load(answer)
    ((_, value),) = [one["value"] for one in told["data"]["result"]]
    return float(value)


class Browsing:
    """Someone with one browser who goes from page to page."""

    def __init__(self, page: Page, url: str) -> None:
        self._page, self._url = page, url.rstrip("/")
        self.loads_s: dict[str, list[float]] = {}

    async def load(self, path: str) -> None:
        """Load a page, whole, and wait until it is live."""
        await self._page.goto(self._url + path, wait_until="load")
        self.loads_s.setdefault(path, []).append(await self._page.evaluate(LOADED_MS) / 1e3)
        await expect(self._page.locator("#live")).to_have_text("live")

    async def shown_at_s(self, text: str) -> float:
        """[s] since 1970, when a text was there."""
        return float(await self._page.evaluate(SHOWN_AT_MS, text)) / 1e3


async def look_and_change(
    planner: PlannerProcess, streams: Sequence[Stream], browsing: Browsing, seconds: float
) -> tuple[list[float], list[float]]:
    """[s] from ``SetTarget`` until the browser shows it, and until the last stream has it, again and again."""
    in_browser_s, in_streams_s = [], []
    end_s = time.monotonic() + seconds
    async with grpc.aio.insecure_channel(planner.address, options=CHANNEL_OPTIONS) as channel:
        stub = PlannerStub(channel)  # type: ignore[no-untyped-call]  # generated
        number = 0
        while time.monotonic() < end_s:
            number += 1
            await browsing.load(("/", f"/jobs/{JOB_ID}")[number % 2])
            slowdown = 1.0101 + number / 1000
            text = f"{slowdown:g} \N{MULTIPLICATION SIGN}"
            shown = asyncio.create_task(browsing.shown_at_s(text))
            seen = [asyncio.create_task(stream.seen_at_s(text)) for stream in streams]
            await asyncio.sleep(0.5 + 0.137 * (number % 8))  # not in step with the page's own rhythm
            called_s, called_at_s = time.monotonic(), time.time()
            target = pb.Target(slowdown=slowdown)
            await stub.SetTarget(pb.SetTargetRequest(job_id=JOB_ID, target=target), timeout=PATIENCE_S)
            in_streams_s.append(max(await asyncio.gather(*seen)) - called_s)
            in_browser_s.append(await shown - called_at_s)
    return in_browser_s, in_streams_s


async def measure(num_jobs: int, num_agents: int, seconds: int) -> list[tuple[str, str, str]]:
    """All rows."""
    schedule = one_f_one_b(pp=PP_SIZE, microbatches=MICROBATCHES)
    dp_size = num_agents // num_jobs // PP_SIZE
    jobs = [LoadJob(job_id=f"job-{number:03}", schedule=schedule, dp_size=dp_size) for number in range(num_jobs)]
    async with planner_with(jobs, "--web", "127.0.0.1:0") as (planner, agents):
        await _until_planned(agents)
        async with prometheus(planner.metrics_address) as url, async_playwright() as playwright:
            chromium = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            browsing = Browsing(await chromium.new_page(), planner.web_url)
            streams = [Stream(planner.web_url.rstrip("/") + path) for path in STREAMS]
            tasks = [asyncio.create_task(stream.run()) for stream in streams]
            tasks.append(asyncio.create_task(report_for_ever(agents)))
            await asyncio.sleep(SCRAPE_S)
            before_s, began_s = planner.cpu_s(), time.monotonic()
            in_browser_s, in_streams_s = await look_and_change(planner, streams, browsing, seconds)
            share = (planner.cpu_s() - before_s) / (time.monotonic() - began_s)
            scraped = {
                name: await asyncio.to_thread(query, url, f"{expression}[{seconds}s])")
                for name, expression in (
                    ("worst", "max_over_time(scrape_duration_seconds"),
                    ("mean", "avg_over_time(scrape_duration_seconds"),
                    ("num", "count_over_time(up"),
                    ("up", "min_over_time(up"),
                )
            }
            num_scraped_jobs = await asyncio.to_thread(query, url, "count(perseus_job_info)")
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await chromium.close()
        await asyncio.sleep(2.0)  # what is under way arrives
        sent = sum(agent.num_telemetry for agent in agents)
        received = await planner.metric('perseus_received_messages_total{kind="Telemetry"}')
        lost = max(0.0, sent - received)  # a report that was cancelled as gRPC took it is not counted as sent
    if scraped["up"] != 1 or num_scraped_jobs != num_jobs:
        raise SystemExit(f"Prometheus: saw {scraped} and {num_scraped_jobs} jobs, expected all scrapes and jobs")
    loads_s = browsing.loads_s
    scrapes = f"{scraped['mean'] * 1e3:.0f} ms on average, {scraped['worst'] * 1e3:.0f} ms at worst"
    return [
        (f"{len(agents):,} agents of {num_jobs} jobs, 1 Hz: messages lost", "none", f"{lost:,.0f} of {sent:,}"),
        ("the fleet in Chromium, until all of it is loaded", "1 s", times_text(loads_s["/"])),
        ("a job in Chromium, until all of it is loaded", "1 s", times_text(loads_s[f"/jobs/{JOB_ID}"])),
        ("`SetTarget` until Chromium shows it", "2 s", times_text(in_browser_s)),
        (f"`SetTarget` to the last of {len(STREAMS)} streams that has it", "2 s", times_text(in_streams_s)),
        (f"a scrape by Prometheus, every {SCRAPE_S} s", "300 ms", f"{scrapes}, of {scraped['num']:g}"),
        ("processor time of the planner, of a core", "", f"{share:.0%}"),
    ]


async def _until_planned(agents: Sequence[LoadAgent]) -> None:
    """Report quickly, so that baseline and sweep are soon over, until every job is under its plan."""
    async with asyncio.timeout(PLANNED_S):
        while waiting := [agent for agent in agents if not agent.switches]:
            await asyncio.gather(*(agent.report(num_iterations=4) for agent in waiting))
            await asyncio.sleep(0.5)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--record", action="store_true", help="write benchmarks/results/fleet_load.json")
    args = parser.parse_args()
    allow_many_files()
    told = conditions()
    rows = asyncio.run(measure(args.jobs, args.agents, args.seconds))
    print(told)
    print_table(COLUMNS, rows)
    if args.record:
        record_result("fleet_load", command="python benchmarks/fleet_load.py --record", columns=COLUMNS, rows=rows)


if __name__ == "__main__":
    main()
