"""The agent without its input and output: every event comes with its time, every answer is a list of actions.

    boundaries --> rank tracker: position, durations, timeline --+--> clock requests --> RequestClock
    planner --> planner exchange --> directives: row, sweeper ---+
    clock reports, meter --> held clock --> sweeper, drift --> planner exchange --> Send(ProfileSamples, Drift)
    device times --> durations --> pilot, drift, kind times --> ledger
    meter --> throttle reporter --> Send(Telemetry), ReadMeter
    energy edges --> sweeper, ledger --> KeepReports, Send(Telemetry)
    boundaries, device times --> timeline --> KeepTimeline

To drive it: call the ``on_`` methods in the order of their times, carry out the actions in their order, and call
``on_timer`` when ``next_timer_ns`` is over (it may move with every call). Before ``on_connected`` and after
``on_disconnected`` nothing is sent. It never raises on what planner, trainer or GPU do.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from perseus_dist.agent.core.actions import (
    Action,
    KeepReports,
    KeepTimeline,
    LogDebug,
    LogWarning,
    ReadMeter,
    WatchEnergy,
)
from perseus_dist.agent.core.clock_directives import ClockDirectives
from perseus_dist.agent.core.clock_requests import ClockRequests
from perseus_dist.agent.core.energy_points import EnergyPoints
from perseus_dist.agent.core.pilot import Pilot
from perseus_dist.agent.core.planner_exchange import PlannerExchange
from perseus_dist.agent.core.planner_session import PlannerSession
from perseus_dist.agent.core.rank_tracker import RankTracker
from perseus_dist.agent.core.reporter import Reporter
from perseus_dist.agent.core.run_durations import Awaited, Running
from perseus_dist.agent.core.settings import SavedProfile, Settings
from perseus_dist.agent.following.position import BoundaryEffect, Position
from perseus_dist.agent.following.rank_program import WHOLE_ITERATION, rank_order
from perseus_dist.agent.measuring.counter import Edge
from perseus_dist.agent.measuring.held_clock import HeldClock
from perseus_dist.boundaries.record import Event
from perseus_dist.fingerprint import UNKNOWN_WORKLOAD, Workload
from perseus_dist.messages.finding import Finding
from perseus_dist.messages.from_agent import Attach
from perseus_dist.messages.from_planner import PlannerMessage
from perseus_dist.messages.terms import Gpu, Rank, Target
from perseus_dist.planning.schedule.granularity import Granularity

if TYPE_CHECKING:
    from perseus_dist.boundaries.reader import TimedBoundary
    from perseus_dist.device.control import ClockReport
    from perseus_dist.device.nvml.meter import MeterSample

_MIN_READING_GAP_NS = 5_000_000
_WITHIN_ITERATION = (BoundaryEffect.BEGAN, BoundaryEffect.ENDED)


class AgentCore:
    """One rank.

    Args:
        rank: As in ``Attach``.
        schedule: The whole pipeline's text.
        gpu: As in ``Attach``; ``clocks_mhz`` empty where no clock can be set.
        incarnation: Random, new for every start.
        target: The job's target, if this rank was given one.
        saved_profile: On rank 0, if there is one.
        settings: Otherwise the usual ones.
        run_id: As in ``RankSpec``.
        workload: As in ``RankSpec``.
        findings: As in ``Attach``.

    Raises:
        ScheduleError: The schedule has no line for this pp_rank, or not in the grammar.
    """

    def __init__(
        self,
        *,
        rank: Rank,
        schedule: str,
        gpu: Gpu,
        incarnation: int,
        target: Target | None = None,
        saved_profile: SavedProfile | None = None,
        settings: Settings | None = None,
        run_id: str = "",
        workload: Workload = UNKNOWN_WORKLOAD,
        findings: tuple[Finding, ...] = (),
    ) -> None:
        self._gpu = gpu
        settings = settings or Settings()
        self._lease_ns = round(settings.lease_s * 1e9)
        self._period_ns = round(gpu.energy_period_s * 1e9)
        sees_instructions = rank.granularity == Granularity.INSTRUCTION
        program = rank_order(schedule, rank.pp_rank) if sees_instructions else (WHOLE_ITERATION,)
        self._position = Position(program)
        pilot = Pilot(program)
        self._directives = ClockDirectives(rank=rank, gpu=gpu, num_instructions=len(program))
        self._sweeper = self._directives.sweeper
        self._clock = HeldClock()
        self._reporter = Reporter(program, self._clock, settings.drift_tolerance)
        self._requests = ClockRequests(
            gpu, position=self._position, pilot=pilot, directives=self._directives, clock=self._clock
        )
        self._tracker = RankTracker(
            program,
            position=self._position,
            pilot=pilot,
            directives=self._directives,
            clock=self._clock,
            requests=self._requests,
            reporter=self._reporter,
            host_clock=settings.host_clock,
            keeps_timeline=settings.keeps_timeline and sees_instructions,
            is_pipeline=rank.pp_size > 1 and sees_instructions,
        )
        attach = Attach(
            rank=rank,
            gpu=gpu,
            incarnation=incarnation,
            target=target,
            version=settings.version,
            has_profile=saved_profile is not None,
            run_id=run_id,
            workload=workload,
            host=settings.host,
            findings=findings,
            follows_moments=settings.follows_moments and not sees_instructions,
        )
        self._planner = PlannerExchange(
            PlannerSession(attach, saved_profile),
            schedule=schedule,
            control=gpu.control,
            holds_without_planner=settings.holds_without_planner,
            position=self._position,
            directives=self._directives,
            clock=self._clock,
            requests=self._requests,
            reporter=self._reporter,
        )
        self._energy_points = EnergyPoints(self._reporter.ledger, self._period_ns)
        self._actions: list[Action] = []
        self._is_watching = False
        self._last_boundary_ns = 0

    @property
    def is_over(self) -> bool:
        """The trainer has ended, by its own word or by ``on_trainer_end``: no clock is requested any more."""
        return self._requests.is_over

    # ---- what the trainer does --------------------------------------------------------------------------------------

    def on_boundaries(
        self, boundaries: "Sequence[TimedBoundary]", now_ns: int, *, looked_ns: int | None = None
    ) -> list[Action]:
        """Boundaries that were passed, in order. However many come at once, at most one clock is asked for.

        Args:
            boundaries: With the times of their passing.
            now_ns: Now.
            looked_ns: The look before, which did not see them, where their times are those of a look; None where they
                are exact.
        """
        self._requests.is_stale = True
        self._tracker.durations.look(now_ns, looked_ns)
        for timed in boundaries:
            self._pass_boundary(timed, now_ns, looked_ns)
        if boundaries:
            self._last_boundary_ns = now_ns
            self._requests.is_stalled = False
        return self._finish(now_ns)

    def on_lost_boundaries(self, count: int, now_ns: int) -> list[Action]:
        """Boundaries were dropped: mark the rank out of sync until the next iteration."""
        self._reporter.num_lost_boundaries += count
        self._requests.is_stale = True
        self._tracker.miss_boundaries(now_ns)
        return self._finish(now_ns)

    def on_trainer_end(self, reason: str, now_ns: int) -> list[Action]:
        """The trainer has ended, without saying so; the last actions."""
        self._requests.is_stale = True
        self._end(reason, now_ns)
        return self._finish(now_ns)

    # ---- what the GPU does ------------------------------------------------------------------------------------------

    def on_clock_report(self, report: "ClockReport", now_ns: int) -> list[Action]:
        """The result of a clock request."""
        self._clock.report(report)
        self._requests.settle()
        return self._finish(now_ns)

    def on_control(self, refusal: str, now_ns: int) -> list[Action]:
        """Why no clock can be set now; empty while it can. Call it at each change."""
        if refusal != self._requests.refusal:
            self._actions.append(LogWarning(f"clock control lost: {refusal}" if refusal else "clock control is back"))
            self._reporter.kind_times.spoil()
        self._requests.refusal = refusal
        return self._finish(now_ns)

    def on_meter(self, sample: "MeterSample", now_ns: int, *, trouble: str = "") -> list[Action]:
        """A whole reading: once a second, and after ``ReadMeter``."""
        self._reporter.latest = sample
        # Causes of a meter's failure, such as a driver's reload, may have taken the clock; one that failed is not set.
        can_read_again = bool(self._reporter.meter_trouble) and not trouble
        self._requests.must_repeat |= can_read_again or self._clock.has_failed
        self._reporter.meter_trouble = trouble
        self._energy_points.add_sample(sample, is_watched=self._is_watching)
        if not self._gpu.clocks_mhz:
            self._sweeper.see(sample)
        doubtful_since_ns = self._clock.reading(sample)
        if doubtful_since_ns is not None:
            self._sweeper.unsettle(doubtful_since_ns)
        self._requests.settle()
        if self._reporter.gpu.record(sample, now_ns) and not self.is_over:
            self._actions += self._planner.tell_telemetry()
        return self._finish(now_ns)

    def on_energy_edges(self, edges: Sequence[Edge], now_ns: int) -> list[Action]:
        """Edges of the energy counter, from ``counter.EdgeTracker`` while ``WatchEnergy`` is on."""
        for edge in edges:
            self._sweeper.add_edge(edge)
            self._energy_points.add_edge(edge)
        return self._watch_energy(now_ns)

    # ---- what the planner does --------------------------------------------------------------------------------------

    def on_connected(self, now_ns: int) -> list[Action]:
        """A stream is open; the first action to send is the ``Attach``."""
        self._actions += self._planner.connect()
        return self._finish(now_ns)

    def on_disconnected(self, now_ns: int) -> list[Action]:
        """The stream is gone, as in ``PlannerExchange.disconnect``."""
        self._requests.is_stale = True
        self._planner.disconnect()
        return self._finish(now_ns)

    def on_message(self, message: PlannerMessage, now_ns: int) -> list[Action]:
        """The planner says something."""
        self._requests.is_stale = True
        self._actions += self._planner.apply(message)
        return self._finish(now_ns)

    # ---- time -------------------------------------------------------------------------------------------------------

    def next_timer_ns(self) -> int | None:
        """When ``on_timer`` is due; None for never."""
        if self.is_over:
            return None
        next_ns = self._reporter.due_ns
        if self._clock.requested_mhz is not None and (stall_ns := self._stall_ns) < next_ns:
            next_ns = stall_ns
        if (change_ns := self._requests.due_ns) is not None and change_ns < next_ns:
            next_ns = change_ns
        measure_ns, read_ns = self._sweeper.due_ns, self._reporter.gpu.due_ns
        if measure_ns is not None and measure_ns < next_ns:
            next_ns = measure_ns
        return next_ns if read_ns is None or next_ns < read_ns else read_ns

    def on_timer(self, now_ns: int) -> list[Action]:
        """Whatever is due. May compute for some milliseconds, so do what other events ask for first."""
        if self._clock.requested_mhz is not None and now_ns >= self._stall_ns and not self._requests.is_stalled:
            self._requests.is_stalled = self._requests.is_stale = True
            self._reporter.kind_times.spoil()
            self._actions.append(LogDebug("no boundary for a while: clocks released until the next one"))
        if self._reporter.gpu.is_due(now_ns):
            self._actions.append(ReadMeter())
        self._measure(now_ns)
        if now_ns >= self._reporter.due_ns:
            self._report(now_ns)
        return self._finish(now_ns)

    def running(self) -> Running | None:
        """The instruction that runs; None if none does, or its length is not known."""
        return self._tracker.durations.running(self._position)

    def awaited(self) -> Awaited | None:
        """The instruction, or the iteration's end, that the rank waits for; None if its times are not known."""
        return self._tracker.durations.awaited(self._position)

    def is_change_due(self, *, is_device_ordered: bool) -> bool:
        """Whether boundaries must be seen at once, as in ``ClockRequests``."""
        return self._requests.is_change_due(is_device_ordered=is_device_ordered)

    # ---- inside -----------------------------------------------------------------------------------------------------

    @property
    def _stall_ns(self) -> int:
        return self._last_boundary_ns + self._lease_ns + self._tracker.durations.longest_silence_ns

    def _pass_boundary(self, timed: "TimedBoundary", now_ns: int, looked_ns: int | None) -> None:
        effect = self._tracker.follow(timed, now_ns, looked_ns)
        if effect in _WITHIN_ITERATION:  # almost always
            return
        event, time_ns = timed.boundary.event, timed.time_ns
        if event is Event.ITERATION_BEGIN:
            self._begin_iteration(time_ns)
        elif event is Event.ITERATION_END:
            self._actions += self._planner.tell_drift()
            if self._position.in_step:
                self._actions += self._directives.end_iteration(self._position.iteration, time_ns)
        elif event is Event.CLOSE:
            self._end("finished", time_ns)
        if self._clock.is_unanswered(time_ns):
            self._reporter.kind_times.spoil()
        if effect is BoundaryEffect.OUT_OF_STEP:
            if self._position.num_mismatched == 1:
                self._actions.append(LogWarning(f"out of step: {self._position.mismatch}"))
            self._tracker.lose_step(time_ns)

    def _begin_iteration(self, time_ns: int) -> None:
        self._actions += self._planner.warn_of_absence()
        self._energy_points.begin_iteration(time_ns)
        # An iteration's energy needs a reading at each end of it; one that was just taken would say the same.
        gap_ns = max(self._period_ns // 4, _MIN_READING_GAP_NS)
        if self._reporter.latest is None or time_ns > self._reporter.latest.time_after_ns + gap_ns:
            self._actions.append(ReadMeter())

    def _end(self, reason: str, now_ns: int) -> None:
        if self.is_over:
            return
        self._requests.is_over = True
        self._energy_points.give_up()
        self._reporter.ledger.interrupt()
        self._report(now_ns, is_last=True)
        self._actions += [*self._planner.tell_end(reason), LogDebug(f"trainer ended: {reason}")]

    def _measure(self, now_ns: int) -> None:
        measured = self._sweeper.measure(now_ns, self._clock)
        # Where no clock can be held, and the GPU did not run at it by itself, there are no samples to send.
        if measured is not None and (measured.samples or self._gpu.clocks_mhz):
            self._actions += self._planner.tell_samples(measured)

    def _finish(self, now_ns: int) -> list[Action]:
        """The actions so far, the clock first: nothing is as urgent."""
        actions, self._actions = self._actions, []
        request = self._requests.next(now_ns)
        if request is not None:
            actions.insert(0, request)
        return actions + self._watch_energy(now_ns)

    def _watch_energy(self, now_ns: int) -> list[Action]:
        """Begin or end to watch the energy counter closely."""
        is_wanted = self._sweeper.wants_edges(self._position.iteration) or self._energy_points.wants_edges(now_ns)
        wants_edges = self._period_ns > 0 and not self.is_over and is_wanted
        if wants_edges == self._is_watching:
            return []
        self._is_watching = wants_edges
        return [WatchEnergy(wants_edges)]

    def _report(self, now_ns: int, *, is_last: bool = False) -> None:
        """Iterations to the report; and everything to the planner."""
        reports = self._reporter.collect(now_ns, is_last=is_last)
        if reports:
            self._actions.append(KeepReports(reports))
        timeline = self._tracker.timeline
        if timeline is not None and (iterations := timeline.take(now_ns, is_last=is_last)):
            self._actions.append(KeepTimeline(iterations, self._clock.latency_s))
        self._actions += self._planner.tell_telemetry()
        runs = self._tracker.timed_runs
        if runs is not None and (times := runs.take(has_device_times=self._reporter.kind_times.has_device_times)):
            self._actions += self._planner.tell_run_times(times)
