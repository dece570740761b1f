"""Jobs without trainers at a planner: agents in a process, as the benchmarks have them, that report all the time."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from load_agent import LoadAgent, LoadJob

from perseus_dist.messages.finding import Finding, Level
from perseus_dist.planning.schedule.schedule import one_f_one_b

PERIOD_S = 0.1
NUM_ITERATIONS = 4  # in that time
PP_SIZE = 2
HOST = "node a/1"
FINDING = Finding(level=Level.WARN, subject="GPU-0", what="power cap 250 W", remedy="it is left as it is")


@contextmanager
def load_jobs(address: str, *job_ids: str, token: str = "") -> Iterator[None]:
    """Jobs of two pipelines of two stages, which get a baseline, a profile and a plan within seconds."""
    with subprocess.Popen([sys.executable, __file__, address, token, *job_ids]) as process:
        try:
            yield
        finally:
            process.kill()


async def _report(address: str, token: str, *job_ids: str) -> None:
    schedule = one_f_one_b(pp=PP_SIZE, microbatches=2)
    jobs = [LoadJob(job_id=name, schedule=schedule, dp_size=2) for name in job_ids]
    agents = [LoadAgent(job=job, rank=rank, address=address, token=token) for job in jobs for rank in job.ranks()]
    for agent in agents:
        clock_mhz = 1410 - 60 * agent.rank.pp_rank
        agent.gpu = replace(agent.gpu, clock_mhz=clock_mhz, requested_mhz=clock_mhz)
        agent.host, agent.findings = HOST, (FINDING,)
    running = asyncio.gather(*(agent.run() for agent in agents))
    while not running.done():
        for agent in agents:
            await agent.report(NUM_ITERATIONS)
        await asyncio.sleep(PERIOD_S)


if __name__ == "__main__":
    asyncio.run(_report(*sys.argv[1:]))
