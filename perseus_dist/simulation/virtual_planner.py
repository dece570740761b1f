"""The planner's life cycle in virtual time: one job, messages at once, planning in this process."""

import logging
from collections import OrderedDict, deque
from dataclasses import replace

from perseus_dist.errors import PerseusError
from perseus_dist.messages import AgentMessage, Attach, PlannerMessage
from perseus_dist.planner import lifecycle
from perseus_dist.planner.frontier_build import PlannedRequest, planned_request, result_of
from perseus_dist.planner.job_policy import Policy
from perseus_dist.planner.lifecycle_events import (
    JobEvent,
    Log,
    PlanFailed,
    PlanReady,
    RankAttached,
    RankMessage,
    Refuse,
    Send,
    SendTable,
    StartPlanning,
    Tick,
)
from perseus_dist.planner.plan_request import PlanningRequest
from perseus_dist.rpc.codec import decode_planner_message, encode_planner_message

_TICK_NS = 1_000_000_000
_PLANNING_NS = 3_000_000_000

_log = logging.getLogger(__name__)


_NUM_KEPT = 64

_planned_requests: "OrderedDict[tuple[PlanningRequest, bool], PlannedRequest]" = OrderedDict()
"""By what was asked for: the same job in this process, as with another history, plans the same."""


def _planned_request(request: PlanningRequest, *, quick: bool) -> PlannedRequest:
    asked = (replace(request, request_id=0, job_id="", revision=0, base_revision=0), quick)
    planned = _planned_requests.pop(asked, None) or planned_request(request, quick=quick)
    _planned_requests[asked] = planned
    while len(_planned_requests) > _NUM_KEPT:
        _planned_requests.popitem(last=False)
    return planned


def _planned(request: PlanningRequest, *, quick: bool) -> PlanReady | PlanFailed:
    try:
        planned = _planned_request(request, quick=quick)
        return PlanReady(result=result_of(request, planned, encode=encode_planner_message))
    except PerseusError as error:
        return PlanFailed(request_id=request.request_id, reason=str(error))


class VirtualPlanner:
    """Drives one job. A rank's number is the name of its stream."""

    def __init__(self, job_id: str, policy: Policy, *, quick_plans: bool = False) -> None:
        self.job = lifecycle.new_job(job_id, policy)
        self._events: deque[JobEvent] = deque()
        self._plans: list[tuple[int, PlanReady | PlanFailed]] = []
        self._tick_ns = 0
        self._quick_plans = quick_plans

    def receive(self, rank: int, message: AgentMessage) -> None:
        """A rank says something; what it means comes with the next ``run_due``."""
        if isinstance(message, Attach):
            self._events.append(RankAttached(stream=rank, attach=message))
        else:
            self._events.append(RankMessage(stream=rank, message=message))

    def tell(self, event: JobEvent) -> None:
        """An operator, or the invented world, says something; what it means comes with the next ``run_due``."""
        self._events.append(event)

    @property
    def next_ns(self) -> int:
        """When something is due; 0 for now."""
        if self._events:
            return 0
        return min(self._tick_ns, *(due_ns for due_ns, _ in self._plans)) if self._plans else self._tick_ns

    def run_due(self, now_ns: int) -> list[tuple[int, PlannerMessage]]:
        """Do whatever is due; what is to be said to which rank, in order."""
        if now_ns >= self._tick_ns:
            self._tick_ns = now_ns + _TICK_NS
            self._events.append(Tick())
        self._events.extend(event for due_ns, event in self._plans if now_ns >= due_ns)
        self._plans = [(due_ns, event) for due_ns, event in self._plans if now_ns < due_ns]
        said: list[tuple[int, PlannerMessage]] = []
        while self._events:
            for effect in lifecycle.step(self.job, self._events.popleft(), now_ns / 1e9):
                match effect:
                    case Send():
                        said.append((effect.stream, effect.message))
                    case SendTable():
                        said.append((effect.stream, decode_planner_message(effect.encoded)))
                    case Refuse():
                        said.append((effect.stream, effect.refused))
                    case StartPlanning():
                        self._plans.append((now_ns + _PLANNING_NS, _planned(effect.request, quick=self._quick_plans)))
                    case Log():
                        _log.info("%8.3f s  %s", now_ns / 1e9, effect.sentence)
        return said
