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
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

import grpc

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY / "benchmarks"), str(Path(__file__).parent)]

from load_agent import LoadAgent, LoadJob  # noqa: E402
from measuring import conditions, print_table  # noqa: E402
from planner_load import PATIENCE_S, PlannerProcess  # noqa: E402
from policy_history import PolicyHistory, prepare  # noqa: E402

from perseus_dist.messages.from_agent import Attach  # noqa: E402
from perseus_dist.messages.from_planner import Attached, PlannerMessage, PlanTable, ProfileAck, Switch  # noqa: E402
from perseus_dist.planner.store.state_dir import RIGHTS  # noqa: E402
from perseus_dist.planning.schedule.schedule import one_f_one_b  # noqa: E402
from perseus_dist.rpc.connection import CHANNEL_OPTIONS  # noqa: E402
from perseus_dist.rpc.v1 import planner_pb2 as pb  # noqa: E402
from perseus_dist.rpc.v1.planner_pb2_grpc import PlannerStub  # noqa: E402

NUM_JOBS = 3
KILLS_PER_JOB = 4
LONGEST_LIFE_S = 2.0
REPORT_EVERY_S = 0.05
OPERATE_EVERY_S = 0.02
CALL_TIMEOUT_S = 5.0
ON_THE_WAY_S = 60.0
Call = Callable[[], Awaitable[object]]


@dataclass(slots=True)
class History:
    """What was acknowledged, and what broke.

    Attributes:
        counts: How often something was acknowledged, by its kind.
        breaches: A sentence for each acknowledgement that did not hold.
        asked, acknowledged: Changes by action, job and the text of their audit record.
    """

    counts: Counter[str] = field(default_factory=Counter)
    breaches: list[str] = field(default_factory=list)
    asked: Counter[tuple[str, ...]] = field(default_factory=Counter)
    acknowledged: Counter[tuple[str, ...]] = field(default_factory=Counter)

    async def change(self, register: "Written", value: float, record: tuple[str, str, str], call: Call) -> bool:
        """Write a register by a call that leaves an audit record; whether it was acknowledged."""
        self.asked[record] += 1
        written = await register.write(value, call)
        self.acknowledged[record] += written
        return written

    def check_audit(self, databases: Iterable[Path], repeated: Counter[tuple[str, ...]] | None = None) -> None:
        """Compare the audit records with what was acknowledged, once nobody writes any more.

        Args:
            databases: With the records of each planner.
            repeated: Calls that clients repeated, by action and job: records then count by these alone.
        """
        found: Counter[tuple[str, ...]] = Counter()
        for database in databases:
            connection = sqlite3.connect(database)
            found.update(connection.execute("SELECT action, job, after FROM audit WHERE outcome = 'done'"))
            connection.close()
        asked, acknowledged = self.asked, self.acknowledged
        if repeated is not None:
            found, asked, acknowledged = (_by_job(one) for one in (found, asked, acknowledged))
            asked.update(repeated)
        actions = {key[0] for key in asked}
        for key in sorted({*asked, *(key for key in found if key[0] in actions)}):
            self.counts["audit records"] += found[key]
            if not acknowledged[key] <= found[key] <= asked[key]:
                said = f"{acknowledged[key]} of {asked[key]} were acknowledged"
                self.breaches.append(f"{' '.join(key)}: {found[key]} audit records, {said}")


def _by_job(changes: Counter[tuple[str, ...]]) -> Counter[tuple[str, ...]]:
    """Numbers by action and job."""
    found: Counter[tuple[str, ...]] = Counter()
    for (action, job, *_), number in changes.items():
        found[action, job] += number
    return found


class Written(Protocol):
    """A register, or something like it."""

    async def write(self, value: float, call: Callable[[], Awaitable[object]]) -> bool:
        """Call; whether the value is the new one by what was acknowledged."""


@dataclass(slots=True)
class Register:
    """A value that operators write and the planner keeps: what it may be, given acknowledged and unanswered writes."""

    possible: set[float]
    _ended_s: dict[float, float] = field(default_factory=dict)  # [s] monotonic, by value, when it was no more possible

    def possible_since(self, since_s: float) -> set[float]:
        """Values that it may have had at some moment since then ([s] monotonic)."""
        return self.possible | {value for value, ended_s in self._ended_s.items() if ended_s >= since_s}

    async def write(self, value: float, call: Callable[[], Awaitable[object]]) -> bool:
        """Call; the value may be the new one from here on, and is once the call has returned."""
        self.possible.add(value)
        try:
            await call()
        except grpc.aio.AioRpcError:
            return False
        self._settle(value)
        return True

    def read(self, value: float) -> bool:
        """Whether it may be this one, which from here on it is."""
        holds = any(abs(value - one) < 1e-9 for one in self.possible)
        self._settle(value)
        return holds

    def _settle(self, value: float) -> None:
        self._ended_s |= dict.fromkeys(self.possible - {value}, time.monotonic())
        self.possible = {value}


@dataclass(slots=True, kw_only=True)
class RecordingAgent(LoadAgent):
    """An agent that checks what the planner says against what it said before."""

    history: History
    effective: dict[int, int]  # by switch revision, shared by the job's agents
    slowdown: Register
    degree: Register
    _attach_s: float = 0.0  # monotonic
    _told: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    _newest_table: int = 0
    _newest_switch: int = 0
    _acked: int = 0

    def _attach(self) -> Attach:
        self._attach_s = time.monotonic()
        return LoadAgent._attach(self)

    def _has_possible_bounds(self, switch: Switch) -> bool:
        slowdowns, degrees = (one.possible_since(self._attach_s) for one in (self.slowdown, self.degree))
        bounds = (max(1.0, slowdown, degree) for slowdown in slowdowns for degree in degrees)
        return switch.deadline_s == 0 and any(abs(switch.max_slowdown - bound) < 1e-9 for bound in bounds)

    async def _take(self, message: PlannerMessage) -> None:
        history, name = self.history, f"{self.rank.job_id}, rank {self.rank.rank}"
        match message:
            case Attached():
                history.counts["attached streams"] += 1
                if message.acked_samples < self._acked:
                    history.breaches.append(f"{name}: samples {self._acked} were durable, now {message.acked_samples}")
                if message.table_revision < self._newest_table:
                    history.breaches.append(
                        f"{name}: table {message.table_revision} is the newest, after {self._newest_table}"
                    )
            case ProfileAck():
                history.counts["acknowledged samples"] += 1
                self._acked = max(self._acked, message.sequence)
            case PlanTable() if message.base_revision == 0:
                history.counts["tables"] += 1
                if message.revision < self._newest_table:
                    history.breaches.append(f"{name}: table {message.revision} after {self._newest_table}")
                self._newest_table = message.revision
            case Switch():
                history.counts["switches"] += 1
                revision = message.switch_revision
                if revision < self._newest_switch:
                    history.breaches.append(f"{name}: switch {revision} after {self._newest_switch}")
                if not self._has_possible_bounds(message):
                    history.breaches.append(f"{name}: switch {revision} has bounds of no target or report: {message}")
                # Bounds for the planner's absence follow targets and reports that change no point, and no revision.
                said = (message.table_revision, message.point, message.effective_iteration)
                if self._told.setdefault(revision, said) != said:
                    history.breaches.append(f"{name}: switch {revision} was {self._told[revision]}, now {said}")
                if self.effective.setdefault(revision, message.effective_iteration) != message.effective_iteration:
                    history.breaches.append(
                        f"{name}: switch {revision} begins elsewhere than for its job's other ranks"
                    )
                self._newest_switch = revision
            case _:
                pass
        await LoadAgent._take(self, message)


@dataclass(slots=True)
class LivingJob:
    """A job, and what operators did to it."""

    load: LoadJob
    agents: list[RecordingAgent]
    tasks: list[asyncio.Task[None]]
    slowdown: Register
    degree: Register
    is_known: bool = False

    @classmethod
    def start(cls, name: str, address: str, history: History) -> "LivingJob":
        """Its agents attach as soon as the planner is there, and report from then on."""
        load = LoadJob(job_id=name, schedule=one_f_one_b(pp=4, microbatches=4), dp_size=2)
        effective: dict[int, int] = {}
        slowdown, degree = Register({0.0}), Register({0.0})  # 0: t_min without a request, and no report that stands
        agents = [
            RecordingAgent(
                job=load,
                rank=rank,
                address=address,
                history=history,
                effective=effective,
                slowdown=slowdown,
                degree=degree,
            )
            for rank in load.ranks()
        ]
        tasks = [asyncio.create_task(agent.run()) for agent in agents]
        tasks += [asyncio.create_task(_report(agent)) for agent in agents]
        return cls(load, agents, tasks, slowdown, degree)

    async def end(self) -> None:
        """Leave without a word."""
        remaining = set(self.tasks)
        while remaining:  # a cancellation that meets the end of a call can be lost in it
            for task in remaining:
                task.cancel()
            _, remaining = await asyncio.wait(remaining, timeout=1.0)


async def _report(agent: LoadAgent) -> None:
    while True:
        await agent.attached.wait()
        await agent.report(num_iterations=4)
        await asyncio.sleep(REPORT_EVERY_S)


async def operate(stub: PlannerStub, job: LivingJob, chance: random.Random, history: History) -> None:
    """Targets and reports, one call after the other, for ever."""
    name = job.load.job_id
    while True:
        await asyncio.sleep(OPERATE_EVERY_S * chance.uniform(0.2, 2.0))
        match chance.randrange(4):
            case 0 | 1:
                slowdown = round(chance.uniform(1.0, 1.3), 6)
                request = pb.SetTargetRequest(job_id=name, target=pb.Target(slowdown=slowdown))
                call = partial(stub.SetTarget, request, timeout=CALL_TIMEOUT_S)
                record = ("SetTarget", name, f"slowdown={slowdown!r}")
                written = await history.change(job.slowdown, slowdown, record, call)
                history.counts["targets"] += written
            case 2:
                degree = round(chance.uniform(1.05, 1.5), 6)
                straggler = pb.StragglerReport(id="kills", degree=degree, dp_rank=0)
                report = pb.ReportStragglerRequest(job_id=name, straggler=straggler)
                call = partial(stub.ReportStraggler, report, timeout=CALL_TIMEOUT_S)
                record = ("ReportStraggler", name, f"straggler kills: dp_rank 0, degree {degree:g}")
                written = await history.change(job.degree, degree, record, call)
                history.counts["reports"] += written
            case _:
                clear = pb.ClearStragglerRequest(job_id=name, id="kills")
                call = partial(stub.ClearStraggler, clear, timeout=CALL_TIMEOUT_S)
                record = ("ClearStraggler", name, "no straggler kills")
                written = await history.change(job.degree, 0.0, record, call)
                history.counts["reports cleared"] += written


async def check(stub: PlannerStub, jobs: list[LivingJob], history: History) -> None:
    """Ask what the planner holds after a restart; jobs may be on their way between replicas, which is not gone."""
    known, until_s = {job.load.job_id for job in jobs if job.is_known}, time.monotonic() + ON_THE_WAY_S
    while True:
        listed = {job.job_id: job for job in (await stub.ListJobs(pb.ListJobsRequest(), timeout=PATIENCE_S)).jobs}
        if known <= listed.keys() or time.monotonic() > until_s:
            break
        await asyncio.sleep(0.1)
    for job in jobs:
        name = job.load.job_id
        status = listed.get(name)
        if status is None:
            if job.is_known:
                history.breaches.append(f"{name} is gone")
            continue
        job.is_known = True
        slowdown = status.target.slowdown
        possible = sorted(job.slowdown.possible)
        if not job.slowdown.read(slowdown):
            history.breaches.append(f"{name}: target {slowdown}, expected one of {possible}")
        degree = next((one.degree for one in status.stragglers if one.id == "kills"), 0.0)
        possible = sorted(job.degree.possible)
        if not job.degree.read(degree):
            history.breaches.append(f"{name}: a report of {degree} stands, expected one of {possible}")
        history.counts["states read after a restart"] += 1


def policy_history(history: History) -> PolicyHistory:
    """Of a campaign's policies and tokens, none of which is there at its begin."""
    return PolicyHistory(history=history, make_register=lambda: Register({0.0}), timeout_s=CALL_TIMEOUT_S)


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
                await asyncio.wait_for(channel.channel_ready(), PATIENCE_S)
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
        history.check_audit([Path(folder) / RIGHTS])
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
