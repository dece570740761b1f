"""One rank in virtual time: trainer, simulated GPU and agent in this process, every delay invented.

The trainer's code and the agent's core are those of real runs; what a shell does for them (processes, shared memory,
sockets, sleeps) is replaced by calls at the right virtual moment.
"""

from dataclasses import replace

from perseus_dist.agent.actions import Action, ReadMeter, RequestClock, Send, WatchEnergy
from perseus_dist.agent.core import AgentCore
from perseus_dist.agent.counter import EdgeTracker
from perseus_dist.agent.startup import parse_target, rank_from_spec, saved_profile_from_spec, settings_from_spec
from perseus_dist.device.control import ClockReport
from perseus_dist.device.meter import GpuMeter
from perseus_dist.messages import AgentMessage, Gpu, PlannerMessage
from perseus_dist.simulation.device_hook import DeviceHook
from perseus_dist.simulation.trainer import Trainer
from perseus_dist.simulation.trainer_config import TrainerConfig
from perseus_dist.simulator.gpu import SimulatedGpu

_SAMPLE_NS = 1_000_000_000
_REPORT_NS = 1_000_000  # how often a lease daemon looks whether the clock is there


class VirtualRank:
    """A rank of a job; ``NVML`` in this process must be the simulated machine's."""

    def __init__(self, config: TrainerConfig, gpu: SimulatedGpu) -> None:
        spec = config.spec
        self._gpu = gpu
        self._hook = DeviceHook(gpu.stream)
        self._trainer = Trainer(config, gpu.stream, self._hook)
        self._meter = GpuMeter(gpu.uuid)
        self._period_ns = round(gpu.preset.timing.energy_period_s * 1e9)
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
        self._tracker: EdgeTracker | None = None
        self._reading_ns: int | None = None
        self._sample_ns = 0
        self._setting: tuple[int | None, int] | None = None  # (clock, asked at) of the call that is under way
        self._wanted: tuple[int | None, int] | None = None  # what is asked for after it; the latest wins
        self._report_ns: int | None = None
        self._outgoing: list[AgentMessage] = []

    def connect(self, now_ns: int) -> None:
        """A stream to the planner is open."""
        self._do(self._core.on_connected(now_ns), now_ns)

    def slow_down(self, slowness: float) -> None:
        """What is launched from now on takes so many times the usual, and nothing says why; 1 ends it."""
        self._trainer.slowness = slowness

    def enqueue_iteration(self, iteration: int) -> None:
        """The trainer launches an iteration."""
        self._trainer.enqueue_iteration(iteration)

    @property
    def is_training(self) -> bool:
        """Whether the device is still at what was launched."""
        return self._hook.is_waiting

    def receive(self, message: PlannerMessage, now_ns: int) -> None:
        """The planner says something."""
        self._do(self._core.on_message(message, now_ns), now_ns)

    def end(self, now_ns: int) -> None:
        """The trainer has ended."""
        self._do(self._core.on_trainer_end("finished", now_ns), now_ns)

    def next_ns(self) -> int:
        """When something is due, the device's own doings aside."""
        due = (self._core.next_timer_ns(), self._reading_ns, self._report_ns, self._sample_ns)
        return min(time_ns for time_ns in due if time_ns is not None)

    def run_due(self, now_ns: int) -> list[AgentMessage]:
        """Do whatever is due; what is to be sent to the planner."""
        passed = self._hook.passed()
        if passed:
            self._do(self._core.on_boundaries(passed, now_ns), now_ns)
        if self._report_ns is not None and now_ns >= self._report_ns:
            self._look_at_clock(now_ns)
        if self._reading_ns is not None and now_ns >= self._reading_ns:
            self._read_counter(now_ns)
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
                    self._tracker = EdgeTracker(self._period_ns) if action.is_on else None
                    self._reading_ns = now_ns if action.is_on else None

    def _set_wanted(self, now_ns: int) -> None:
        """One call at a time; the simulated GPU reckons with its latency."""
        if self._setting is None and self._wanted is not None:
            self._setting, self._wanted = self._wanted, None
            self._gpu.request_clock(self._setting[0])
            self._report_ns = now_ns + _REPORT_NS

    def _look_at_clock(self, now_ns: int) -> None:
        state = self._gpu.state()
        if state.is_pending or self._setting is None:
            self._report_ns = now_ns + _REPORT_NS
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

    def _read_counter(self, now_ns: int) -> None:
        energy_mj, tracker = self._meter.energy_mj(), self._tracker
        if tracker is None or energy_mj is None:
            self._reading_ns = None
            return
        edge = tracker.add(now_ns, energy_mj, now_ns)
        self._reading_ns = tracker.next_reading_ns(now_ns)
        if edge is not None:
            self._do(self._core.on_energy_edges([edge], now_ns), now_ns)

    def _sample(self, now_ns: int) -> None:
        self._sample_ns = now_ns + _SAMPLE_NS
        sample = replace(self._meter.sample(), time_before_ns=now_ns, time_after_ns=now_ns)
        self._do(self._core.on_meter(sample, now_ns, trouble=self._meter.trouble), now_ns)
