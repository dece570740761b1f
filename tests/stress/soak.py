"""Hours of a planner with many agents, and of a job of 8 ranks: whose memory grows?

    python tests/stress/soak.py [--hours 2] [--agents 200] [--log soak.jsonl]

Agents without trainers report to ``perseus-dist planner`` once a second; one of their pipelines is reported as a
straggler every minute, and cleared. Beside it ``perseus-dist simulate`` trains a job of 8 ranks with real agents, clock
daemon, planner and planning worker. Once a minute the resident memory of every process is read. The slope of each kind
of process is fitted by least squares over the time after the first half; exit code 1 if one grows faster than
1 MB an hour, or if a process ended.
"""

import argparse
import asyncio
import json
import os
import resource
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import grpc
import numpy as np

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "benchmarks"))

from load_agent import LoadAgent, LoadJob  # noqa: E402
from measuring import conditions, print_table  # noqa: E402
from planner_load import JOB_ID, PP_SIZE, planner_with, report_for, until_planned  # noqa: E402

from perseus_dist.planning.schedule.schedule import one_f_one_b  # noqa: E402
from perseus_dist.rpc.connection import CHANNEL_OPTIONS  # noqa: E402
from perseus_dist.rpc.v1 import planner_pb2 as pb  # noqa: E402
from perseus_dist.rpc.v1.planner_pb2_grpc import PlannerStub  # noqa: E402

MAX_SLOPE_MB_PER_HOUR = 1.0
SAMPLE_S = 60
ENDLESS = 10_000_000
# What a process is, by the first of these words in its command line.
ROLES = (
    ("planning worker", "planning_worker"),
    ("agent", "perseus_dist.agent"),
    ("clockd", "clockd"),
    ("trainer", "trainer"),
    ("planner", "planner"),
)


def resident_mb(pid: int) -> float:
    """Resident memory of a process [MB]; 0 if it has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1e3
    return 0.0


def descendants(root: int) -> list[int]:
    """The process and all that it started."""
    children = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children[parent].append(int(entry.name))
    found, queue = [], [root]
    while queue:
        found.append(queue.pop())
        queue += children[found[-1]]
    return found


def role(pid: int) -> str:
    """What a process of the simulated job is."""
    with suppress(OSError):
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        return next((name for name, word in ROLES if word in command), "simulate")
    return "ended"


def sample(planner_pid: int, job_pid: int) -> dict[str, list[float]]:
    """Resident memory [MB] of all processes of each kind."""
    told: dict[str, list[float]] = defaultdict(list)
    told["planner of the agents"].append(resident_mb(planner_pid))
    for pid in descendants(planner_pid)[1:]:
        told[f"its {role(pid)}"].append(resident_mb(pid))
    for pid in descendants(job_pid):
        told[f"job: {role(pid)}"].append(resident_mb(pid))
    return dict(told)


def slopes_mb_per_hour(times_s: Sequence[float], samples: Sequence[Mapping[str, Sequence[float]]]) -> dict[str, float]:
    """Of the mean of each kind of process that was always there, over the second half of the time."""
    kept = [index for index, time_s in enumerate(times_s) if time_s >= times_s[-1] / 2]
    hours = np.array([times_s[index] for index in kept]) / 3600
    slopes = {}
    for name in samples[-1]:
        if all(name in samples[index] for index in kept):
            values = np.array([float(np.mean(samples[index][name])) for index in kept])
            slopes[name] = float(np.polyfit(hours, values, 1)[0])
    return slopes


async def stragglers(address: str) -> None:
    """Report one and clear it, for ever."""
    async with grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
        stub = PlannerStub(channel)  # type: ignore[no-untyped-call]  # generated
        straggler = pb.StragglerReport(id="soak", degree=1.2, dp_rank=0)
        while True:
            await stub.ReportStraggler(pb.ReportStragglerRequest(job_id=JOB_ID, straggler=straggler))
            await asyncio.sleep(30)
            await stub.ClearStraggler(pb.ClearStragglerRequest(job_id=JOB_ID, id="soak"))
            await asyncio.sleep(30)


async def soak(args: argparse.Namespace) -> bool:
    """Run it, and print the table; whether no process grew or ended."""
    told = conditions()
    job = LoadJob(job_id=JOB_ID, schedule=one_f_one_b(pp=PP_SIZE, microbatches=12), dp_size=args.agents // PP_SIZE)
    command = [
        sys.executable,
        "-P",
        "-m",
        "perseus_dist",
        "simulate",
        "--schedule",
        "1f1b",
        "--pp",
        "4",
        "--dp",
        "2",
        "--microbatches",
        "8",
    ]
    times_s: list[float] = []
    samples: list[dict[str, list[float]]] = []
    agents: list[LoadAgent]
    with tempfile.TemporaryDirectory() as folder:
        async with planner_with([job]) as (planner, agents):
            await until_planned(agents)
            simulate = await asyncio.create_subprocess_exec(
                *command, "--iterations", str(ENDLESS), "--log-dir", folder, stdout=asyncio.subprocess.DEVNULL
            )
            begin_s = time.monotonic()
            seconds = round(args.hours * 3600)
            tasks = [
                asyncio.create_task(report_for(agents, seconds)),
                asyncio.create_task(stragglers(planner.address)),
            ]
            try:
                while time.monotonic() - begin_s < seconds:
                    await asyncio.sleep(min(SAMPLE_S, args.hours * 360))
                    times_s.append(time.monotonic() - begin_s)
                    samples.append(sample(planner.pid(), simulate.pid))
                    with args.log.open("a") as log:
                        log.write(json.dumps({"time_s": times_s[-1], "resident_mb": samples[-1]}) + "\n")
                    for task in tasks:
                        if task.done() and task.exception():
                            task.result()
                    if simulate.returncode is not None:
                        raise SystemExit(f"simulate ended with {simulate.returncode} after {times_s[-1]:.0f} s")
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                if simulate.returncode is None:
                    simulate.send_signal(signal.SIGTERM)
                await simulate.wait()
    slopes = slopes_mb_per_hour(times_s, samples)
    print(told)
    print(f"{args.agents} agents at 1 Hz and a job of 8 ranks, {times_s[-1] / 3600:.2f} h; slope over the second half")
    rows = [
        [
            name,
            str(len(values)),
            f"{np.mean(samples[0].get(name, [0])):.1f}",
            f"{np.mean(values):.1f}",
            f"{slopes[name]:+.2f}",
        ]
        for name, values in samples[-1].items()
        if name in slopes
    ]
    print_table(("process", "number", "RSS at first [MB]", "at last [MB]", "slope [MB/h]"), rows)
    return all(slope < MAX_SLOPE_MB_PER_HOUR for slope in slopes.values())


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--agents", type=int, default=200)
    parser.add_argument("--log", type=Path, default=Path(os.devnull), help="one line of JSON a minute")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, hard), hard))
    return 0 if asyncio.run(soak(parser.parse_args())) else 1


if __name__ == "__main__":
    sys.exit(main())
