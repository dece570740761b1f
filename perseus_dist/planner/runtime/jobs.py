"""All jobs of a running planner, and the streams of their agents."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import count

from google.protobuf.message import DecodeError

from perseus_dist.messages.from_agent import AgentMessage, Attach
from perseus_dist.planner.access.auth import Caller
from perseus_dist.planner.access.grants import Role
from perseus_dist.planner.access.refusal import check_rights, ending, not_allowed, too_many
from perseus_dist.planner.job.facts.fact import Fact
from perseus_dist.planner.job.facts.plans import StragglerPlanReady, TableMade
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.planner.job.stored_facts import StoredFactError
from perseus_dist.planner.lifecycle.events import (
    PlannerEnds,
    RankAttached,
    RankDetached,
    RankMessage,
    Refuse,
    Send,
    SendTable,
    Tick,
)
from perseus_dist.planner.lifecycle.lifecycle import new_job, restore
from perseus_dist.planner.lifecycle.status.job_status import job_status
from perseus_dist.planner.runtime.budgets import Budgets
from perseus_dist.planner.runtime.counters import Counters
from perseus_dist.planner.runtime.job_actor import JobActor, Worker
from perseus_dist.planner.runtime.nodes import ConnectedNodes
from perseus_dist.planner.runtime.outbox import AgentOutbox, Ending
from perseus_dist.planner.runtime.ownership.ownership import Ownership
from perseus_dist.planner.runtime.prices import Prices
from perseus_dist.planner.runtime.signals.signal_files import SignalFiles
from perseus_dist.planner.store.lease_table import Claimed
from perseus_dist.planner.store.store import NO_JOB, Store, sound_policies
from perseus_dist.planner.worker.shared.shared_planning import SharedPlanning
from perseus_dist.rpc.codec import encode_planner_message
from perseus_dist.rpc.v1 import planner_pb2 as pb

MAX_JOBS = 10_000
MAX_JOBS_OF_OWNER = 1_000  # or one user's script could shut out all others for a day
TICK_S = 1.0

_log = logging.getLogger(__name__)


class Jobs:
    """Finds the actor of each event. Everything runs on the event loop that it was made on.

    Attributes:
        counters: The planner's.
        budgets: Power budgets of groups of jobs, and price policies.
        nodes: Whose relays are connected.
        num_ticks: How many times every job has had its ``Tick``.
        is_ending: Whether all streams have been ended, because the planner ends.
        shared_planning: With other planners on the database; None for a planner that plans alone.
        ownership: Of one of several replicas: which jobs are here. None for a planner that serves all jobs.
    """

    ownership: Ownership | None = None
    shared_planning: SharedPlanning | None = None

    def __init__(
        self,
        store: Store,
        worker: Worker,
        policy: Policy,
        counters: Counters,
        signals: SignalFiles | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Take up what the store holds: ranks are detached until they come back.

        Args:
            store: Where facts become durable.
            worker: Who plans.
            policy: Of new jobs.
            counters: The planner's.
            signals: That price policies may name.
            wall: Unix time [s], which may jump.
        """
        self.counters = counters
        self._store = store
        self._worker = worker
        self._policy = policy
        self._actors: dict[str, JobActor] = {}
        prices = Prices(store, self._actors, signals or SignalFiles(None))
        self.budgets = Budgets(store, self._actors, prices, wall, may_order=self._may_order)
        self.nodes = ConnectedNodes()
        self._outboxes: dict[int, AgentOutbox] = {}
        self._stream_numbers = count(1)
        self.num_ticks = 0
        self.is_ending = False
        self.restore_jobs(store.load())
        self.budgets.evaluate()

    def restore_jobs(self, stored: Mapping[str, Sequence[Fact]]) -> None:
        """Go on with jobs as the store has them; ranks are detached until they come back."""
        unusable = {job_id: facts for job_id, facts in stored.items() if not self._restore(job_id, facts)}
        if unusable:
            self._store.set_aside(unusable)

    def _restore(self, job_id: str, facts: Sequence[Fact]) -> bool:
        """Go on with a job; False if its facts make none."""
        try:
            _check_tables(facts)
            job = restore(job_id, facts, self._policy)
            job_status(job)
        except MemoryError:
            raise
        except Exception as error:  # each fact can be read, and together they make no job
            _log.error("job %s: starts afresh, since its stored facts cannot be used (%r)", job_id, error)
            return False
        self._actors[job_id] = self._actor(job)
        _log.info("job %s: taken up again from %d stored facts", job_id, len(facts))
        return True

    def has(self, job_id: str) -> bool:
        """Whether there is such a job."""
        return job_id in self._actors

    def take_over(self, job_id: str, claimed: Claimed) -> None:
        """Go on with a job of another replica, or with the policies, which are stored for ``NO_JOB``."""
        if claimed.is_salvaged:
            self._store.commit(job_id, claimed.facts, ("",))
        if job_id == NO_JOB:
            self.budgets.restore(sound_policies(claimed.facts))
        elif claimed.facts:
            self.restore_jobs({job_id: claimed.facts})
            self.budgets.note_change()  # not at once: a thousand may come one after the other

    def give_up(self, job_id: str, ending: Ending) -> None:
        """Forget a job that another replica has, or will have, and send its agents there; its facts stay."""
        if job_id == NO_JOB:
            self.budgets.forget()
        actor = self._actors.pop(job_id, None)
        if actor is None:
            return
        if self.shared_planning is not None and ending.may_return:
            self.shared_planning.keep(job_id)
        actor.abandon(ending.reason)
        for number in list(actor.job.members.rank_of_stream):
            if outbox := self._outboxes.get(number):
                outbox.end(ending)

    def _may_order(self, job_id: str, *, draws_more: bool) -> bool:
        return self.ownership is None or self.ownership.may_pace(job_id, draws_more=draws_more)

    def all(self) -> list[JobActor]:
        """Every job's, by name."""
        return [self._actors[job_id] for job_id in sorted(self._actors)]

    def get(self, job_id: str) -> JobActor | None:
        """A job's, if there is one."""
        return self._actors.get(job_id)

    # ---- agents' streams ---------------------------------------------------------------------------------------------

    @property
    def num_streams(self) -> int:
        """Attached or about to be."""
        return len(self._outboxes)

    def attach(self, attach: Attach, caller: Caller, outbox: AgentOutbox) -> "AgentStream":
        """Begin a stream.

        Raises:
            RefusalError: The job is another's, the caller may not start it, or there are too many jobs.
        """
        job_id = attach.rank.job_id
        actor = self._actors.get(job_id)
        if self.ownership is not None and not self.ownership.owns(job_id):
            raise ending(f"job {job_id} has moved to another replica meanwhile; attach again")
        if actor is None:
            if not caller.may_start(job_id):
                raise not_allowed(caller, Role.OPERATE, job_id)
            if len(self._actors) >= MAX_JOBS:
                raise too_many(f"{MAX_JOBS} jobs are registered, no more can be")
            if not caller.is_operator and self._num_jobs_of(caller.owner) >= MAX_JOBS_OF_OWNER:
                raise too_many(
                    f"{MAX_JOBS_OF_OWNER} jobs of yours are registered, no more can be; those that are over are "
                    "forgotten after a day"
                )
            actor = self._actors[job_id] = self._actor(new_job(job_id, self._policy))
        elif actor.job.spec is not None:
            check_rights(caller, Role.OPERATE, job_id, actor.job.spec.token_sha256)
        number = next(self._stream_numbers)
        self._outboxes[number] = outbox
        self.counters.streams += 1
        stream = AgentStream(self, actor, number)
        try:
            actor.tell(RankAttached(stream=number, attach=attach, token_sha256=caller.owner))
        except BaseException:
            stream.close()
            raise
        finally:
            if actor.job.spec is None:  # it was refused, and no other rank has registered the job
                self._actors.pop(job_id, None)
        return stream

    def _num_jobs_of(self, owner: str) -> int:
        specs = (actor.job.spec for actor in self._actors.values())
        return sum(spec is not None and spec.token_sha256 == owner for spec in specs)

    def end_stream(self, number: int) -> None:
        """A stream is over."""
        if outbox := self._outboxes.pop(number, None):
            outbox.close()

    def end_streams(self, ending: Ending) -> None:
        """End all of them, and the calls that watch jobs; the planner ends."""
        self.is_ending = True
        for outbox in list(self._outboxes.values()):
            outbox.end(ending)

    def send(self, effect: Send | SendTable) -> None:
        """Put a message into its stream's queue."""
        if outbox := self._outboxes.get(effect.stream):
            if isinstance(effect, SendTable):
                self.counters.sent["PlanTable"] += 1
                outbox.put(effect.encoded)
            else:
                self.counters.sent[type(effect.message).__name__] += 1
                outbox.put(_encoded(effect.message))

    def refuse(self, effect: Refuse) -> None:
        """Say so, and end the stream."""
        if outbox := self._outboxes.get(effect.stream):
            self.counters.sent["Refused"] += 1
            outbox.put(encode_planner_message(effect.refused))
            outbox.end(Ending(reason=effect.refused.reason, orderly=True))

    # ---- the planner's own -------------------------------------------------------------------------------------------

    async def tick(self) -> None:
        """Tell every job about once a second that time passes, for ever."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            due = max(due + TICK_S, loop.time())
            await asyncio.sleep(due - loop.time())
            self.counters.loop_lag_s = loop.time() - due
            self._tell_all(list(self._actors.values()), Tick())
            self.budgets.tick()
            self.num_ticks += 1

    def store_savings(self) -> None:
        """Put what the jobs have saved so far into the store's queue; the planner ends."""
        self._tell_all(list(self._actors.values()), PlannerEnds())

    def close(self) -> None:
        """End the planning that is under way."""
        self.budgets.close()
        for actor in self._actors.values():
            actor.close()

    def _tell_all(self, actors: Iterable[JobActor], event: Tick | PlannerEnds) -> None:
        for actor in actors:
            try:
                actor.tell(event)
            except Exception:  # one job's defect must not stop the others
                self.counters.tick_failures += 1
                _log.exception("job %s: tick failed", actor.job.job_id)

    def _forget(self, job_id: str) -> None:
        self._actors.pop(job_id, None)

    def _withdraw(self, job_id: str, trouble: str) -> bool:
        """One of several replicas says nothing that is not stored: the next owner would contradict it."""
        if self.ownership is None:
            return False
        self.ownership.withdraw(job_id, trouble)
        return True

    def _actor(self, job: Job) -> JobActor:
        return JobActor(
            job,
            store=self._store,
            worker=self._worker,
            streams=self,
            counters=self.counters,
            forget=self._forget,
            changed=self.budgets.note_change,
            withdraw=self._withdraw,
        )


_encoded = lru_cache(maxsize=64)(encode_planner_message)  # a switch goes to all ranks of a pipeline, one by one


class AgentStream:
    """One rank's stream, from its ``Attach`` on."""

    __slots__ = ("_actor", "_jobs", "_number")

    def __init__(self, jobs: Jobs, actor: JobActor, number: int) -> None:
        self._jobs = jobs
        self._actor = actor
        self._number = number

    def receive(self, message: AgentMessage) -> None:
        """A message has come."""
        self._actor.tell(RankMessage(stream=self._number, message=message))

    def close(self) -> None:
        """The stream has ended."""
        self._jobs.end_stream(self._number)
        self._actor.tell(RankDetached(stream=self._number))


def _check_tables(facts: Sequence[Fact]) -> None:
    """Tables can be sent, and are of their frontiers.

    Raises:
        StoredFactError: One is damaged.
    """
    for fact in facts:
        if isinstance(fact, TableMade | StragglerPlanReady):
            try:
                tables = [pb.PlannerMessage.FromString(encoded).table for encoded in fact.tables]
            except DecodeError:
                tables = []
            known = (fact.revision, len(fact.summary.time_ps))
            if not tables or any((table.revision, table.num_points) != known for table in tables):
                raise StoredFactError(f"row {fact.key!r} is damaged: its tables are not of its frontier")
