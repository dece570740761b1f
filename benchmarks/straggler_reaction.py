"""How soon a throttled GPU is answered: a real planner process, and 64 agents' streams over gRPC on loopback.

    python benchmarks/straggler_reaction.py [--rounds 20]

In each round one agent's GPU is throttled: it says so at once and in two more readings, 150 ms apart, as agents do,
then with its telemetry once a second as all the others do. Later its GPU is free again, told in the same way. Measured,
by the planner's log and by the agents: from the first reading told to the planner's decision (bar: under 1 s), and from
that decision to the last agent's switch (bar: under 100 ms at the median). The exit code is 1 if one is missed.
"""

import argparse
import asyncio
import re
import statistics
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from load_agent import CLOCKS_MHZ, ITERATION_S, LoadAgent, LoadJob
from measuring import conditions, print_table
from planner_load import PlannerProcess, planner_with, until_planned

from perseus_dist.messages.from_agent import GpuSample
from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.straggler.evidence.gpu_evidence import REASON_SW_THERMAL

PP_SIZE, DP_SIZE = 8, 8
CAPPED_MHZ = 1005
READINGS, READING_S = 3, 0.15  # as agents tell what is new of a GPU
HISTORY_S, HOLD_S, ROUND_S = 12.0, 5.0, 30.0
DECIDED_S, TOLD_S = 1.0, 0.1
_DECISION = re.compile(r"^(?P<at>\S+ \S+) \S+ .*\bswitch (?P<revision>[0-9]+) from iteration ")


class Latency(NamedTuple):
    """Of one change: from the first reading told, and from the decision [s]."""

    decided_s: float
    told_s: float


async def measure(rounds: int) -> tuple[list[Latency], list[Latency]]:
    """Of throttlings, and of their ends."""
    job = LoadJob(job_id="reaction", schedule=one_f_one_b(pp=PP_SIZE, microbatches=12), dp_size=DP_SIZE)
    begun, ended = [], []
    async with planner_with([job]) as (planner, agents):
        await until_planned(agents)
        reporting = [asyncio.create_task(_report(agent, index / len(agents))) for index, agent in enumerate(agents)]
        await asyncio.sleep(HISTORY_S)
        for number in range(rounds):
            victim = agents[(number * (PP_SIZE + 1)) % len(agents)]  # another stage, another pipeline
            begun.append(await _change(planner, agents, victim, is_throttled=True))
            await asyncio.sleep(HOLD_S)
            ended.append(await _change(planner, agents, victim, is_throttled=False))
            await asyncio.sleep(HOLD_S)
        for task in reporting:
            task.cancel()
        await asyncio.gather(*reporting, return_exceptions=True)
    return begun, ended


async def _report(agent: LoadAgent, offset_s: float) -> None:
    """Once a second, the second's iterations."""
    await asyncio.sleep(offset_s)
    while True:
        await agent.report(num_iterations=round(1 / ITERATION_S))
        await asyncio.sleep(1.0)


async def _change(
    planner: PlannerProcess, agents: Sequence[LoadAgent], victim: LoadAgent, *, is_throttled: bool
) -> Latency:
    slowness = CLOCKS_MHZ[0] / CAPPED_MHZ if is_throttled else 1.0
    for agent in agents:
        if agent.rank.dp_rank == victim.rank.dp_rank:
            agent.pipeline_ratio = slowness
    victim.ratio = slowness
    victim.gpu = GpuSample(
        power_w=300.0,
        requested_mhz=CLOCKS_MHZ[0],
        clock_mhz=CAPPED_MHZ if is_throttled else CLOCKS_MHZ[0],
        event_reasons=REASON_SW_THERMAL if is_throttled else 0,
        temperature_c=90.0 if is_throttled else 60.0,
    )
    seen, told_at_s, told_on_wall_s = [len(agent.switches) for agent in agents], time.monotonic(), time.time()
    for _ in range(READINGS):
        await victim.report(num_iterations=0)
        await asyncio.sleep(READING_S)
    async with asyncio.timeout(ROUND_S):
        while any(len(agent.switches) == had for agent, had in zip(agents, seen, strict=True)):
            await asyncio.sleep(0.002)
    first = [agent.switches[had] for agent, had in zip(agents, seen, strict=True)]
    (revision,) = {revision for revision, _ in first}
    decided_s = decision_at_s(planner.log(), revision) - told_on_wall_s
    return Latency(decided_s, max(at_s for _, at_s in first) - told_at_s - decided_s)


def decision_at_s(log: str, revision: int) -> float:
    """[s] on the wall when the planner decided a switch, to a millisecond."""
    for line in log.splitlines():
        match = _DECISION.match(line)
        if match is not None and int(match["revision"]) == revision:
            return datetime.strptime(match["at"], "%Y-%m-%d %H:%M:%S,%f").timestamp()
    raise SystemExit(f"the planner's log does not tell of switch {revision}")


def _row(what: str, latencies: Sequence[Latency]) -> list[str]:
    columns = zip(*latencies, strict=True)
    times = (f"{1e3 * statistics.median(times_s):.0f}, {1e3 * max(times_s):.0f}" for times_s in columns)
    return [what, str(len(latencies)), *times]


def main() -> int:
    """Print the table; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="throttlings (default: %(default)s)")
    args = parser.parse_args()
    told = conditions()
    begun, ended = asyncio.run(measure(args.rounds))
    print(told)
    heads = (
        f"{PP_SIZE * DP_SIZE} agents, PP{PP_SIZE} x DP{DP_SIZE}",
        "times",
        "NVML to decision, median, worst [ms]",
        "decision to the last agent's switch, median, worst [ms]",
    )
    print_table(heads, [_row("throttled by heat", begun), _row("free again", ended)])
    is_decided = max(latency.decided_s for latency in begun) < DECIDED_S
    is_told = statistics.median(latency.told_s for latency in (*begun, *ended)) < TOLD_S
    return 0 if is_decided and is_told else 1


if __name__ == "__main__":
    sys.exit(main())
