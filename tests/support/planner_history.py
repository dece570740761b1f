"""What campaigns of kills check: a history of acknowledgements of one planner, or of several replicas.

The same for processes (``planner_kills.py``, ``replica_kills.py``) and in virtual time (``replica_histories.py``):
time is that of the event loop.
"""

import asyncio
import random
import sqlite3
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol, Self

import grpc

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from load_agent import LoadAgent, LoadJob
from policy_history import COVERED, MOVED, MOVING, PRICED, PolicyHistory

from perseus_dist.messages.from_agent import Attach
from perseus_dist.messages.from_planner import Attached, PlannerMessage, PlanTable, ProfileAck, Switch
from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.rpc.connection import OWNER_KEY
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.rpc.v1.planner_pb2_grpc import PlannerStub

KILLS_PER_JOB = 4
REPORT_EVERY_S = 0.05
OPERATE_EVERY_S = 0.02
CALL_TIMEOUT_S = 5.0
LIST_TIMEOUT_S = 120.0
ON_THE_WAY_S = 60.0
_MAX_REDIRECTS = 4

Call = Callable[[], Awaitable[object]]
Metadata = Sequence[tuple[str, str]]


def now_s() -> float:
    """[s] of the event loop's clock."""
    return asyncio.get_running_loop().time()


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

    def check_audit(self, found: Counter[tuple[str, ...]], repeated: Counter[tuple[str, ...]] | None = None) -> None:
        """Compare the audit records with what was acknowledged, once no planner writes any more.

        Args:
            found: Records of changes on all planners, by action, job and text.
            repeated: Calls that clients repeated, by action and job: records then count by these alone.
        """
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


def audit_records(databases: Iterable[Path]) -> Counter[tuple[str, ...]]:
    """Records of changes in the databases of all planners, by action, job and text."""
    found: Counter[tuple[str, ...]] = Counter()
    for database in databases:
        connection = sqlite3.connect(database)
        found.update(connection.execute("SELECT action, job, after FROM audit WHERE outcome = 'done'"))
        connection.close()
    return found


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
        self._ended_s |= dict.fromkeys(self.possible - {value}, now_s())
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
        self._attach_s = now_s()
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
    def start(
        cls,
        name: str,
        address: str,
        history: History,
        make_agent: "Callable[..., RecordingAgent]" = RecordingAgent,
        load: LoadJob | None = None,
        report_every_s: float = REPORT_EVERY_S,
    ) -> Self:
        """Its agents attach as soon as the planner is there, and report from then on."""
        load = load or LoadJob(job_id=name, schedule=one_f_one_b(pp=4, microbatches=4), dp_size=2)
        effective: dict[int, int] = {}
        slowdown, degree = Register({0.0}), Register({0.0})  # 0: t_min without a request, and no report that stands
        agents = [
            make_agent(
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
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(agent.run()) for agent in agents]
        tasks += [loop.create_task(_report(agent, report_every_s)) for agent in agents]
        return cls(load, agents, tasks, slowdown, degree)

    async def end(self) -> None:
        """Leave without a word."""
        remaining = set(self.tasks)
        while remaining:  # a cancellation that meets the end of a call can be lost in it
            for task in remaining:
                task.cancel()
            _, remaining = await asyncio.wait(remaining, timeout=1.0)


async def _report(agent: LoadAgent, every_s: float) -> None:
    while True:
        await agent.report(num_iterations=4)
        await asyncio.sleep(every_s)


async def operate(
    stub: PlannerStub, job: LivingJob, chance: random.Random, history: History, every_s: float = OPERATE_EVERY_S
) -> None:
    """Targets and reports, one call after the other, for ever."""
    name = job.load.job_id
    while True:
        await asyncio.sleep(every_s * chance.uniform(0.2, 2.0))
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
    known, until_s = {job.load.job_id for job in jobs if job.is_known}, now_s() + ON_THE_WAY_S
    while True:
        listed = {job.job_id: job for job in (await stub.ListJobs(pb.ListJobsRequest(), timeout=LIST_TIMEOUT_S)).jobs}
        if known <= listed.keys() or now_s() > until_s:
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


def policy_history(history: History, **options: Any) -> PolicyHistory:
    """Of a campaign's policies and tokens, none of which is there at its begin."""
    return PolicyHistory(history=history, make_register=lambda: Register({0.0}), timeout_s=CALL_TIMEOUT_S, **options)


class ReplicaStub:
    """Has the methods of ``PlannerStub``: asks one replica after the other, and follows them to the owner."""

    def __init__(self, addresses: Sequence[str], make_stub: Callable[[str], Awaitable[PlannerStub]]) -> None:
        self._addresses = addresses
        self._make_stub = make_stub
        self._stubs: dict[str, PlannerStub] = {}
        self.repeated: Counter[tuple[str, ...]] = Counter()  # calls that may have been heeded before, by action and job

    def __getattr__(self, method: str) -> Any:
        return lambda request, timeout, metadata=(): self._call(method, request, timeout, metadata)

    async def ListJobs(self, request: pb.ListJobsRequest, timeout: float) -> pb.ListJobsResponse:  # noqa: N802
        """Of all replicas."""
        merged = pb.ListJobsResponse()
        for address in self._addresses:
            stub = await self._stub(address)
            merged.jobs.extend((await stub.ListJobs(request, timeout=timeout, wait_for_ready=True)).jobs)
        return merged

    async def _call(self, method: str, request: object, timeout: float, metadata: Metadata) -> object:
        address, *others = self._addresses
        num_redirects = 0
        while True:
            stub = await self._stub(address)
            try:
                return await getattr(stub, method)(request, timeout=timeout, metadata=metadata)
            except grpc.aio.AioRpcError as error:
                owner = next((str(value) for key, value in error.trailing_metadata() or () if key == OWNER_KEY), "")
                if owner and num_redirects < _MAX_REDIRECTS:
                    address, num_redirects = owner, num_redirects + 1
                elif error.code() is grpc.StatusCode.UNAVAILABLE and others:
                    address = others.pop(0)
                    self.repeated[method, _subject(method, request)] += 1
                else:
                    raise

    async def _stub(self, address: str) -> PlannerStub:
        if address not in self._stubs:
            self._stubs[address] = await self._make_stub(address)
        return self._stubs[address]


def _subject(method: str, request: object) -> str:
    """What an audit record of a call is about."""
    if "Price" in method:
        return PRICED
    if MOVING in (getattr(request, "name", ""), getattr(getattr(request, "budget", None), "name", "")):
        return MOVED
    return COVERED if "Budget" in method or "LoadTarget" in method else str(getattr(request, "job_id", ""))
