"""One rank's agent in virtual time: its core is that of real runs, every delay is invented.

What a shell does for the core (processes, shared memory, sockets, sleeps) is replaced by calls at the right virtual
moment.
"""

from perseus_dist.agent.core.actions import Action, ReadMeter, RequestClock, Send, WatchEnergy
from perseus_dist.agent.core.core import AgentCore
from perseus_dist.agent.process.startup import parse_target, rank_from_spec, saved_profile_from_spec, settings_from_spec
from perseus_dist.boundaries.rank_spec import RankSpec
from perseus_dist.boundaries.reader import TimedBoundary
from perseus_dist.messages.from_agent import AgentMessage
from perseus_dist.messages.from_planner import PlannerMessage
from perseus_dist.messages.terms import Gpu
from perseus_dist.simulation.virtual.lease import NEVER_NS, VirtualLease
from perseus_dist.simulation.virtual.meter import VirtualMeter
from perseus_dist.simulator.gpu import SimulatedGpu

_SAMPLE_NS = 1_000_000_000


class VirtualAgent:
    """One rank's agent.

    Attributes:
        lease: On its GPU's clock.
    """

    def __init__(self, spec: RankSpec, gpu: SimulatedGpu, *, incarnation: int | None = None) -> None:
        """Begin.

        Args:
            spec: The rank.
            gpu: The rank's.
            incarnation: Different for every agent of a rank; None for its first one's.
        """
        self.lease = VirtualLease(gpu)
        self._refusal = ""
        self._meter = VirtualMeter(gpu)
        self._core = AgentCore(
            rank=rank_from_spec(spec),
            schedule=spec.schedule,
            gpu=Gpu(
                uuid=gpu.uuid,
                name=self._meter.name,
                driver_version=self._meter.driver_version,
                clocks_mhz=self._meter.clocks_mhz,
                control="direct",
                energy_period_s=gpu.preset.timing.energy_period_s,
                memory_mib=self._meter.memory_mib,
                default_power_limit_w=self._meter.default_power_limit_w,
                power_limit_w=self._meter.power_limit_w,
            ),
            incarnation=spec.rank + 1 if incarnation is None else incarnation,
            target=parse_target(spec.target) if spec.target else None,
            saved_profile=saved_profile_from_spec(spec),
            settings=settings_from_spec(spec),
            run_id=spec.run_id,
            workload=spec.workload,
        )
        self._sample_ns = 0
        self._timer_ns = 0  # as ``next_ns`` found it
        self._outgoing: list[AgentMessage] = []

    def connect(self, now_ns: int) -> None:
        """A stream to the planner is open."""
        self._do(self._core.on_connected(now_ns), now_ns)

    def receive(self, message: PlannerMessage, now_ns: int) -> None:
        """The planner says something."""
        self._look_at_counter(now_ns + 1)
        self._do(self._core.on_message(message, now_ns), now_ns)
        self._look_at_counter(now_ns + 1)  # a watch that begins now has a first reading now

    def disconnect(self, now_ns: int) -> None:
        """The stream to the planner is gone."""
        self._look_at_counter(now_ns + 1)
        self._do(self._core.on_disconnected(now_ns), now_ns)

    def end(self, reason: str, now_ns: int) -> None:
        """The trainer has ended."""
        self._look_at_counter(now_ns + 1)
        self._do(self._core.on_trainer_end(reason, now_ns), now_ns)

    def next_ns(self) -> int:
        """When something is due, the device's own doings aside."""
        if self._outgoing:
            self._timer_ns = 0
            return 0
        due_ns, lease_ns, timer_ns = self._sample_ns, self.lease.next_ns, self._core.next_timer_ns()
        if lease_ns < due_ns:
            due_ns = lease_ns
        self._timer_ns = NEVER_NS if timer_ns is None else timer_ns
        return self._timer_ns if self._timer_ns < due_ns else due_ns

    def next_look_ns(self, now_ns: int) -> int | None:
        """When it next looks at its clock or counter, after now, though it need not act; None for not soon."""
        reading_ns, look_ns = self._meter.reading_ns, self.lease.next_look_ns(now_ns)
        if reading_ns is None:
            return look_ns
        reading_ns = max(reading_ns, now_ns + 1)  # one that is due now needs no moment of its own
        return reading_ns if look_ns is None else min(reading_ns, look_ns)

    def run_due(self, passed: list[TimedBoundary], now_ns: int, *, looked_ns: int | None = None) -> list[AgentMessage]:
        """Do whatever is due.

        Args:
            passed: What the device has passed since the last call.
            now_ns: Now.
            looked_ns: The look before, where boundaries were passed some time since; None where their times are exact.

        Returns:
            What is to be sent to the planner.
        """
        reading_ns = self._meter.reading_ns
        if reading_ns is not None and reading_ns < now_ns:
            self._look_at_counter(now_ns)
        if passed:
            self._do(self._core.on_boundaries(passed, now_ns, looked_ns=looked_ns), now_ns)
        if now_ns >= self.lease.next_ns:
            self._poll_lease(now_ns)
        if self._meter.reading_ns is not None:
            self._look_at_counter(now_ns + 1)
        if now_ns >= self._sample_ns:
            self._sample(now_ns)
        # Nothing that has just happened makes the timer due at once.
        timer_ns = self._core.next_timer_ns() if now_ns >= self._timer_ns else None
        if timer_ns is not None and now_ns >= timer_ns:
            self._do(self._core.on_timer(now_ns), now_ns)
        outgoing, self._outgoing = self._outgoing, []
        return outgoing

    def _do(self, actions: list[Action], now_ns: int) -> None:
        # Messages that a reading of the meter makes the core send come after all of this, as behind a meter's thread.
        wants_reading = False
        for action in actions:
            match action:
                case RequestClock():
                    self.lease.request(action.clock_mhz, now_ns)
                case Send():
                    self._outgoing.append(action.message)
                case ReadMeter():
                    wants_reading = True
                case WatchEnergy():
                    self._meter.watch_energy(action.is_on, now_ns)
        if wants_reading:
            self._sample(now_ns)

    def heed_control(self, now_ns: int) -> None:
        """The state of the lease."""
        if self.lease.refusal != self._refusal:
            self._refusal = self.lease.refusal
            self._do(self._core.on_control(self._refusal, now_ns), now_ns)

    def _poll_lease(self, now_ns: int) -> None:
        for report in self.lease.poll(now_ns):
            self._do(self._core.on_clock_report(report, now_ns), now_ns)
            self.lease.set_next(now_ns)
        self.heed_control(now_ns)

    def _look_at_counter(self, until_ns: int) -> None:
        """The readings of the energy counter before then."""
        if self._meter.reading_ns is None or self._meter.reading_ns >= until_ns:
            return
        if found := self._meter.edges(until_ns):  # whatever else happens to the agent comes after all of them
            self._do(self._core.on_energy_edges([edge for _, edge in found], found[-1][0]), found[-1][0])

    def _sample(self, now_ns: int) -> None:
        self._sample_ns = now_ns + _SAMPLE_NS
        self._do(self._core.on_meter(self._meter.sample(now_ns), now_ns), now_ns)
