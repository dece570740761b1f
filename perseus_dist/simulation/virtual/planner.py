"""The planner's life cycle in virtual time: one job, messages at once, planning in this process."""

import logging
from collections import OrderedDict, deque

from perseus_dist.errors import PerseusError
from perseus_dist.messages.from_planner import PlannerMessage
from perseus_dist.planner.job.facts.plans import TableAhead
from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.planner.lifecycle import lifecycle
from perseus_dist.planner.lifecycle.events import (
    Answer,
    CancelPlanning,
    Effect,
    Forget,
    JobEvent,
    Log,
    Persist,
    PlanFailed,
    PlanReady,
    Refuse,
    Send,
    SendTable,
    StartPlanning,
    Tick,
    without_acknowledgement,
)
from perseus_dist.planner.worker.frontier_build import PlannedRequest, planned_request, result_of
from perseus_dist.planner.worker.made_ahead import answer_made_ahead
from perseus_dist.planner.worker.plan_request import PlanningRequest
from perseus_dist.rpc.codec import decode_planner_message, encode_planner_message
from perseus_dist.simulation.virtual.acknowledged import AcknowledgedFacts
from perseus_dist.simulation.virtual.lease import NEVER_NS
from perseus_dist.simulation.virtual.store import VirtualStore

USUAL_PLANNING_S = 3.0
"""[s] between asking for a plan and its answer."""

_TICK_NS = 1_000_000_000
_REFINING_NS = 60_000_000_000  # of the whole frontier behind a first plan

_log = logging.getLogger(__name__)


_NUM_KEPT = 64

_planned_requests: "OrderedDict[tuple[PlanningRequest, bool], PlannedRequest]" = OrderedDict()
"""By what was asked for: the same job in this process, as with another history, plans the same."""


def _planned_request(request: PlanningRequest, *, quick: bool) -> PlannedRequest:
    asked = (request.content, quick)
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
    """Drives one job of a planner's process.

    Attributes:
        job: As the planner has it; after a kill, as it had it.
        store: What is durable.
        is_alive: Whether its process is there.
        is_running: Whether its process is there and not stopped.
        answers: To what operators have told it, in order.
        unheeded: Orders of operators that it refused, or did not hear of before it was killed.
        acknowledged: What agents and operators may rely on.
    """

    def __init__(
        self, job_id: str, policy: Policy, *, quick_plans: bool = False, planning_s: float = USUAL_PLANNING_S
    ) -> None:
        self.job = lifecycle.new_job(job_id, policy)
        self.store = VirtualStore()
        self.is_running = True
        self.answers: list[Answer] = []
        self.unheeded: list[JobEvent] = []
        self.acknowledged = AcknowledgedFacts()
        self._lost: set[str] = set()
        self.is_alive = True
        self._quick_plans = quick_plans
        self._planning_ns = round(planning_s * 1e9)
        self._events: deque[JobEvent] = deque()
        self._plans: dict[int, tuple[int, PlanReady | PlanFailed]] = {}  # by request: when it is made, and what
        self._tick_ns = 0

    def tell(self, event: JobEvent) -> None:
        """A rank, an operator, or the invented world says something; what it means comes with the next ``run_due``.

        It is lost while the planner is dead.
        """
        if self.is_alive:
            self._events.append(event)

    @property
    def next_ns(self) -> int:
        """When something is due; 0 for now."""
        if not self.is_running:
            return NEVER_NS
        if self._events:
            return 0
        next_ns = self._tick_ns
        for due_ns, _ in self._plans.values():
            next_ns = min(next_ns, due_ns)
        retry_ns = self.store.retry_ns
        return next_ns if retry_ns is None else min(next_ns, retry_ns)

    def kill(self) -> None:
        """The process is gone, with all that is not durable."""
        self.is_running = self.is_alive = False
        self.unheeded += self._events
        self._events.clear()
        self._plans.clear()
        self.store.crash()

    def restart(self) -> None:
        """A new process takes up what is durable."""
        if self.is_alive:
            return
        self.job = self._restored()
        known = self.acknowledged.known_to(self.job)
        self._lost |= {f"{name} (as the planner started again)" for name in self.acknowledged.names - known}
        self.is_running = self.is_alive = True

    def facts_acknowledged(self) -> tuple[frozenset[str], frozenset[str]]:
        """Names of what was acknowledged, and those of them that a planner which starts now would know.

        What a planner that was started again did not know counts once as acknowledged and not known.
        """
        lost, self._lost = frozenset(self._lost), set()
        return self.acknowledged.names | lost, self.acknowledged.known_to(self._restored())

    def _restored(self) -> lifecycle.Job:
        facts, job_id, policy = self.store.facts(), self.job.job_id, self.job.policy
        return lifecycle.restore(job_id, facts, policy) if facts else lifecycle.new_job(job_id, policy)

    def stop(self) -> None:
        """The process is stopped."""
        self.is_running = False

    def resume(self) -> None:
        """The planner goes on."""
        self.is_running = self.is_alive

    def run_due(self, now_ns: int) -> list[tuple[int, PlannerMessage]]:
        """Do whatever is due; what is to be said on which stream, in order."""
        if now_ns >= self._tick_ns:
            self._tick_ns = now_ns + _TICK_NS
            self._events.append(Tick())
        if self.store.retry_ns is not None and now_ns >= self.store.retry_ns:
            self.store.make_up(now_ns)
        for request_id in [number for number, (due_ns, _) in self._plans.items() if now_ns >= due_ns]:
            self._events.append(self._plans.pop(request_id)[1])
        said: list[tuple[int, PlannerMessage]] = []
        while self._events:
            event = self._events.popleft()
            self.acknowledged.hear(event, self.job)
            effects = lifecycle.step(self.job, event, now_ns / 1e9)
            if any(isinstance(effect, Answer) and not effect.accepted for effect in effects):
                self.unheeded.append(event)
            if effects:
                self._do(event, effects, now_ns, said)
                self.acknowledged.show(self.job, self.store.unwritten_keys)
        return said

    def _say(self, stream: int, message: PlannerMessage, said: list[tuple[int, PlannerMessage]]) -> None:
        said.append((stream, message))
        rank = self.job.members.rank_of_stream.get(stream)
        if rank is not None:
            dp_rank = self.job.members.ranks[rank].rank.dp_rank
            self.acknowledged.say(stream, message, dp_rank, self.store.unwritten_keys)

    def _do(self, event: JobEvent, effects: list[Effect], now_ns: int, said: list[tuple[int, PlannerMessage]]) -> None:
        for position, effect in enumerate(effects):
            match effect:
                case Send():
                    self._say(effect.stream, effect.message, said)
                case SendTable():
                    self._say(effect.stream, decode_planner_message(effect.encoded), said)
                case Refuse():
                    said.append((effect.stream, effect.refused))
                case Persist():
                    self.acknowledged.replace(effect)
                    if not self.store.commit(effect, now_ns):
                        self._do(event, without_acknowledgement(effects[position:], "the disk is full"), now_ns, said)
                        return
                case StartPlanning(request=request, made=TableAhead() as made):
                    self._plans[request.request_id] = (now_ns, PlanReady(result=answer_made_ahead(request, made)))
                case StartPlanning(request=request):
                    planned = _planned(request, quick=self._quick_plans)
                    takes_ns = _REFINING_NS if self.job.is_refining else self._planning_ns
                    self._plans[request.request_id] = (now_ns + takes_ns, planned)
                case CancelPlanning():
                    self._plans.pop(effect.request_id, None)
                case Answer():
                    self.answers.append(effect)
                    if effect.accepted:
                        self.acknowledged.answer(event)
                case Forget():
                    self._plans.clear()
                    self.store.forget()
                    self.acknowledged.clear()
                    self.job = lifecycle.new_job(self.job.job_id, self.job.policy)
                case Log():
                    _log.info("%8.3f s  %s", now_ns / 1e9, effect.sentence)
