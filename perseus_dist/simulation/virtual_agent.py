"""One rank's agent in virtual time: its core is that of real runs, every delay is invented.

What a shell does for the core (processes, shared memory, sockets, sleeps) is replaced by calls at the right virtual
moment.
"""

from perseus_dist.agent.actions import Action, ReadMeter, RequestClock, Send, WatchEnergy
from perseus_dist.agent.core import AgentCore
from perseus_dist.agent.startup import parse_target, rank_from_spec, saved_profile_from_spec, settings_from_spec
from perseus_dist.boundaries.rank_spec import RankSpec
from perseus_dist.boundaries.reader import TimedBoundary
from perseus_dist.device.control import ClockReport
from perseus_dist.messages import AgentMessage, Gpu, PlannerMessage
from perseus_dist.simulation.virtual_meter import VirtualMeter
from perseus_dist.simulator.gpu import SimulatedGpu

_SAMPLE_NS = 1_000_000_000
_REPORT_NS = 1_000_000  # how often a lease daemon looks whether the clock is there


class VirtualAgent:
    """A rank's."""

    def __init__(self, spec: RankSpec, gpu: SimulatedGpu) -> None:
        self._gpu = gpu
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
            ),
            incarnation=spec.rank + 1,
            target=parse_target(spec.target) if spec.target else None,
            saved_profile=saved_profile_from_spec(spec),
            settings=settings_from_spec(spec),
        )
        self._sample_ns = 0
        self._setting: tuple[int | None, int] | None = None  # (clock, asked at) of the call that is under way
        self._wanted: tuple[int | None, int] | None = None  # what is asked for after it; the latest wins
        self._report_ns: int | None = None
        self._outgoing: list[AgentMessage] = []

    def connect(self, now_ns: int) -> None:
        """A stream to the planner is open."""
        self._do(self._core.on_connected(now_ns), now_ns)

    def receive(self, message: PlannerMessage, now_ns: int) -> None:
        """The planner says something."""
        self._look_at_counter(now_ns + 1)
        self._do(self._core.on_message(message, now_ns), now_ns)

    def end(self, now_ns: int) -> None:
        """The trainer has ended."""
        self._look_at_counter(now_ns + 1)
        self._do(self._core.on_trainer_end("finished", now_ns), now_ns)

    def next_ns(self) -> int:
        """When something is due, the device's own doings aside."""
        if self._outgoing:
            return 0
        due_ns, report_ns, timer_ns = self._sample_ns, self._report_ns, self._core.next_timer_ns()
        if report_ns is not None and report_ns < due_ns:
            due_ns = report_ns
        return timer_ns if timer_ns is not None and timer_ns < due_ns else due_ns

    def next_look_ns(self, now_ns: int) -> int | None:
        """When it next looks at its clock or counter, after now, though it need not act; None for not soon."""
        looks_ns = [] if self._meter.reading_ns is None else [max(self._meter.reading_ns, now_ns)]
        if self._report_ns is not None:
            looks_ns.append(self._report_ns - (self._report_ns - now_ns - 1) // _REPORT_NS * _REPORT_NS)
        return min(looks_ns, default=None)

    def run_due(self, passed: list[TimedBoundary], now_ns: int) -> list[AgentMessage]:
        """Do whatever is due.

        Args:
            passed: What the device has passed since the last call.
            now_ns: Now.

        Returns:
            What is to be sent to the planner.
        """
        self._look_at_counter(now_ns)
        if passed:
            self._do(self._core.on_boundaries(passed, now_ns), now_ns)
        if self._report_ns is not None and now_ns >= self._report_ns:
            self._look_at_clock(now_ns)
        self._look_at_counter(now_ns + 1)
        if now_ns >= self._sample_ns:
            self._sample(now_ns)
        timer_ns = self._core.next_timer_ns()
        if timer_ns is not None and now_ns >= timer_ns:
            self._do(self._core.on_timer(now_ns), now_ns)
        outgoing, self._outgoing = self._outgoing, []
        return outgoing

    def _do(self, actions: list[Action], now_ns: int) -> None:
        for action in actions:
            match action:
                case RequestClock():
                    self._wanted = (action.clock_mhz, now_ns)
                    self._set_wanted(now_ns)
                case Send():
                    self._outgoing.append(action.message)
                case ReadMeter():
                    self._sample(now_ns)
                case WatchEnergy():
                    self._meter.watch_energy(action.is_on, now_ns)

    def _set_wanted(self, now_ns: int) -> None:
        """One call at a time; the simulated GPU reckons with its latency."""
        if self._setting is None and self._wanted is not None:
            self._setting, self._wanted = self._wanted, None
            self._gpu.request_clock(self._setting[0])
            self._expect_clock(now_ns)

    def _expect_clock(self, now_ns: int) -> None:
        """The lease daemon looks every millisecond; what it sees before the clock is there changes nothing."""
        pending_ns = max(self._gpu.read().pending_at_ns - now_ns, 1)
        self._report_ns = now_ns + -(-pending_ns // _REPORT_NS) * _REPORT_NS

    def _look_at_clock(self, now_ns: int) -> None:
        state = self._gpu.read()
        if state.pending_at_ns or self._setting is None:
            self._expect_clock(now_ns)
            return
        (clock_mhz, asked_ns), self._setting, self._report_ns = self._setting, None, None
        report = ClockReport(
            requested_mhz=clock_mhz,
            observed_mhz=state.clock_mhz,
            event_reasons=state.event_reasons,
            request_ns=asked_ns,
            set_ns=now_ns,
            reached_ns=now_ns if clock_mhz == state.clock_mhz else None,
            error="",
        )
        self._do(self._core.on_clock_report(report, now_ns), now_ns)
        self._set_wanted(now_ns)

    def _look_at_counter(self, until_ns: int) -> None:
        """The readings of the energy counter before then."""
        if self._meter.reading_ns is None or self._meter.reading_ns >= until_ns:
            return
        for found_ns, edge in self._meter.edges(until_ns):
            self._do(self._core.on_energy_edges([edge], found_ns), found_ns)

    def _sample(self, now_ns: int) -> None:
        self._sample_ns = now_ns + _SAMPLE_NS
        self._do(self._core.on_meter(self._meter.sample(now_ns), now_ns), now_ns)
