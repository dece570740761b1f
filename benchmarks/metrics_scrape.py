"""How long a scrape of the planner's metrics takes, and for how long it holds up the planner's event loop.

    python benchmarks/metrics_scrape.py [--record]

Jobs of PP 8, TP 8 and DP 16, 1,024 ranks each, are put together as a planner holds them under a plan; the real endpoint
serves them, another process scrapes, and a coroutine that wants its turn every millisecond says how late it is.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from itertools import product
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from measuring import conditions, print_table, record_result

from perseus_dist.messages.from_agent import GpuSample
from perseus_dist.messages.terms import Gpu, Rank
from perseus_dist.planner.access.address import Address
from perseus_dist.planner.job.facts.decisions import SwitchDecided
from perseus_dist.planner.job.facts.runs import BaselineMeasured, JobRegistered
from perseus_dist.planner.job.frontier_summary import FrontierSummary
from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.planner.job.state.membership import RankState
from perseus_dist.planner.job.state.planning import JobPlan
from perseus_dist.planner.job.state.progress import Iteration, Pipeline
from perseus_dist.planner.metrics.collector import PlannerMetrics
from perseus_dist.planner.metrics.endpoint import EndpointConfig, MetricsEndpoint
from perseus_dist.planner.runtime.counters import Counters

if TYPE_CHECKING:
    from perseus_dist.planner.runtime.jobs import Jobs

PP, DP, TP = 8, 16, 8
TURN_S = 0.001
SCRAPER = """
import gzip, json, sys, time, urllib.request
told = []
headers = {"Accept": "application/openmetrics-text;version=1.0.0", "Accept-Encoding": "gzip"}  # as Prometheus asks
for _ in range(int(sys.argv[2])):
    began = time.perf_counter()
    body = urllib.request.urlopen(urllib.request.Request(sys.argv[1], headers=headers)).read()
    told.append(time.perf_counter() - began)
body = gzip.decompress(body)
lines = [line for line in body.decode().splitlines() if not line.startswith("#")]
print(json.dumps({"times_s": told, "num_bytes": len(body), "num_series": len(lines)}))
"""


def make_job(job_id: str) -> Job:
    """A job under a plan, all ranks attached."""
    job = Job(job_id=job_id, policy=Policy(), phase=Phase.ENFORCING, reason="")
    job.spec = JobRegistered(schedule_digest="0" * 64, pp_size=PP, dp_size=DP, tp_size=TP, token_sha256="")
    gpu = Gpu(uuid="GPU-0", name="NVIDIA H100 80GB HBM3", driver_version="0", clocks_mhz=(1980, 1965), control="clockd")
    reading = GpuSample(power_w=500.0, clock_mhz=1500, requested_mhz=1500, temperature_c=60.0)
    for number, (dp_rank, pp_rank, tp_rank) in enumerate(product(range(DP), range(PP), range(TP))):
        rank = Rank(
            job_id=job_id,
            rank=number,
            pp_rank=pp_rank,
            dp_rank=dp_rank,
            tp_rank=tp_rank,
            pp_size=PP,
            dp_size=DP,
            tp_size=TP,
            schedule_digest="0" * 64,
        )
        job.members.ranks[number] = RankState(
            rank=rank,
            gpu=gpu,
            incarnation=1,
            stream=number,
            has_profile=False,
            version="0",
            control="clockd",
            gpu_sample=reading,
            gpu_reading=reading,
        )
        job.members.rank_of_stream[number] = number
    one = Iteration(
        number=1,
        num_parts=1,
        time_s=5.0,
        pipeline_time_s=5.0,
        energy_j=1e6,
        is_released=False,
        is_planned=True,
        followed={0: (1, 0)},
        is_live=True,
    )
    job.progress.pipelines = [Pipeline(num_attached=PP * TP, latest=one) for _ in range(DP)]
    for _ in range(64):
        job.measured.enforced.append(one)
        job.history.count_iteration(one.time_s, one.energy_j)
    job.measured.baseline = BaselineMeasured(
        num_iterations=5, time_s=5.0, time_spread_s=0.0, energy_j=1.2e6, energy_spread_j=0.0
    )
    summary = FrontierSummary(
        time_ps=tuple(range(10**12, 10**12 + 512)),
        total_uj=tuple(range(10**9, 10**9 - 512, -1)),
        lower_bound_uj=tuple(range(10**9, 10**9 - 512, -1)),
        baseline_time_ps=10**12,
        baseline_uj=10**9,
        total_blocking_uw=10**8,
    )
    job.plan = JobPlan(revision=1, summary=summary, tables=(), profile_csv=b"")
    job.enforcement.switch = SwitchDecided(
        table_revision=1, switch_revision=1, effective_iteration=1, points=(0,) * DP, reason=""
    )
    return job


async def measure(num_jobs: int, num_scrapes: int) -> tuple[dict[str, Any], float, float]:
    """The scraper's figures, the longest [s] that the loop was held up, and [s] of processor time a scrape."""
    actors = [SimpleNamespace(job=make_job(f"job-{number:03}")) for number in range(num_jobs)]
    jobs = cast(
        "Jobs",
        SimpleNamespace(counters=Counters(), num_streams=0, all=lambda: actors, budgets=SimpleNamespace(states=())),
    )
    config = EndpointConfig(bind=Address("127.0.0.1", 0))
    endpoint = MetricsEndpoint(config, PlannerMetrics(jobs, SimpleNamespace(trouble="")).expose)
    late_s: list[float] = []

    async def take_turns() -> None:
        while True:
            began_s = time.monotonic()
            await asyncio.sleep(TURN_S)
            late_s.append(time.monotonic() - began_s - TURN_S)

    turns = asyncio.create_task(take_turns())
    command = [sys.executable, "-c", SCRAPER, endpoint.url, str(num_scrapes)]
    began_s = time.process_time()
    scraper = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    told, _ = await scraper.communicate()
    spent_s = (time.process_time() - began_s) / num_scrapes
    turns.cancel()
    await asyncio.to_thread(endpoint.close)
    return json.loads(told), max(late_s), spent_s


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--scrapes", type=int, default=30)
    parser.add_argument("--record", action="store_true", help="write benchmarks/results/metrics_scrape.json")
    args = parser.parse_args()
    told = conditions()
    columns = ["jobs of 1,024 ranks", "series", "processor time", "median scrape", "worst", "loop held up for at most"]
    rows = []
    for num_jobs in args.jobs:
        found, held_s, spent_s = asyncio.run(measure(num_jobs, args.scrapes))
        times_s = found["times_s"]
        shown = [f"{1e3 * value:.0f} ms" for value in (spent_s, statistics.median(times_s), max(times_s), held_s)]
        rows.append([str(num_jobs), f"{found['num_series']:,}", *shown])
    print(told)
    print_table(columns, rows)
    if args.record:
        command = "python benchmarks/metrics_scrape.py --record"
        record_result("metrics_scrape", command=command, columns=columns, rows=rows)


if __name__ == "__main__":
    main()
