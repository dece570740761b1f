"""A worker of the queue: takes a request that is free, plans it in a process of its own, and answers."""

import asyncio
import logging
from collections.abc import Callable

from perseus_dist.errors import PerseusError, PlanningError
from perseus_dist.planner.store.request_queue import PATIENT, QueueError, TakenRequest
from perseus_dist.planner.worker.plan_request import PlanResult
from perseus_dist.planner.worker.planning_worker import PlanningWorker, WorkerDiedError
from perseus_dist.planner.worker.shared.queued_request import request_of
from perseus_dist.planner.worker.shared.shared_queue import SharedQueue

IDLE_PERIOD_S = 1.0

_log = logging.getLogger(__name__)


class QueueWorker:
    """One process. Belongs to one event loop.

    Args:
        queue: Where requests come from.
        worker: The process.
        is_free: Whether a request may be begun now.
        least_urgency: Requests of this urgency, or more urgent ones, are taken.

    Attributes:
        num_answered: Requests that were planned, or said to be none that can be.
    """

    def __init__(
        self,
        queue: SharedQueue,
        worker: PlanningWorker,
        *,
        is_free: Callable[[], bool] = lambda: True,
        least_urgency: int = PATIENT,
    ) -> None:
        self._queue = queue
        self._worker = worker
        self._is_free = is_free
        self._least_urgency = least_urgency
        self._left_s: float | None = None
        self.num_answered = 0

    async def run(self) -> None:
        """Take and answer, for ever. Cancelled, it gives back what it has."""
        while True:
            taken = None
            try:
                if self._is_free():
                    taken = await self._queue.take(least_urgency=self._least_urgency)
                if taken is not None:
                    await self._answer(taken)
            except QueueError:
                pass
            except Exception:  # a defect must not end the worker
                _log.exception("a planning request could not be taken")
            if taken is None:
                await self._queue.wait_free(IDLE_PERIOD_S)

    async def _answer(self, taken: TakenRequest) -> None:
        self._left_s = None
        planning = asyncio.create_task(self._plan(taken))
        holding = asyncio.create_task(self._queue.hold(taken, lambda: self._left_s))
        outcome: PlanResult | PerseusError | None = None
        try:
            await asyncio.wait({planning, holding}, return_when=asyncio.FIRST_COMPLETED)
            if planning.done():
                outcome = planning.result()
                self.num_answered += not isinstance(outcome, WorkerDiedError)
        finally:
            for task in (planning, holding):
                task.cancel()
            await asyncio.wait({planning, holding})
            self._queue.settle(taken, outcome)

    async def _plan(self, taken: TakenRequest) -> PlanResult | PerseusError:
        try:
            request = await asyncio.to_thread(request_of, taken)
        except ValueError as error:
            return PlanningError(str(error))
        try:
            return await self._worker.plan(request, self._expect)
        except PerseusError as error:
            return error
        except Exception as error:  # a defect, which other workers have too
            _log.exception("job %s: planning failed", request.job_id)
            return PlanningError(f"planning failed by a fault of the program: {error!r}; report it")

    def _expect(self, left_s: float) -> None:
        self._left_s = left_s
