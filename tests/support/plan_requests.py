"""Planning requests as a job makes them, and processes that answer them."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from perseus_dist.messages.from_agent import Sample
from perseus_dist.planner.worker.plan_request import Contribution, PlanningRequest
from perseus_dist.planning.schedule.schedule import format_schedule, one_f_one_b


def request(*, request_id: int = 1, pp: int = 2, microbatches: int = 2, latency_s: float = 0.0) -> PlanningRequest:
    schedule = one_f_one_b(pp=pp, microbatches=microbatches)
    samples = tuple(
        Sample(
            chunk=0,
            kind=kind,
            clock_mhz=clock,
            time_s=0.05 * (0.3 + 0.7 * 1400 / clock),
            energy_j=15 * (0.4 + 0.6 * (clock / 1400) ** 2),
            time_std_s=0.0,
            energy_std_j=0.0,
            num_runs=4,
            window_s=2.0,
        )
        for kind in "FB"
        for clock in range(1400, 700, -50)
    )
    return PlanningRequest(
        request_id=request_id,
        job_id="job",
        revision=5,
        schedule_text=format_schedule(schedule),
        contributions=tuple(Contribution(pp_rank=r, tp_rank=0, samples=samples) for r in range(pp)),
        blocking_power_w=(80.0,) * pp,
        tp_size=1,
        switch_latency_s=latency_s,
    )


LONG = request(request_id=9, pp=16, microbatches=1024, latency_s=0.012)  # minutes


@contextmanager
def planning_worker(url: str, *options: str) -> Iterator["subprocess.Popen[bytes]"]:
    """``perseus-dist planning-worker`` on a database."""
    command = [sys.executable, "-m", "perseus_dist", "planning-worker", "--store", url, *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()
