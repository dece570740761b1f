"""Planning that goes on for a while when its job is given up: most jobs come back at once, and ask for the same.

A replica that cannot renew its leases for two seconds gives its jobs up, and takes them again when its database
answers. Without this, planning that takes longer than its database stays quick would never come to an end.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from perseus_dist.planner.worker.made_ahead import answer_made_ahead
from perseus_dist.planner.worker.plan_request import PlanningRequest, PlanResult

KEPT_S = 30.0
"""How long planning goes on for a job that does not come back."""

_log = logging.getLogger(__name__)

Expect = Callable[[float], None]


class KeptPlanning:
    """Requests that are being planned. Belongs to one event loop.

    Args:
        plan: Plans a request, and tells now and then how long [s] that will still take; cancelled, it stops.
    """

    def __init__(self, plan: Callable[[PlanningRequest, Expect], Awaitable[PlanResult]]) -> None:
        self._plan = plan
        self._under_way: set[_UnderWay] = set()

    def keep(self, job_id: str) -> None:
        """The job is given up: its requests, which are cancelled next, go on in case it comes back."""
        for one in self._under_way:
            if one.request.job_id == job_id and one.dropping is None and not one.request.is_ahead:
                one.dropping = asyncio.get_running_loop().call_later(KEPT_S, self._drop, one)

    def has(self, job_id: str) -> bool:
        """Whether planning is kept for a job."""
        return bool(self._kept_for(job_id))

    async def plan(self, request: PlanningRequest, expect: Expect | None = None) -> PlanResult:
        """Plan a request, or go on with the same one, which was kept."""
        one = self._resume(request)
        if one is None:
            one = _UnderWay(request, self._plan)
            self._under_way.add(one)
        one.expect = expect
        try:
            result = await asyncio.shield(one.planning)
        except asyncio.CancelledError:
            if one.dropping is None:
                self._drop(one)
                await asyncio.gather(one.planning, return_exceptions=True)
            raise
        except BaseException:
            self._drop(one)
            raise
        self._drop(one)
        return result if one.request == request else await asyncio.to_thread(_renumbered, request, result)

    async def close(self) -> None:
        """Give up what is kept."""
        left = [one.planning for one in self._under_way]
        for one in list(self._under_way):
            self._drop(one)
        await asyncio.gather(*left, return_exceptions=True)

    def _kept_for(self, job_id: str) -> "list[_UnderWay]":
        return [one for one in self._under_way if one.dropping is not None and one.request.job_id == job_id]

    def _resume(self, request: PlanningRequest) -> "_UnderWay | None":
        """Go on with planning that was kept and has the same answer; end what the job would wait for in vain."""
        kept = self._kept_for(request.job_id)
        for one in kept:
            if one.dropping is not None and one.request.content == request.content:
                one.dropping.cancel()
                one.dropping = None
                _log.info("job %s: has come back; its planning, which was kept, goes on", request.job_id)
                return one
        for one in kept:
            if one.request.is_urgent == request.is_urgent:
                self._drop(one)
        return None

    def _drop(self, one: "_UnderWay") -> None:
        if one.dropping is not None:
            one.dropping.cancel()
        one.planning.cancel()
        self._under_way.discard(one)


class _UnderWay:
    """A request that is being planned.

    Attributes:
        expect: Of who waits for it.
        dropping: When it is given up; None while somebody waits for it.
    """

    __slots__ = ("dropping", "expect", "planning", "request")

    def __init__(
        self, request: PlanningRequest, plan: Callable[[PlanningRequest, Expect], Awaitable[PlanResult]]
    ) -> None:
        self.request = request
        self.expect: Expect | None = None
        self.dropping: asyncio.TimerHandle | None = None
        self.planning = asyncio.ensure_future(plan(request, self._tell))
        self.planning.add_done_callback(lambda done: done.cancelled() or done.exception())  # if all have left: seen

    def _tell(self, left_s: float) -> None:
        if self.expect is not None and self.dropping is None:
            self.expect(left_s)


def _renumbered(request: PlanningRequest, result: PlanResult) -> PlanResult:
    return answer_made_ahead(request, result.made_ahead(request.digest))
