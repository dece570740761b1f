"""One job of a running planner: puts events to its life cycle one by one, and does what comes of them, in order."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from perseus_dist.errors import PerseusError
from perseus_dist.planner.job.facts.plans import TableAhead
from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.lifecycle.events import (
    Answer,
    CancelPlanning,
    Effect,
    Forget,
    JobEvent,
    Log,
    Persist,
    PlanExpected,
    PlanFailed,
    PlanReady,
    Refuse,
    Send,
    SendTable,
    StartPlanning,
    without_acknowledgement,
)
from perseus_dist.planner.lifecycle.lifecycle import step
from perseus_dist.planner.runtime.counters import Counters
from perseus_dist.planner.store.store import Store
from perseus_dist.planner.worker.made_ahead import answer_made_ahead
from perseus_dist.planner.worker.plan_request import PlanningRequest, PlanResult
from perseus_dist.planner.worker.planning_worker import WorkerDiedError

if TYPE_CHECKING:
    from concurrent.futures import Future

_log = logging.getLogger(__name__)


class Streams(Protocol):
    """The agents' streams, by their numbers; a number whose stream is gone does nothing."""

    def send(self, effect: Send | SendTable) -> None:
        """Put a message into its queue."""

    def refuse(self, effect: Refuse) -> None:
        """Say so, and end the stream."""


class Worker(Protocol):
    """Plans requests, in this process or elsewhere."""

    def expected_s(self, request: PlanningRequest) -> float | None:
        """[s] that one may take from now on, where that is known."""

    async def plan(self, request: PlanningRequest, expect: Callable[[float], None] | None = None) -> PlanResult:
        """One plan. ``expect`` is called now and then with the time [s] that it will still take."""


class _Held:
    """The remaining effects of one step.

    Attributes:
        commit: Of the first ``Persist`` in ``effects``; None before the store was asked.
        num_unasked: How many of them the store has not been asked for.
    """

    __slots__ = ("answer", "commit", "effects", "num_unasked")

    def __init__(self, effects: Iterable[Effect], answer: "asyncio.Future[Answer] | None") -> None:
        self.effects = deque(effects)
        self.answer = answer
        self.commit: Future[None] | None = None
        self.num_unasked = sum(isinstance(effect, Persist) for effect in self.effects)


class JobActor:
    """Owns a ``Job``. All of it runs on the event loop; store and worker, which take time, are not awaited.

    Attributes:
        target_set_by: Identity of the operator who set the target last; empty before the planner has seen one.
        reported_by: Identities of operators, by the numbers of the events that their reports have led to.
    """

    def __init__(
        self,
        job: Job,
        *,
        store: Store,
        worker: Worker,
        streams: Streams,
        counters: Counters,
        forget: Callable[[str], None],
        changed: Callable[[], None] = lambda: None,
        withdraw: Callable[[str, str], bool] = lambda _job_id, _trouble: False,
    ) -> None:
        """Begin.

        Args:
            job: Changed by this actor alone.
            store: Where facts become durable.
            worker: Who plans.
            streams: Where messages go.
            counters: The planner's.
            forget: Told the job's name when it is over and its facts are deleted.
            changed: Called when the job has changed in a way that policies may depend on.
            withdraw: Called with the job's name and a sentence when a commit has failed; whether the job has been
                given up for that. Otherwise the planner goes on in memory.
        """
        self.job = job
        self._store = store
        self._worker = worker
        self._streams = streams
        self._counters = counters
        self._forget = forget
        self._changed = changed
        self._withdraw = withdraw
        self._held: deque[_Held] = deque()
        self._unasked: deque[_Held] = deque()  # those of them with commits that the store was not asked for
        self._plans: dict[int, asyncio.Task[None]] = {}
        self._loop = asyncio.get_running_loop()
        self._is_abandoned = False
        self.target_set_by = ""
        self.reported_by: dict[int, str] = {}

    def tell(self, event: JobEvent, answer: "asyncio.Future[Answer] | None" = None) -> None:
        """Put an event to the job."""
        if self._is_abandoned:
            if answer is not None:
                answer.set_result(Answer(accepted=False, reason="another replica has the job now; call again"))
            return
        num_changes = self.job.num_changes
        effects = step(self.job, event, self._loop.time())
        if self.job.num_changes != num_changes:
            self._changed()
        if not effects:
            return
        held = _Held(effects, answer)
        self._held.append(held)
        if held.num_unasked:
            self._unasked.append(held)
            self._ask_store()
        self._advance()

    def begin(self, event: JobEvent) -> "asyncio.Future[Answer]":
        """Put an operator's event to the job, at once; its answer comes when what it led to is durable."""
        answer: asyncio.Future[Answer] = self._loop.create_future()
        self.tell(event, answer)
        return answer

    def close(self) -> None:
        """End the planning that is under way."""
        for task in self._plans.values():
            task.cancel()

    def abandon(self, reason: str) -> None:
        """The job is another actor's: do nothing more, and answer operators' calls with a reason."""
        self._is_abandoned = True
        self.close()
        answers = [held.answer for held in self._held if held.answer is not None]
        self._held.clear()
        self._unasked.clear()
        for answer in answers:
            if not answer.done():
                answer.set_result(Answer(accepted=False, reason=reason))

    def _advance(self) -> None:
        """Do what may be done now: everything up to a commit that is not durable yet."""
        while self._held:
            held = self._held[0]
            while held.effects:
                if not isinstance(held.effects[0], Persist):
                    self._do(held.effects.popleft(), held.answer)
                    if self._is_abandoned:
                        return
                elif held.commit is None or not held.commit.done():
                    return
                else:
                    self._settle(held, held.commit.exception())
                    if self._is_abandoned:
                        return
            self._held.popleft()

    def _settle(self, held: _Held, failure: BaseException | None) -> None:
        """Go on behind a commit that has ended."""
        held.commit = None
        if failure is None:
            held.effects.popleft()
        else:
            self._counters.store_failures += 1
            if self._withdraw(self.job.job_id, str(failure)):
                return
            held.effects = deque(without_acknowledgement(held.effects, str(failure)))
            if held.num_unasked:  # then it is the first of those
                held.num_unasked = 0
                self._unasked.popleft()
        self._ask_store()

    def _ask_store(self) -> None:
        """Ask for commits ahead of their turn, so that many ranks share a flush of the disk; never out of order.

        A second commit of a step waits for the first to succeed, and later steps wait behind it.
        """
        while self._unasked and self._unasked[0].commit is None:
            held = self._unasked[0]
            persist = next(effect for effect in held.effects if isinstance(effect, Persist))
            held.commit = self._store.commit(self.job.job_id, persist.facts, persist.drop)
            held.commit.add_done_callback(self._committed)
            held.num_unasked -= 1
            if not held.num_unasked:
                self._unasked.popleft()

    def _committed(self, _: "Future[None]") -> None:
        """Called by the store's thread."""
        self._loop.call_soon_threadsafe(self._advance)

    def _do(self, effect: Effect, answer: "asyncio.Future[Answer] | None") -> None:
        match effect:
            case Send() | SendTable():
                self._streams.send(effect)
            case Refuse():
                self._streams.refuse(effect)
            case Log():
                _log.info("job %s: %s", self.job.job_id, effect.sentence)
            case StartPlanning():
                task = self._loop.create_task(self._plan(effect.request, effect.made))
                self._plans[effect.request.request_id] = task
            case CancelPlanning():
                if cancelled := self._plans.pop(effect.request_id, None):
                    cancelled.cancel()
            case Answer():
                if answer is not None and not answer.done():  # the caller may have left
                    answer.set_result(effect)
            case Forget():
                is_stored = self.job.spec is not None  # else refused strangers would cost a flush
                if is_stored and self.job.phase is not Phase.DONE:
                    return  # a rank has attached again while this waited for a commit
                if is_stored:
                    self._store.forget(self.job.job_id)
                self._forget(self.job.job_id)
                self.abandon("the job was over, and is forgotten")  # another actor has the next of its name
            case Persist():
                raise AssertionError("a commit is waited for, not done")

    async def _plan(self, request: PlanningRequest, made: TableAhead | None) -> None:
        event: PlanReady | PlanFailed
        began_s = self._loop.time()

        def expect(expected_s: float) -> None:
            self.tell(PlanExpected(request_id=request.request_id, expected_s=expected_s))

        try:
            result = None if made is None else await self._made_ahead(request, made)
            if result is None:
                expected_s = self._worker.expected_s(request)
                if expected_s is not None:
                    expect(expected_s)
                result = await self._worker.plan(request, expect)
            event = PlanReady(result=result)
        except WorkerDiedError as error:
            event = PlanFailed(request_id=request.request_id, reason=str(error), transient=True)
        except PerseusError as error:
            event = PlanFailed(request_id=request.request_id, reason=str(error))
        except Exception:  # a defect, which must not leave the job waiting for ever
            _log.exception("job %s: planning failed", self.job.job_id)
            event = PlanFailed(request_id=request.request_id, reason="planning failed; the planner's log says how")
        finally:
            self._plans.pop(request.request_id, None)
        if not request.is_ahead:
            self._counters.planning.observe(self._loop.time() - began_s)
            self._counters.plans["failed" if isinstance(event, PlanFailed) else "ready"] += 1
        self.tell(event)

    async def _made_ahead(self, request: PlanningRequest, made: TableAhead) -> PlanResult | None:
        """The plan that was made ahead; None where it is of no use, so that the worker is asked as if it were not."""
        try:
            return await asyncio.to_thread(answer_made_ahead, request, made)
        except Exception:
            _log.exception("job %s: the plan that was made ahead is of no use", self.job.job_id)
            return None
