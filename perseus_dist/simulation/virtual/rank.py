"""One rank's agent in virtual time as a process: born late, stopped, killed, and its stream to the planner."""

from dataclasses import replace
from typing import Protocol

from perseus_dist.boundaries.rank_spec import RankSpec
from perseus_dist.boundaries.reader import TimedBoundary
from perseus_dist.messages.from_agent import AgentMessage, Attach, IterationReport, Telemetry
from perseus_dist.messages.from_planner import Attached, PlannerMessage, Refused
from perseus_dist.planner.lifecycle.events import JobEvent, RankAttached, RankDetached, RankMessage
from perseus_dist.simulation.virtual.agent import VirtualAgent
from perseus_dist.simulation.virtual.held_revisions import HeldRevisions
from perseus_dist.simulation.virtual.lease import LEASE_NS
from perseus_dist.simulation.virtual.link import VirtualLink
from perseus_dist.simulator.gpu import SimulatedGpu


class NewAgent(Protocol):
    """Makes agents; ``VirtualAgent`` does."""

    def __call__(self, spec: RankSpec, gpu: SimulatedGpu, *, incarnation: int) -> VirtualAgent:
        """One."""


class VirtualRank:
    """One rank's agent process and link.

    Attributes:
        agent: None while there is none.
        link: Its stream.
        reports: The iterations that were reported to the planner, and arrived.
        went_back: A sentence for each revision that an agent held and then held a lower one.
    """

    def __init__(self, spec: RankSpec, gpu: SimulatedGpu, link: VirtualLink, new_agent: NewAgent) -> None:
        self.link = link
        self.reports: list[IterationReport] = []
        self.went_back: list[str] = []
        self._held = HeldRevisions(spec.rank, self.went_back)
        self._unleased_ns = 0  # since when nothing has held the lease, while nothing does
        self._spec = spec
        self._gpu = gpu
        self._new_agent = new_agent
        self._stopped_ns: int | None = None
        self._has_lease = True  # while it is stopped
        self._attached_stream: int | None = None  # the newest that has begun with an ``Attach``
        self._backlog: list[TimedBoundary] = []  # passed while it was stopped
        self.agent: VirtualAgent | None = None

    def begin_run(self, run_id: str) -> None:
        """The rank's trainer is started: agents that follow it belong to this run."""
        self._spec = replace(self._spec, run_id=run_id)

    def start_agent(self, now_ns: int, incarnation: int, *, is_planner_there: bool = True) -> None:
        """An agent that knows nothing; it sees what is passed from now on."""
        if self.agent is None:
            self.agent = self._new_agent(self._spec, self._gpu, incarnation=incarnation)
            self._held = HeldRevisions(self._spec.rank, self.went_back)
            if self.link.begin(now_ns, is_planner_there=is_planner_there):
                self.agent.connect(now_ns)

    def kill_agent(self, now_ns: int) -> None:
        """Its process is gone: the end of the connection unlocks the clock, and the planner sees its stream end."""
        if self.agent is not None:
            self.agent.lease.close()
            self.link.break_now(now_ns, agent_dies=True)
            self._unleased_ns = now_ns
        self.agent, self._stopped_ns = None, None
        self._backlog.clear()

    def stop_agent(self, now_ns: int) -> None:
        """Its process is stopped; its lease ends when it has not been heard of for long enough."""
        if self.agent is not None and self._stopped_ns is None:
            self._stopped_ns, self._has_lease = now_ns, True
            self.link.stop_agent(now_ns)

    def continue_agent(self, now_ns: int) -> None:
        """The agent goes on, and finds all boundaries that were passed meanwhile."""
        if self.agent is None or self._stopped_ns is None:
            return
        looked_ns, self._stopped_ns = self._stopped_ns, None
        self.link.continue_agent(now_ns)
        if not self._has_lease:
            self.agent.lease.lose(now_ns, "the lease has run out: the agent was silent for too long")
        backlog, self._backlog = [passed._replace(time_ns=now_ns) for passed in self._backlog], []
        self._send(backlog, now_ns, looked_ns=looked_ns)
        self.agent.heed_control(now_ns)

    def leave(self, reason: str, now_ns: int) -> list[JobEvent]:
        """The rank's trainer has ended, and its agent says so and ends too; what the planner learns."""
        if self.agent is None:
            return []
        self.end_training(reason, now_ns)
        if self._stopped_ns is None:
            self._send([], now_ns)
        events = self._arrive(now_ns)
        self.kill_agent(now_ns)
        return events + self._arrive(now_ns)

    def end_training(self, reason: str, now_ns: int) -> None:
        """The rank's trainer has ended, and its agent does."""
        if self.agent is not None and self._stopped_ns is None:
            self.agent.end(reason, now_ns)

    def unleased_s(self, now_ns: int) -> float:
        """[s] for how long nothing has held the lease on the GPU's clock; 0 while its agent does."""
        holds = self.agent is not None and (self._stopped_ns is None or self._has_lease)
        return 0.0 if holds else (now_ns - self._unleased_ns) / 1e9

    @property
    def is_lease_stopped(self) -> bool:
        """Whether the holder of the lease is stopped, so that the clock stays what it is."""
        return self.agent is not None and self.agent.lease.is_holder_stopped

    def next_ns(self) -> int:
        """When ``run_due`` has something to do."""
        due_ns = self.link.next_ns
        if self.agent is None:
            return due_ns
        if self._stopped_ns is not None:
            return min(due_ns, self._stopped_ns + LEASE_NS) if self._has_lease else due_ns
        agent_ns = self.agent.next_ns()
        return agent_ns if agent_ns < due_ns else due_ns

    def next_look_ns(self, now_ns: int) -> int | None:
        """As of the agent's."""
        return None if self.agent is None or self._stopped_ns is not None else self.agent.next_look_ns(now_ns)

    def run_due(self, passed: list[TimedBoundary], now_ns: int) -> list[JobEvent]:
        """Do whatever is due; what the planner learns.

        Args:
            passed: What the device has passed since the last call.
            now_ns: Now.
        """
        agent, link = self.agent, self.link
        events = self._arrive(now_ns) if link.next_ns <= now_ns else []
        if agent is None:
            return events
        if self._stopped_ns is not None:
            self._backlog += passed
            if self._has_lease and now_ns >= self._stopped_ns + LEASE_NS:
                self._has_lease, self._unleased_ns = False, now_ns
                agent.lease.close()
            return events
        for message in agent.run_due(passed, now_ns):
            self._send_one(message, now_ns)
        return events + self._arrive(now_ns) if link.next_ns <= now_ns else events

    def hear(self, stream: int, message: PlannerMessage, now_ns: int) -> list[JobEvent]:
        """The planner says something on a stream; what it learns at once in turn."""
        self.link.say(stream, message, now_ns)
        return self._arrive(now_ns) if self.link.next_ns <= now_ns else []

    def _send(self, passed: list[TimedBoundary], now_ns: int, *, looked_ns: int | None = None) -> None:
        assert self.agent is not None
        for message in self.agent.run_due(passed, now_ns, looked_ns=looked_ns):
            self._send_one(message, now_ns)

    def _send_one(self, message: AgentMessage, now_ns: int) -> None:
        self._held.hear(message)
        self.link.send(message, now_ns)

    def _arrive(self, now_ns: int) -> list[JobEvent]:
        arrived, agent = self.link.arrived(now_ns), self.agent
        if agent is not None:
            if arrived.disconnected:
                agent.disconnect(now_ns)
            if arrived.connected:
                agent.connect(now_ns)
            for said in arrived.to_agent:
                agent.receive(said, now_ns)
                if isinstance(said, Attached):
                    self.link.accept()
                elif isinstance(said, Refused):
                    self.link.break_now(now_ns, opens_again=said.retry)
        events: list[JobEvent] = [RankDetached(stream=stream) for stream in arrived.detached]
        for stream, message in arrived.to_planner:
            if isinstance(message, Attach) and stream != self._attached_stream:  # once a stream; again it says nothing
                self._attached_stream = stream
                events.append(RankAttached(stream=stream, attach=message))
                continue
            if isinstance(message, Telemetry):
                self.reports += message.iterations
            events.append(RankMessage(stream=stream, message=message))
        return events
