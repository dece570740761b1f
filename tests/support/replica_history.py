"""Drawn histories of replicas in virtual time: what is struck, what is asked for, and whether all holds.

Three replicas with the planner's own jobs, life cycle, store, leases and service serve a few jobs, whose agents follow
them; the agents of one job have left. In each of some rounds operators change jobs and policies while replicas are
killed, stopped, cut off and started again, and the database is slow, crashes, and loses answers. Then everything goes
well again: each job has one owner soon, each rank has the newest switch, and what was acknowledged holds. The same seed
plays the same history.
"""

import asyncio
import atexit
import logging
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from load_agent import LoadJob
from memory_leases import Database
from planner_history import CALL_TIMEOUT_S, History, LivingJob, Register, ReplicaStub, check, operate, policy_history
from policy_history import MOVED, MOVING, budget_text, metadata, write_signal
from virtual_loop import VirtualLoop, World
from virtual_network import Network
from virtual_replica import BEGIN_UNIX_S, VirtualAgent, VirtualReplica, audit_of

from perseus_dist.messages.from_planner import PlannerMessage, Switch
from perseus_dist.planner.job.facts.decisions import PaceChosen, StragglerKnown, SwitchDecided, TargetChosen
from perseus_dist.planner.job.facts.fact import Fact
from perseus_dist.planner.store.fact_database import Change
from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.rpc.v1 import planner_pb2 as pb

NUM_REPLICAS, NUM_JOBS, NUM_ROUNDS = 3, 3, 2
ROUND_S = 20.0
SETTLE_S = 8.0
EXCHANGE_S = 3.0
PATIENCE_S = 60.0
REPORT_EVERY_S, OPERATE_EVERY_S, POLICY_EVERY_S = 2.0, 0.7, 1.5
MOVING_W = 1.0  # so that the job is as slow as its plan goes
STRIKES = {  # how often, against each other
    "kill": 4,
    "kill at a token": 2,
    "stop": 4,
    "leave": 2,
    "cut off": 3,
    "agents cut": 2,
    "slow": 4,
    "crash": 2,
    "unconfirmed": 3,
    "database clock": 1,
    "wall clock": 1,
    "moving": 3,
    "caller leaves": 6,
}


class WorldDatabase(Database):
    """A database by the world's clock, which may be moved.

    Attributes:
        ahead_s: [s] of its clock before the world's.
        is_down: It has crashed.
        paces: That policies have asked jobs for, times an iteration at full clocks.
        num_paced: Changes behind which a job has a pace.
        freed: Jobs that have lost the pace of a budget in force, a sentence each.
        has_budget: Whether the budget of ``MOVED`` is certainly in force.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.ahead_s = 100.0
        self.is_down = False
        self.paces: set[float] = set()
        self.num_paced = 0
        self.freed: list[str] = []
        self.has_budget: Callable[[], bool] = lambda: False
        super().__init__()

    @property
    def now_s(self) -> float:
        return self._world.now_s + self.ahead_s

    @now_s.setter
    def now_s(self, _: float) -> None:
        """The world alone moves it."""

    def note_committed(self, facts: Sequence[Fact]) -> None:
        """Agents may hear of a pace that another one follows before both are stored, as one change."""
        self.paces |= {fact.slowdown for fact in facts if isinstance(fact, PaceChosen)}

    def change(self, job: str, change: Change) -> bool:
        """Store a change, and look at paces before and behind it."""
        before, facts = self._paces_of(job), [*self.facts.get(job, ())]
        is_stored = Database.change(self, job, change)
        after = self._paces_of(job)
        facts += self.facts.get(job, ())  # of both: one change may free it of its pace, and then make its target faster
        self.num_paced += bool(after)
        is_slow_anyway = any(
            (isinstance(fact, TargetChosen) and (fact.target.slowdown or 1.0) >= max(before, default=0.0))
            or (isinstance(fact, StragglerKnown) and fact.degree >= max(before, default=0.0))
            for fact in facts
        )
        if job == MOVED and before and not after and self.has_budget() and not is_slow_anyway:
            self.freed.append(f"{self._world.now_s:.6f} {job} is free of a budget that is in force")
        return is_stored

    def _paces_of(self, job: str) -> set[float]:
        return {fact.slowdown for fact in self.facts.get(job, ()) if isinstance(fact, PaceChosen)}

    def newest_switch(self, job_id: str) -> int:
        """Revision of the newest switch that is stored."""
        switches = (fact for fact in self.facts.get(job_id, ()) if isinstance(fact, SwitchDecided))
        return max((fact.switch_revision for fact in switches), default=0)


class WatchedAgent(VirtualAgent):
    """Says, too, what it hears of that is not stored."""

    __slots__ = ("database", "lines")

    def __init__(self, database: WorldDatabase, lines: list[str], *arguments: Any, **fields: Any) -> None:
        VirtualAgent.__init__(self, *arguments, **fields)
        self.database = database
        self.lines = lines

    @property
    def newest_switch(self) -> int:
        """Revision of the newest switch that it has heard of."""
        return self._newest_switch

    def _has_possible_bounds(self, switch: Switch) -> bool:
        return switch.max_slowdown in self.database.paces or VirtualAgent._has_possible_bounds(self, switch)

    async def _take(self, message: PlannerMessage) -> None:
        name = f"{self.rank.job_id}, rank {self.rank.rank}"
        self.lines.append(f"{asyncio.get_running_loop().time():.6f} {name}: {type(message).__name__}")
        if isinstance(message, Switch) and message.switch_revision > self.database.newest_switch(self.rank.job_id):
            self.history.breaches.append(f"{name}: switch {message.switch_revision} is not stored")
        await VirtualAgent._take(self, message)


@cache
def signal_folder() -> Path:
    """Of all replicas of this process's histories."""
    folder = Path(tempfile.mkdtemp(prefix="signals-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    write_signal(folder, BEGIN_UNIX_S)
    return folder


@dataclass
class Played:
    """What came of a history.

    Attributes:
        breaches: What did not hold, a sentence each.
        counts: Acknowledgements and strikes, by kind.
        recovery_s: The longest [s] from the end of a round's disturbances until all was well.
        lines: What happened, in order.
    """

    breaches: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    recovery_s: float = 0.0
    lines: list[str] = field(default_factory=list)


class ReplicaHistory:
    """One history."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.world = World()
        self.history = History()
        self.lines: list[str] = []
        self.database = WorldDatabase(self.world)
        self.network = Network(self.world, self.chance)
        self.clients = VirtualLoop(self.world)
        signals = signal_folder()
        self.replicas = [
            VirtualReplica(self.network, self.database, f"replica-{number}", signals) for number in range(NUM_REPLICAS)
        ]
        self.recovery_s = 0.0
        self._policies = policy_history(self.history, every_s=POLICY_EVERY_S, begin_s=BEGIN_UNIX_S)
        self._moving = Register({0.0})
        self.database.has_budget = lambda: self._moving.possible == {1.0}
        self._calls: list[asyncio.Task[None]] = []
        self._one_move = asyncio.Lock()  # a register takes one write at a time
        self._stub = ReplicaStub([one.address for one in self.replicas], self._make_stub)

    def play(self) -> Played:
        """Play it to its end."""
        with logged_failures(self.history.breaches):
            try:
                self.world.run(self.clients, self._play(), limit_s=3600.0)
            finally:
                self.history.breaches += self.database.freed
                self.history.counts["changes under a pace"] = self.database.num_paced
                for replica in self.replicas:
                    self.history.breaches += replica.failures
                for loop in (*self.world.ended, *self.world.loops):
                    self.history.breaches += loop.failures
                self.world.close()
        return Played(self.history.breaches, dict(self.history.counts), self.recovery_s, self.lines)

    async def _make_stub(self, address: str) -> Any:
        return self.network.stub(self.clients, address)

    async def _play(self) -> None:
        stub, history, chance = cast("Any", self._stub), self.history, self.chance
        policies = self._policies
        jobs = [self._job(f"job-{number}") for number in range(NUM_JOBS)]
        await self._await_well(jobs)
        await check(stub, jobs, history)
        await self._end_agents(jobs[-1])
        for _ in range(NUM_ROUNDS):
            operators = [asyncio.create_task(operate(stub, job, chance, history, OPERATE_EVERY_S)) for job in jobs]
            operators.append(asyncio.create_task(policies.operate(stub, chance)))
            until_s = self.world.now_s + ROUND_S
            while self.world.now_s < until_s:
                await asyncio.sleep(chance.expovariate(0.4))
                self._strike()
            await asyncio.sleep(chance.uniform(0.0, 3.0))
            if leave_first := chance.random() < 0.5:
                await self._end_calls(operators)
            self._mend()
            ended_s = self.world.now_s
            if not leave_first:
                await self._end_calls(operators)
            await self._await_well(jobs)
            self.recovery_s = max(self.recovery_s, self.world.now_s - ended_s)
            await asyncio.sleep(SETTLE_S)
            await check(stub, jobs, history)
            await policies.check(stub)
            await self._check_moving()
            await asyncio.sleep(EXCHANGE_S)
            self._check_rights()
        history.check_audit(audit_of(self.replicas), self._stub.repeated)
        for job in jobs:
            await job.end()

    async def _end_calls(self, operators: list[asyncio.Task[None]]) -> None:
        """Operators leave, in the middle of their calls."""
        for operator in operators:
            operator.cancel()
        for result in await asyncio.gather(*operators, return_exceptions=True):
            if isinstance(result, Exception):
                raise result
        await asyncio.gather(*self._calls)
        self._calls.clear()

    @staticmethod
    async def _end_agents(job: LivingJob) -> None:
        """Nothing but a look for orphans brings the job to another replica from now on, or an operator."""
        await job.end()
        job.agents.clear()

    def _job(self, name: str) -> LivingJob:
        load = LoadJob(job_id=name, schedule=one_f_one_b(pp=2, microbatches=2), dp_size=2)
        addresses = [one.address for one in self.replicas]
        self.chance.shuffle(addresses)
        make = partial(WatchedAgent, self.database, self.lines, self.network, self.chance)
        return LivingJob.start(name, ",".join(addresses), self.history, cast("Any", make), load, REPORT_EVERY_S)

    # ---- strikes -----------------------------------------------------------------------------------------------------

    def _strike(self) -> None:
        (kind,) = self.chance.choices(list(STRIKES), list(STRIKES.values()))
        replica = self.chance.choice(self.replicas)
        self.lines.append(f"{self.world.now_s:.6f} {kind} {replica.address}")
        self.history.counts[f"strikes: {kind}"] += 1
        after, draw = self.world.after, self.chance.uniform
        match kind:
            case "kill":
                replica.kill()
                after(draw(0.0, 8.0), partial(self._start, replica))
            case "kill at a token":
                self._calls.append(asyncio.create_task(self._kill_at_token(replica)))
            case "stop":
                replica.stop()
                after(draw(0.2, 12.0), replica.resume)
            case "leave":
                replica.leave()
                after(draw(DRAIN_S, 6.0), partial(self._start, replica))
            case "cut off":
                replica.cut_off()
                after(draw(0.2, 6.0), partial(self._reconnect, replica))
            case "agents cut":
                self.network.cut.add(replica.address)
                after(draw(0.2, 14.0), partial(self.network.heal, replica.address))
            case "slow":
                replica.slow_s = 10 ** draw(-2.0, 0.7)
                after(draw(1.0, 8.0), lambda: setattr(replica, "slow_s", 0.01))
            case "crash":
                self._crash(draw(0.2, 8.0))
            case "unconfirmed":
                replica.unconfirmed = self.chance.randint(2, 4)
            case "database clock":
                self.database.ahead_s += draw(-1.0, 4.0)
            case "wall clock":
                replica.wall_s = self.chance.choice([-2, -1, 0, 1, 2]) * 86_400.0
            case "caller leaves":
                asking = self._call_and_leave(replica.address, self.world.now_s + ROUND_S / 2)
                self._calls.append(asyncio.create_task(asking))
            case _:
                self._calls.append(asyncio.create_task(self._move()))

    def _crash(self, duration_s: float) -> None:
        self.database.is_down = True
        for replica in self.replicas:
            replica.cut_off()
        self.world.after(duration_s, self._recover)

    def _reconnect(self, replica: VirtualReplica) -> None:
        if not self.database.is_down:
            replica.reconnect()

    def _recover(self) -> None:
        self.database.is_down = False
        for replica in self.replicas:
            replica.reconnect()

    def _start(self, replica: VirtualReplica) -> None:
        if self.database.is_down or replica.is_leaving:  # it waits for either
            self.world.after(0.5, partial(self._start, replica))
        else:
            replica.start()

    def _mend(self) -> None:
        self._recover()
        for replica in self.replicas:
            replica.resume()
            replica.slow_s, replica.unconfirmed = 0.01, 0
            self.network.heal(replica.address)
            self._start(replica)

    async def _kill_at_token(self, replica: VirtualReplica) -> None:
        """Kill a replica while it makes a token, which is asked for at another one then."""
        others = [one.address for one in self.replicas if one is not replica]
        stub = ReplicaStub([replica.address, *others], self._make_stub)
        stub.repeated = self._stub.repeated
        replica.slow_s = 0.5
        making = asyncio.create_task(self._policies.make_token(stub))
        await asyncio.sleep(self.chance.uniform(0.0, 1.5))
        replica.slow_s = 0.01
        replica.kill()
        self.world.after(self.chance.uniform(0.0, 8.0), partial(self._start, replica))
        await making

    async def _call_and_leave(self, address: str, until_s: float) -> None:
        """Ask for the job without agents once nobody has it, and leave as soon as its lease has been taken."""
        job_id = f"job-{NUM_JOBS - 1}"
        while self.database.lives(owner := self.database.leases[job_id][0]):
            if self.world.now_s > until_s:
                return
            await asyncio.sleep(0.01)
        stub, request = self.network.stub(self.clients, address), pb.GetFrontierRequest(job_id=job_id)
        asking = asyncio.create_task(stub.GetFrontier(request, timeout=CALL_TIMEOUT_S))
        while not asking.done() and self.database.leases[job_id][0] == owner:
            await asyncio.sleep(0.001)
        asking.cancel()
        await asyncio.wait([asking])

    async def _move(self) -> None:
        """A budget takes a job to the replica that keeps the policies, or lets it be anywhere again."""
        async with self._one_move:
            clear = 1.0 in self._moving.possible and self.chance.random() < 0.5
            budget = pb.Budget(name=MOVING, watts=MOVING_W, jobs=[MOVED], objective="total")
            method, text = ("ClearBudget", "none") if clear else ("SetBudget", budget_text(MOVING, MOVING_W, MOVED))
            request = pb.ClearBudgetRequest(name=MOVING) if clear else pb.SetBudgetRequest(budget=budget)
            call = partial(getattr(self._stub, method), request, timeout=CALL_TIMEOUT_S, metadata=metadata())
            written = await self.history.change(self._moving, 0.0 if clear else 1.0, (method, MOVED, text), call)
            self.history.counts["changes of a budget of living jobs"] += written

    async def _check_moving(self) -> None:
        status = await self._stub.GetPolicy(pb.GetPolicyRequest(), timeout=CALL_TIMEOUT_S, metadata=metadata())
        found = float(any(one.budget.name == MOVING for one in status.budgets))
        possible = sorted(self._moving.possible)
        if not self._moving.read(found):
            self.history.breaches.append(f"budget {MOVING}: saw {found:g}, expected one of {possible}")

    def _check_rights(self) -> None:
        """All replicas know the same tokens, and the database has each audit record of theirs once."""
        tokens = {name: (one.token_sha256, one.revoked_s is None) for name, (_, one) in self.database.grants.items()}
        records = Counter((address, one.record_id) for address, one in self.database.audit)
        for replica in self.replicas:
            here = {one.name: (one.token_sha256, one.revoked_s is None) for one in replica.access.grants()}
            if differing := sorted(name for name, _ in here.items() ^ tokens.items()):
                self.history.breaches.append(f"{replica.address}: other tokens than the database: {differing}")
            own = replica.access.audit.read(after_id=0, since_s=0.0, job="", limit=1 << 30)
            if any(records[replica.address, one.record_id] != 1 for one in own):
                self.history.breaches.append(f"{replica.address}: the database has not each of its {len(own)} records")

    # ---- liveness ----------------------------------------------------------------------------------------------------

    async def _await_well(self, jobs: list[LivingJob]) -> None:
        """Until each job has one owner, and each rank its newest switch."""
        until_s = self.world.now_s + PATIENCE_S
        while troubles := [trouble for job in jobs for trouble in self._troubles(job)]:
            if self.world.now_s > until_s:
                self.history.breaches += [f"{PATIENCE_S:g} s after the last strike: {one}" for one in troubles]
                return
            await asyncio.sleep(0.1)

    def _troubles(self, job: LivingJob) -> Iterator[str]:
        job_id = job.load.job_id
        owners = [one for one in self.replicas if one.owns(job_id)]
        number, _ = self.database.leases.get(job_id, (0, 0))
        if not self.database.lives(number):
            yield f"{job_id}: no lease of a living replica"
        elif [one.leases.number for one in owners] != [number]:
            yield f"{job_id}: the lease is of {number}, in effect it is owned by {[one.address for one in owners]}"
        newest = self.database.newest_switch(job_id)
        if not newest:
            yield f"{job_id}: has no switch"
        for agent in cast("list[WatchedAgent]", job.agents):
            if not agent.attached.is_set():
                yield f"{job_id}, rank {agent.rank.rank}: is not attached"
            elif not agent.table_revision or agent.newest_switch < newest:
                yield f"{job_id}, rank {agent.rank.rank}: has switch {agent.newest_switch}, the newest is {newest}"


DRAIN_S = 1.5


@contextmanager
def logged_failures(breaches: list[str]) -> Iterator[None]:
    """Log records with an exception are breaches."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.exc_info:
                breaches.append(f"logged: {self.format(record)}")

    logger, handler = logging.getLogger("perseus_dist"), Handler(logging.ERROR)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def play(seed: int) -> Played:
    """Play the history of a seed."""
    return ReplicaHistory(seed).play()
