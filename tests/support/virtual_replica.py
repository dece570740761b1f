"""Replicas in virtual time: the planner's own jobs, life cycle, store, leases and service, one event loop each."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import grpc
from memory_leases import LEASE_S, Database, MemoryFacts, MemoryLeases
from memory_rights import MemoryAuditTable, MemoryGrantTable
from planner_history import RecordingAgent
from policy_history import TOKEN
from virtual_loop import VirtualLoop, VirtualThread
from virtual_network import Call, Network

from perseus_dist.agent.link.planner_route import PlannerRoute
from perseus_dist.agent.link.relayed import owner_of_job
from perseus_dist.messages.from_agent import AgentMessage
from perseus_dist.planner.access.access import Access
from perseus_dist.planner.job.facts.fact import Fact
from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.planner.runtime.counters import Counters
from perseus_dist.planner.runtime.jobs import Jobs
from perseus_dist.planner.runtime.outbox import Ending
from perseus_dist.planner.runtime.ownership.ownership import Ownership
from perseus_dist.planner.runtime.shared.database_thread import Call as DatabaseCall
from perseus_dist.planner.runtime.shared.shared_audit import SharedAudit
from perseus_dist.planner.runtime.shared.shared_grants import SharedGrants
from perseus_dist.planner.runtime.signals.signal_files import SignalFiles
from perseus_dist.planner.service.rpc_guard import RpcGuard
from perseus_dist.planner.service.server import share_jobs
from perseus_dist.planner.service.service import service_handler
from perseus_dist.planner.store.shared_rights import SharedRightsError
from perseus_dist.planner.store.store import RETRY_PERIOD_S, Store
from perseus_dist.planner.worker.frontier_build import PlannedRequest, planned_request, result_of
from perseus_dist.planner.worker.plan_request import PlanningRequest, PlanResult
from perseus_dist.rpc.codec import decode_planner_message, encode_agent_message, encode_planner_message

OPENING_LEASE_S = 15.0
BEGIN_UNIX_S = 1_790_000_000.0
DRAIN_S = 1.0
FIRST_DELAY_S, LONGEST_DELAY_S = 0.1, 1.5
CONNECT_S = 3.0

_planned: dict[object, PlannedRequest] = {}


class QuickWorker:
    """Plans in this process; each plan takes a while by the replica's clock."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def expected_s(self, _request: PlanningRequest) -> float | None:
        return None

    async def plan(self, request: PlanningRequest, _expect: Callable[[float], None] | None = None) -> PlanResult:
        await asyncio.sleep(self._chance.uniform(0.1, 3.0))
        planned = _planned.get(request.content)
        if planned is None:
            planned = _planned[request.content] = planned_request(request, quick=True)
        return result_of(request, planned, encode=encode_planner_message)


class NotedStore(Store):
    """Tells of each commit: those of one job that wait are stored as one change."""

    note: Callable[[Sequence[Fact]], None]

    def commit(self, job_id: str, facts: Sequence[Fact], drop: Sequence[str] = ()) -> Future[None]:
        self.note(facts)
        return Store.commit(self, job_id, facts, drop)


class VirtualReplica:
    """A replica at an address: one process after the other.

    Attributes:
        loop: Of the newest process.
        handler: Of its service; None while no process listens.
        slow_s: [s] that a call on the database takes at most.
        wall_s: How much its wall clock is ahead of the others' [s].
        unconfirmed: That many of its next changes are made in the database and not confirmed.
        failures: What went wrong in processes that have ended.
    """

    def __init__(self, network: Network, database: Database, address: str, signals: Path | None = None) -> None:
        self.address = address
        self.handler: grpc.GenericRpcHandler | None = None
        self.slow_s = 0.01
        self.wall_s = 0.0
        self.unconfirmed = 0
        self.failures: list[str] = []
        self.access = Access(TOKEN, clock=self.wall)
        self.jobs: Jobs | None = None
        self._network = network
        self._world = network.world
        self._chance = network.chance
        self._database = database
        self._signals = signals
        self._is_leaving = False
        network.processes[address] = self
        self._start()

    def wall(self) -> float:
        """Unix time [s]."""
        return BEGIN_UNIX_S + self._world.now_s + self.wall_s

    @property
    def is_alive(self) -> bool:
        """Whether there is a process."""
        return not self.loop.is_dead

    @property
    def is_leaving(self) -> bool:
        """Whether its process ends by itself."""
        return self.is_alive and self._is_leaving

    @property
    def runs(self) -> bool:
        """Whether it is not stopped, either, and does not end."""
        return self.is_alive and not self.loop.is_stopped and not self._is_leaving

    def owns(self, job_id: str) -> bool:
        """Whether its process believes to own a job, and has it."""
        jobs = self.jobs
        if not self.runs or jobs is None or jobs.ownership is None:
            return False
        return job_id in jobs.ownership.epochs and jobs.has(job_id)

    def start(self) -> None:
        """Start a process where there is none."""
        if not self.is_alive:
            self._start()

    def kill(self) -> None:
        """SIGKILL: what has been sent to the database arrives there."""
        self.loop.kill()
        self.handler = None
        self._network.break_all(self.address)

    def stop(self) -> None:
        """SIGSTOP."""
        self.loop.is_stopped = True

    def resume(self) -> None:
        """SIGCONT."""
        self.loop.is_stopped = False

    def leave(self) -> None:
        """SIGTERM."""
        if self.runs and self.handler is not None:
            self._is_leaving = True
            with self.loop.current():
                self.loop.create_task(self._leave())

    def cut_off(self) -> None:
        """It reaches the database no more."""
        self.leases.is_away = True

    def reconnect(self) -> None:
        """It reaches the database again."""
        self.leases.is_away = False

    # ---- the process -------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        self.loop = VirtualLoop(self._world, rate=self._chance.uniform(0.98, 1.02))
        self._is_leaving = False
        self.jobs = None
        self.leases = self._registered()
        self._store_thread = VirtualThread(self._world, self.loop, self._takes_s)
        self._is_storing = False
        with self.loop.current():
            self.loop.create_task(self._serve())

    def _registered(self) -> MemoryLeases:
        leases = self._database.register(self.address, OPENING_LEASE_S)
        leases.lease_s = LEASE_S
        leases.loses_answer = self._loses_answer
        return leases

    def _loses_answer(self) -> bool:
        self.unconfirmed = max(0, self.unconfirmed - 1)
        return self.unconfirmed > 0

    def _takes_s(self) -> tuple[float, float]:
        return self._chance.uniform(0.0, self.slow_s), self._chance.uniform(0.0, 0.3 * self.slow_s)

    def _thread_call(self) -> DatabaseCall:
        """Runs calls one after the other, as a thread of this process."""
        thread = VirtualThread(self._world, self.loop, self._takes_s)

        async def call(function: Callable[..., Any], *arguments: object) -> Any:
            return await asyncio.wrap_future(thread.submit(partial(function, *arguments)))

        return call

    async def _serve(self) -> None:
        self._store = NotedStore(MemoryFacts(self.leases), wake=self._wake)
        self._store.note = self._database.note_committed
        signals = SignalFiles(self._signals)
        jobs = Jobs(self._store, QuickWorker(self._chance), Policy(), Counters(), signals, self.wall)
        ownership = Ownership(self.leases, jobs, self._thread_call(), self._thread_call())
        await share_jobs(jobs, self._store, ownership)
        grants = SharedGrants(self.access, MemoryGrantTable(self.leases), self._thread_call())
        audit = SharedAudit(self.access.audit, MemoryAuditTable(self.leases, self.address), self._thread_call())
        with suppress(SharedRightsError):
            await grants.exchange()
        guard = RpcGuard(access=self.access, needs_token=False, counters=jobs.counters)
        guard.shared_grants, guard.shared_audit = grants, audit
        self.jobs = jobs
        self.handler = service_handler(jobs, guard)
        kept = (jobs.tick(), ownership.keep(), grants.keep(), audit.keep())
        self._keeping = [self.loop.create_task(one) for one in kept]

    async def _leave(self) -> None:
        jobs = self.jobs
        assert jobs is not None
        assert jobs.ownership is not None
        for task in self._keeping:
            task.cancel()
        jobs.store_savings()
        await jobs.ownership.leave()
        jobs.end_streams(Ending(reason="the planner restarts; attach again"))
        self.handler = None
        await asyncio.sleep(DRAIN_S)
        jobs.store_savings()
        while self._is_storing and not self._store.trouble:
            await asyncio.sleep(0.05)
        jobs.close()
        self.kill()

    # ---- the store's thread ------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        if not self._is_storing:
            self._is_storing = True
            self.loop.call_soon(self._write)

    def _write(self) -> None:
        commits = self._store.take()
        stored = self._store_thread.submit(partial(self._store.store, commits))
        stored.add_done_callback(lambda _: self._written(stored.exception()))

    def _written(self, failure: BaseException | None) -> None:
        if failure is not None:
            self.failures.append(f"{self.address}: the store's thread has ended: {failure!r}")
        self._is_storing = self._store.has_waiting
        if self._is_storing:
            self._write()
        elif self._store.trouble:
            self._is_storing = True
            self.loop.call_later(RETRY_PERIOD_S, self._write)


class VirtualAgent(RecordingAgent):
    """A recording agent whose streams are in virtual time."""

    __slots__ = ("_stream", "chance", "network")

    def __init__(self, network: Network, chance: random.Random, **fields: Any) -> None:
        RecordingAgent.__init__(self, **fields, _incarnation=chance.getrandbits(63))
        self.network = network
        self.chance = chance
        self._stream: Call | None = None

    async def run(self) -> None:
        """Keep attached, for ever."""
        delay_s, route = FIRST_DELAY_S, PlannerRoute()
        loop: Any = asyncio.get_running_loop()
        while True:
            call = self._stream = Call(self.network, route.choose(self.address), "Attach", (), loop)
            try:
                async with asyncio.timeout(CONNECT_S):
                    await call.is_ready.wait()
                await self._send(self._attach())
                while (data := await call.read()) is not None:
                    delay_s = FIRST_DELAY_S
                    await self._take(decode_planner_message(data))
                route.note_end()
            except grpc.aio.AioRpcError as error:
                if owner := owner_of_job(error):
                    route.note_redirect(owner)
                else:
                    route.note_end()
            except TimeoutError:
                route.note_end()
            finally:
                if call in self.network.calls:
                    call.cancel()
            self.attached.clear()
            if route.take_redirect():
                continue
            await asyncio.sleep(delay_s * self.chance.uniform(0.5, 1.0))
            delay_s = min(2 * delay_s, LONGEST_DELAY_S)

    async def _send(self, message: AgentMessage) -> None:
        assert self._stream is not None
        self._stream.write(encode_agent_message(message))


def audit_of(replicas: "list[VirtualReplica]") -> Counter[tuple[str, ...]]:
    """Records of changes on all of them, by action, job and text."""
    found: Counter[tuple[str, ...]] = Counter()
    for replica in replicas:
        records = replica.access.audit.read(after_id=0, since_s=0.0, job="", limit=1 << 30)
        found.update((one.action, one.job, one.after) for one in records if one.outcome == "done")
    return found
