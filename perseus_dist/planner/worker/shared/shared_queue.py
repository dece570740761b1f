"""The queue of planning requests on an event loop: its calls run one after the other in a thread of their own.

A worker that has a request renews that once a second, whatever else it does, until it answers.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from perseus_dist.errors import PerseusError
from perseus_dist.messages.planning_queue import PlanningQueue
from perseus_dist.planner.store.request_queue import (
    PATIENT,
    QueuedRequest,
    QueueError,
    RequestQueue,
    RequestState,
    TakenRequest,
)
from perseus_dist.planner.worker.plan_request import PlanResult
from perseus_dist.planner.worker.planning_worker import WorkerDiedError
from perseus_dist.planner.worker.shared.queued_request import text_of_answer

BEAT_S = 1.0
_LAST_CALLS_S = 3.0
_Result = TypeVar("_Result")

_log = logging.getLogger(__name__)

Hear = Callable[[Callable[[str], None]], Awaitable[None]]
"""Calls a function with what is notified, for as long as it is heard at all."""


class SharedQueue:
    """Belongs to one event loop.

    Args:
        queue: Closed at the end.
        hear: Notifications of the queue: a text where a request is done, none where one may be taken.
    """

    def __init__(self, queue: RequestQueue, hear: Hear) -> None:
        self._queue = queue
        self._thread = ThreadPoolExecutor(1, "planning requests")
        self._news = {is_done: asyncio.Event() for is_done in (False, True)}
        self._hearing = asyncio.ensure_future(hear(self._heard))
        self._last: set[asyncio.Task[None]] = set()
        self._trouble = ""
        self._is_closed = False

    @property
    def name(self) -> str:
        """The database's address, without a password."""
        return self._queue.name

    async def ask(self, request: QueuedRequest) -> None:
        """As ``RequestQueue``, as are the others."""
        await self._run(partial(self._queue.ask, request))

    async def look(self, digests: Collection[str]) -> Mapping[str, RequestState]:
        """How far requests are."""
        return await self._run(partial(self._queue.look, digests))

    async def read(self, digest: str) -> tuple[str, bytes] | None:
        """The answer to a request, as text and bytes; None before there is one."""
        return await self._run(partial(self._queue.read, digest))

    async def take(self, *, least_urgency: int = PATIENT, digest: str = "") -> TakenRequest | None:
        """Take a waiting request as ``RequestQueue.take`` does, off the event loop; None if none waits.

        Cancelled, it gives back what the database grants all the same.
        """
        taking = asyncio.create_task(self._run(partial(self._queue.take, least_urgency=least_urgency, digest=digest)))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            self._finish(self._give_back(taking))
            raise

    async def state(self) -> PlanningQueue:
        """Requests that wait, and workers that are seen."""
        return await self._run(self._queue.state)

    async def report(self, worker: str, num_at_once: int) -> None:
        """Be seen as a worker."""
        await self._run(partial(self._queue.report, worker, num_at_once))

    async def wait_free(self, timeout_s: float) -> None:
        """Until a request may be taken, as far as that is notified; or for so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._news[False].wait()

    async def wait_done(self, timeout_s: float) -> None:
        """The same, until a request is done."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._news[True].wait()

    async def hold(self, taken: TakenRequest, left_s: Callable[[], float | None]) -> None:
        """Renew a request that was taken, until no planner wants it any more, or another worker has it."""
        is_mine = True
        while is_mine:
            await asyncio.sleep(BEAT_S)
            with suppress(QueueError):  # who has it goes on meanwhile, and answers
                is_mine = await self._run(partial(self._queue.renew, taken, left_s()))

    def settle(self, taken: TakenRequest, outcome: PlanResult | PerseusError | None) -> None:
        """Answer a request that was taken, or give it back where it was not planned; without waiting for that."""
        if not self._is_closed:  # else the lease lapses
            self._finish(self._settle(taken, outcome))

    async def close(self) -> None:
        """Say what is to be said still, for a few seconds, and disconnect."""
        if self._last:
            await asyncio.wait(self._last, timeout=_LAST_CALLS_S)
        self._is_closed = True
        self._hearing.cancel()
        await asyncio.gather(self._hearing, return_exceptions=True)
        self._thread.submit(self._queue.close)
        self._thread.shutdown(wait=False)

    def _finish(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._last.add(task)
        task.add_done_callback(self._last.discard)

    async def _give_back(self, taking: "asyncio.Task[TakenRequest | None]") -> None:
        with suppress(QueueError):
            if (taken := await taking) is not None:
                await self._settle(taken, None)

    async def _settle(self, taken: TakenRequest, outcome: PlanResult | PerseusError | None) -> None:
        call: Callable[[], None]
        match outcome:
            case None | WorkerDiedError():
                call = partial(self._queue.give_back, taken, was_tried=outcome is not None)
            case PlanResult():
                body, blob = await asyncio.to_thread(text_of_answer, taken.digest, outcome)
                call = partial(self._queue.answer, taken, body, blob)
            case error:
                call = partial(self._queue.fail, taken, str(error))
        with suppress(QueueError):  # its lease lapses, and another worker does the same
            await self._run(call)

    def _heard(self, text: str) -> None:
        is_done = bool(text)
        self._news[is_done].set()
        self._news[is_done] = asyncio.Event()

    async def _run(self, call: Callable[[], _Result]) -> _Result:
        try:
            result = await asyncio.get_running_loop().run_in_executor(self._thread, call)
        except QueueError as error:
            if not self._trouble:
                _log.warning("planning requests are not shared meanwhile: %s", error)
            self._trouble = str(error)
            raise
        if self._trouble:
            _log.warning("planning requests are shared again")
            self._trouble = ""
        return result
