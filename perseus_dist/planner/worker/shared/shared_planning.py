"""Planning of one of several planners on a database: what its own workers cannot begin at once, any worker may plan.

```
 request --own worker is free--> planned here, as without a queue
         --it is busy----------> in line here and in the queue: planned by the worker that is free first
```

The queue adds no waiting: a request is in the line of its own planner all the same, and where the database is away that
is all there is. A planner whose workers have nothing to do plans for others, in a process beside them, so that its own
jobs find theirs free.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perseus_dist.errors import PerseusError, PlanningError
from perseus_dist.planner.store.request_queue import QueuedRequest, QueueError, RequestState, TakenRequest
from perseus_dist.planner.worker.plan_request import PlanningRequest, PlanResult
from perseus_dist.planner.worker.planning_worker import (
    LeftToAnotherError,
    PlanningWorker,
    PlanningWorkers,
    WorkerDiedError,
)
from perseus_dist.planner.worker.shared.kept_planning import Expect, KeptPlanning
from perseus_dist.planner.worker.shared.queue_worker import QueueWorker
from perseus_dist.planner.worker.shared.queued_request import queued, result_of
from perseus_dist.planner.worker.shared.shared_queue import SharedQueue

if TYPE_CHECKING:
    from perseus_dist.messages.planning_queue import PlanningQueue

LOOK_PERIOD_S = 0.5
COUNT_PERIOD_S = 5.0
BEGIN_PATIENCE_S = 1.0
MAX_QUEUED = 32
"""Of one planner; more are in its own line alone until there is room."""

_log = logging.getLogger(__name__)

_States = Mapping[str, RequestState]


class SharedPlanning:
    """A ``Worker`` of jobs. Belongs to one event loop.

    Args:
        queue: Of the database; closed at the end.

    Attributes:
        queue: Its state a few seconds ago; None while that is not known.
        num_from_others: Answers that other workers have given this planner.
    """

    def __init__(self, queue: SharedQueue) -> None:
        self._own = PlanningWorkers()
        self._guest = PlanningWorker()
        self._kept = KeptPlanning(self._plan)
        self._queue = queue
        self._room = asyncio.Semaphore(MAX_QUEUED)
        self._wishes: Counter[str] = Counter()  # by digest
        self._wished = asyncio.Event()
        self._looked: asyncio.Future[_States | None] = asyncio.get_running_loop().create_future()
        self._for_others = QueueWorker(queue, self._guest, is_free=lambda: self._own.is_idle)
        self.queue: PlanningQueue | None = None
        self.num_from_others = 0
        self._tasks = [asyncio.create_task(work) for work in (self._for_others.run(), self._look(), self._count())]

    @property
    def num_for_others(self) -> int:
        """Answers that this planner has given to others, whose workers were busy."""
        return self._for_others.num_answered

    def expected_s(self, request: PlanningRequest) -> float | None:
        """As ``PlanningWorkers``, by this planner's line; other workers may be faster. None if kept planning runs."""
        return None if self._kept.has(request.job_id) else self._own.expected_s(request)

    async def plan(self, request: PlanningRequest, expect: Expect | None = None) -> PlanResult:
        """As ``PlanningWorkers``.

        Raises:
            PerseusError: The request cannot be planned, whatever is tried.
            WorkerDiedError: Processes have ended over this request, here or elsewhere.
        """
        return await self._kept.plan(request, expect)

    def keep(self, job_id: str) -> None:
        """The job is given up, and may come back: what is planned for it goes on for a while."""
        self._kept.keep(job_id)

    async def close(self) -> None:
        """End the processes, and give back what was being planned for others. Requests are cancelled before."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._kept.close()
        await self._queue.close()
        await self._guest.close()
        await self._own.close()

    async def _plan(self, request: PlanningRequest, expect: Expect) -> PlanResult:
        if request.is_ahead or not self._own.is_busy_for(request):
            return await self._own.plan(request, expect)
        attempt = _Attempt()
        here = asyncio.create_task(self._plan_here(request, attempt, expect))
        others = asyncio.create_task(self._wait_for_others(request, attempt, expect))
        try:
            await asyncio.wait({here, others}, return_when=asyncio.FIRST_COMPLETED)
            if not here.done() and (result := others.result()) is not None:
                self.num_from_others += 1
                return result
            if here.done() or attempt.has_begun:
                return await here
        finally:
            for task in (here, others):
                task.cancel()
            await asyncio.gather(here, others, return_exceptions=True)
        return await self._own.plan(request, expect)

    # ---- here --------------------------------------------------------------------------------------------------------

    async def _plan_here(self, request: PlanningRequest, attempt: "_Attempt", expect: Expect) -> PlanResult:
        """Plan when the request has its turn in this planner's line, unless another worker has it then."""

        def expect_here(left_s: float) -> None:
            attempt.left_s = left_s
            expect(left_s)

        outcome: PlanResult | PerseusError | None = None
        try:
            while True:
                with suppress(LeftToAnotherError):
                    outcome = await self._own.plan(request, expect_here, lambda: self._begin(attempt))
                    return outcome
                await self._wait_until_free(attempt.digest)
        except PerseusError as error:
            outcome = error
            raise
        finally:
            if attempt.taken is not None and attempt.holding is not None:
                attempt.holding.cancel()
                self._queue.settle(attempt.taken, outcome)

    async def _begin(self, attempt: "_Attempt") -> bool:
        """Whether a request that has its turn is planned here; where the queue has it, others see that it is."""
        if attempt.digest:
            try:
                async with asyncio.timeout(BEGIN_PATIENCE_S):
                    attempt.taken = await self._queue.take(digest=attempt.digest)
            except (QueueError, TimeoutError):
                pass  # not worth waiting for: another worker may do the same, at worst
            else:
                if attempt.taken is None:
                    return False
                attempt.holding = asyncio.create_task(self._queue.hold(attempt.taken, lambda: attempt.left_s))
        attempt.has_begun = True
        return True

    async def _wait_until_free(self, digest: str) -> None:
        """Until the worker that has a request is gone, or the queue says nothing of it."""
        while (states := await asyncio.shield(self._looked)) is not None:
            if (state := states.get(digest)) is None or state.is_free:
                return

    # ---- elsewhere ---------------------------------------------------------------------------------------------------

    async def _wait_for_others(
        self, request: PlanningRequest, attempt: "_Attempt", expect: Expect
    ) -> PlanResult | None:
        """The answer of another worker; None if it is of no use."""
        async with self._room:
            asked = await asyncio.to_thread(queued, request)
            if not attempt.has_begun:
                attempt.digest = asked.digest
                return await self._ask_others(request, asked, attempt, expect)
        never: asyncio.Future[PlanResult] = asyncio.get_running_loop().create_future()
        return await never

    async def _ask_others(
        self, request: PlanningRequest, asked: QueuedRequest, attempt: "_Attempt", expect: Expect
    ) -> PlanResult | None:
        self._wishes[asked.digest] += 1
        try:
            state = None
            while state is None or not state.is_done:
                if state is None:
                    with suppress(QueueError):
                        await self._queue.ask(asked)
                    self._wished.set()
                elif state.left_s is not None and not attempt.has_begun:
                    expect(state.left_s)
                if (states := await asyncio.shield(self._looked)) is not None:
                    state = states.get(asked.digest)
        finally:
            self._wishes[asked.digest] -= 1
            self._wishes = +self._wishes
        if state.error:
            raise WorkerDiedError(state.error) if state.is_transient else PlanningError(state.error)
        with suppress(QueueError, PerseusError, ValueError):
            if (found := await self._queue.read(asked.digest)) is not None:
                return await asyncio.to_thread(result_of, request, *found)
        return None

    async def _look(self) -> None:
        """See how far the requests are that are wanted here, for ever."""
        while True:
            if not self._wishes:
                self._wished.clear()
                await self._wished.wait()
            await self._queue.wait_done(LOOK_PERIOD_S)
            states: _States | None = None
            try:
                states = await self._queue.look(list(self._wishes))
            except QueueError:
                pass
            except Exception:  # a defect must not leave a request waiting for ever
                _log.exception("planning requests could not be looked at")
            looked, self._looked = self._looked, asyncio.get_running_loop().create_future()
            looked.set_result(states)

    async def _count(self) -> None:
        while True:
            try:
                self.queue = await self._queue.state()
            except QueueError:
                self.queue = None
            except Exception:  # a defect must not end the count
                _log.exception("planning requests could not be counted")
                self.queue = None
            await asyncio.sleep(COUNT_PERIOD_S)


@dataclass(slots=True, kw_only=True)
class _Attempt:
    """A request in line here.

    Attributes:
        digest: Once the queue has it.
        taken: Once it is planned here under the queue's eyes.
        holding: Renews that.
        has_begun: Whether it is planned here.
        left_s: [s] until it is, by its progress; None where that is not known.
    """

    digest: str = ""
    taken: TakenRequest | None = None
    holding: "asyncio.Task[None] | None" = None
    has_begun: bool = False
    left_s: float | None = None
