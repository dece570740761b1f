"""A planner is killed hundreds of times under jobs that register, plan and switch; what it acknowledged is checked.

    python tests/stress/planner_kills.py [--kills 500] [--seed 0]

``perseus-dist planner`` runs as a process with its state in a folder, and gets SIGKILL at random moments. Jobs of 8
agents each (real gRPC, no trainers) attach, answer sweeps, report iterations; every few kills a new job comes and the
oldest leaves. Operators change targets, report stragglers, set and clear policies, make and revoke named tokens
meanwhile. Every acknowledgement goes into a history, and after each restart the planner is asked what it holds:

- a job, a target or a straggler that was acknowledged is there, unless a later call that changes it was under way;
- so is each budget, load target, price policy and named token (``policy_history.py``) that was not cleared or revoked;
- profile samples that were acknowledged to an agent are acknowledged still;
- the revisions of tables and switches that one agent sees never go back, and one switch revision of a job says the same
  to an agent each time, and names one effective iteration to all;
- an acknowledged change has one audit record, and one that was not answered has none or one;
- a switch's bounds for the planner's absence follow from a target and a report that may have stood since the stream's
  begin.

Prints a table, and exits with 1 if a line of it is a breach.
"""

import argparse
import asyncio
import random
import resource
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import grpc

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY / "benchmarks"), str(REPOSITORY / "tests" / "support")]

from measuring import conditions, print_table  # noqa: E402
from planner_history import (  # noqa: E402
    KILLS_PER_JOB,
    History,
    LivingJob,
    audit_records,
    check,
    operate,
    policy_history,
)
from planner_load import PATIENCE_S, PlannerProcess  # noqa: E402
from policy_history import prepare  # noqa: E402

from perseus_dist.planner.store.state_dir import RIGHTS  # noqa: E402
from perseus_dist.rpc.connection import CHANNEL_OPTIONS  # noqa: E402
from perseus_dist.rpc.v1.planner_pb2_grpc import PlannerStub  # noqa: E402

NUM_JOBS = 3
LONGEST_LIFE_S = 2.0


async def campaign(num_kills: int, seed: int) -> bool:
    """Run it and print the table; whether everything held."""
    told, chance, history = conditions(), random.Random(seed), History()
    policies = policy_history(history)
    jobs: list[LivingJob] = []
    gone: list[LivingJob] = []
    num_started = 0
    with tempfile.TemporaryDirectory() as folder:
        planner = PlannerProcess(Path(folder), *prepare(Path(folder)))
        await planner.start()
        for kill in range(num_kills):
            if kill % KILLS_PER_JOB == 0:
                jobs.append(LivingJob.start(f"job-{num_started}", planner.address, history))
                num_started += 1
            if len(jobs) > NUM_JOBS:
                gone.append(jobs.pop(0))
                await gone[-1].end()
            async with grpc.aio.insecure_channel(planner.address, options=CHANNEL_OPTIONS) as channel:
                stub = PlannerStub(channel)  # type: ignore[no-untyped-call]  # generated
                async with asyncio.timeout(PATIENCE_S):
                    await channel.channel_ready()
                await check(stub, gone + jobs, history)
                await policies.check(stub)
                operators = [asyncio.create_task(operate(stub, job, chance, history)) for job in jobs if job.is_known]
                operators.append(asyncio.create_task(policies.operate(stub, chance)))
                await asyncio.sleep(chance.uniform(0.0, LONGEST_LIFE_S))
                await planner.end(signal.SIGKILL)
                for operator in operators:
                    operator.cancel()
                for result in await asyncio.gather(*operators, return_exceptions=True):
                    if isinstance(result, Exception):
                        raise result
            await planner.start()
            if (kill + 1) % 50 == 0:
                print(f"{kill + 1}/{num_kills} kills, {len(history.breaches)} breaches", flush=True)
        for job in jobs:
            await job.end()
        with suppress(ProcessLookupError):
            await planner.end(signal.SIGTERM)
        history.check_audit(audit_records([Path(folder) / RIGHTS]))
        log = planner.log()
        if "Traceback" in log:
            history.breaches.append("the planner's log has a traceback: " + log[log.index("Traceback") :][:2000])
        if list(Path(folder).rglob("*damaged*")):
            history.breaches.append("a database was found damaged")
    print(told)
    rows = [["planner killed (SIGKILL)", str(num_kills)], ["jobs", str(num_started)]]
    rows += [[name, f"{number:,}"] for name, number in sorted(history.counts.items())]
    print_table(("what", "number"), [*rows, ["acknowledgements that did not hold", str(len(history.breaches))]])
    for breach in history.breaches[:20]:
        print(breach)
    return not history.breaches


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, hard), hard))
    return 0 if asyncio.run(campaign(args.kills, args.seed)) else 1


if __name__ == "__main__":
    sys.exit(main())
