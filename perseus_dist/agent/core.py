"""The agent without its input and output: every event comes with its time, every answer is a list of actions.

    boundaries ------> position --> pilot ----+
    planner: table,           |               +--> RequestClock
      switch, sweep --> orders: row, sweeper -+
    clock reports, meter --> held clock --> sweeper, drift --> dialogue --> Send(ProfileSamples, Drift)
    device times ----> pace --> pilot, drift, kind times --> ledger
    meter --> GPU news --> Send(Telemetry), ReadMeter
    energy edges ----------------------------> sweeper, ledger --> KeepReports, Send(Telemetry)
    boundaries, device times ----------------> timeline --> KeepTimeline

To drive it: call the ``on_`` methods in the order of their times, carry out the actions in their order, and call
``on_timer`` when ``next_timer_ns`` is over (it may move with every call). Before ``on_connected`` and after
``on_disconnected`` nothing is sent. It never raises on what planner, trainer or GPU do.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from perseus_dist.agent.actions import (
    Action,
    KeepReports,
    KeepTimeline,
    LeavePlanner,
    ReadMeter,
    RequestClock,
    Say,
    Warn,
    WatchEnergy,
)
from perseus_dist.agent.counter import Edge
from perseus_dist.agent.dialogue import Dialogue
from perseus_dist.agent.held_clock import HeldClock
from perseus_dist.agent.order import rank_order
from perseus_dist.agent.orders import Orders
from perseus_dist.agent.pace import Pace
from perseus_dist.agent.pilot import Pilot
from perseus_dist.agent.position import Happened, Position, Stamp
from perseus_dist.agent.profiler import OUTSIDE
from perseus_dist.agent.reporter import Reporter, drift_sentence
from perseus_dist.agent.settings import SavedProfile, Settings
from perseus_dist.agent.timeline import Timeline
from perseus_dist.boundaries.record import Event, Mark
from perseus_dist.fingerprint import UNKNOWN_WORKLOAD, Workload
from perseus_dist.messages import (
    NO_POINT,
    Attach,
    Attached,
    Goodbye,
    Gpu,
    PlannerMessage,
    PlanTable,
    Probe,
    ProfileAck,
    Rank,
    Refused,
    Release,
    ScheduleText,
    ScheduleWanted,
    StopSweep,
    Sweep,
    Switch,
    Target,
)

if TYPE_CHECKING:
    from perseus_dist.boundaries.reader import TimedBoundary
    from perseus_dist.device.control import ClockReport
    from perseus_dist.device.meter import MeterSample

_MIN_READING_GAP_NS = 5_000_000
_TROUBLED_ITERATIONS = 3  # in a row out of step, before it is told
_MAX_BACKLOG_NS = 1_000_000_000  # between a boundary whose time is exact and its reading: energies are still told apart


class AgentCore:
    """One rank.

    Args:
        rank: As the planner is told.
        schedule: The whole pipeline's text.
        gpu: As the planner is told; ``clocks_mhz`` empty where no clock can be set.
        incarnation: Random, new for every start.
        target: What the job wants, if this rank was told.
        saved_profile: On rank 0, if there is one.
        settings: Otherwise the usual ones.
        run_id: As in ``RankSpec``.
        workload: As in ``RankSpec``.

    Attributes:
        is_over: The trainer has ended, by its own word or by ``on_trainer_end``; nothing is asked for any more.

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
    ) -> None:
        self._schedule = schedule
        self._gpu = gpu
        self._settings = settings or Settings()
        self._lease_ns = round(self._settings.lease_s * 1e9)
        self._period_ns = round(gpu.energy_period_s * 1e9)
        self._order = rank_order(schedule, rank.pp_rank)
        self._position = Position(self._order)
        self._pilot = Pilot(self._order)
        self._orders = Orders(rank=rank, gpu=gpu, num_instructions=len(self._order))
        self._sweeper = self._orders.sweeper
        self._clock = HeldClock()
        self._reporter = Reporter(self._order, self._clock, self._settings.drift_tolerance)
        self._pace = Pace(
            self._order,
            pilot=self._pilot,
            clock=self._clock,
            drift=self._reporter.drift,
            kind_times=self._reporter.kind_times,
        )
        self._timeline = (
            Timeline(self._order, position=self._position, orders=self._orders, clock=self._clock)
            if self._settings.keeps_timeline
            else None
        )
        attach = Attach(
            rank=rank,
            gpu=gpu,
            incarnation=incarnation,
            target=target,
            version=self._settings.version,
            has_profile=saved_profile is not None,
            run_id=run_id,
            workload=workload,
        )
        self._dialogue = Dialogue(attach, saved_profile)
        self.is_over = False
        self._actions: list[Action] = []
        self._is_stalled = self._is_evaluating = self._is_watching = False
        self._last_boundary_ns = 0
        self._late_ns = 0  # how late the boundary that is being passed was seen, at most
        self._outside_since: Stamp | None = None  # the last instruction ended, and the next iteration has not begun
        self._refusal = gpu.refusal
        self._meter_trouble = ""
        self._asks_again = False  # a clock that is asked for already
        self._misses_planner = False  # it is gone, and no iteration has begun since
        self._may_want_another = False  # something has happened that the clock to ask for hangs on

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
        self._may_want_another = True
        self._pace.look(now_ns, looked_ns)
        for timed in boundaries:
            self._late_ns = _late_ns(timed.time_ns, now_ns, looked_ns)
            self._pass_boundary(timed)
        if boundaries:
            self._last_boundary_ns = now_ns
            self._is_stalled = False
        return self._finish(now_ns)

    def on_lost_boundaries(self, count: int, now_ns: int) -> list[Action]:
        """Boundaries that nobody read in time; what comes next belongs to nothing known."""
        self._reporter.num_lost_boundaries += count
        self._may_want_another = True
        self._leave_step(now_ns)
        return self._finish(now_ns)

    def on_trainer_end(self, reason: str, now_ns: int) -> list[Action]:
        """The trainer has ended, without saying so; the last actions."""
        self._may_want_another = True
        self._end(reason, now_ns)
        return self._finish(now_ns)

    # ---- what the GPU does ------------------------------------------------------------------------------------------

    def on_clock_report(self, report: "ClockReport", now_ns: int) -> list[Action]:
        """What became of a request."""
        self._clock.report(report)
        self._settle()
        return self._finish(now_ns)

    def on_control(self, refusal: str, now_ns: int) -> list[Action]:
        """Why no clock can be set now; empty while it can. To be told when it changes."""
        if refusal != self._refusal:
            self._actions.append(Warn(f"clock control lost: {refusal}" if refusal else "clock control is back"))
            self._reporter.kind_times.spoil()
        self._refusal = refusal
        return self._finish(now_ns)

    def on_meter(self, sample: "MeterSample", now_ns: int, *, trouble: str = "") -> list[Action]:
        """A whole reading: once a second, and after ``ReadMeter``."""
        self._reporter.latest = sample
        # What kept the meter from reading, as a driver's reload does, may have taken the clock.
        self._asks_again |= bool(self._meter_trouble) and not trouble
        self._meter_trouble = trouble
        if sample.energy_mj is not None and not self._is_watching:
            # The counter was published up to a period ago; half of one on average.
            middle_ns = (sample.time_before_ns + sample.time_after_ns) // 2
            self._reporter.ledger.add_energy(middle_ns - self._period_ns // 2, sample.energy_mj)
        if not self._gpu.clocks_mhz:
            self._sweeper.see(sample)
        doubtful_since_ns = self._clock.reading(sample)
        if doubtful_since_ns is not None:
            self._sweeper.unsettle(doubtful_since_ns)
        self._settle()
        if self._reporter.gpu.take(sample, now_ns) and not self.is_over:
            self._tell_planner()
        return self._finish(now_ns)

    def on_energy_edges(self, edges: Sequence[Edge], now_ns: int) -> list[Action]:  # noqa: ARG002 - as all events have it
        """What ``counter.EdgeTracker`` found, while ``WatchEnergy`` is on; nothing is to be done about it."""
        for edge in edges:
            self._sweeper.add_edge(edge)
            if edge.width_ns <= self._period_ns // 4:
                self._reporter.ledger.add_energy(edge.time_ns, edge.energy_mj)
        return []

    # ---- what the planner does --------------------------------------------------------------------------------------

    def on_connected(self, now_ns: int) -> list[Action]:
        """A stream is open; the first action to send is the ``Attach``."""
        self._actions += self._dialogue.connect(
            iteration=self._position.iteration, table_revision=self._orders.plan.table_revision
        )
        return self._finish(now_ns)

    def on_disconnected(self, now_ns: int) -> list[Action]:
        """The stream is gone; plan, sweep and clocks go on as last agreed, or are released (``Settings``).

        Released clocks are worth a warning only once training goes on: an embedded planner ends with its job, and the
        last ranks may still have something to write then.
        """
        self._may_want_another = True
        if self._dialogue.is_attached and not self._settings.holds_without_planner:
            self._orders.release()
            self._misses_planner = not self.is_over
        self._dialogue.disconnect()
        return self._finish(now_ns)

    def on_message(self, message: PlannerMessage, now_ns: int) -> list[Action]:
        """The planner says something."""
        self._may_want_another = True
        match message:
            case Attached():
                self._misses_planner = False
                self._actions += self._dialogue.attached(message, self._reporter.unresolved)
            case ScheduleWanted():
                self._actions += self._dialogue.say(ScheduleText(text=self._schedule))
            case Sweep() | StopSweep() | Probe() | PlanTable() | Switch():
                table = self._orders.plan.newest_table
                self._actions += self._orders.take(message, self._position.iteration)
                newest = self._orders.plan.newest_table
                if newest is not None and newest != table:  # after a break, the same one may be told again
                    self._reporter.expect(newest.expected)
            case ProfileAck():
                self._dialogue.acknowledge(message.sequence)
            case Release():
                self._orders.release()
                self._actions.append(Warn(f"clocks released: {message.reason}"))
            case Refused():
                self._orders.release()
                self._actions += self._dialogue.refused(message)
                if not message.retry:
                    self._actions.append(LeavePlanner())
        return self._finish(now_ns)

    # ---- time -------------------------------------------------------------------------------------------------------

    def next_timer_ns(self) -> int | None:
        """When ``on_timer`` is due; None for never."""
        if self.is_over:
            return None
        next_ns = self._reporter.due_ns
        if self._clock.requested_mhz is not None and (stall_ns := self._stall_ns) < next_ns:
            next_ns = stall_ns
        measure_ns, read_ns = self._sweeper.due_ns, self._reporter.gpu.due_ns
        if measure_ns is not None and measure_ns < next_ns:
            next_ns = measure_ns
        return next_ns if read_ns is None or next_ns < read_ns else read_ns

    def on_timer(self, now_ns: int) -> list[Action]:
        """Whatever is due. May compute for some milliseconds, so do what other events ask for first."""
        if self._clock.requested_mhz is not None and now_ns >= self._stall_ns and not self._is_stalled:
            self._is_stalled = self._may_want_another = True
            self._reporter.kind_times.spoil()
            self._actions.append(Say("no boundary for a while: clocks released until the next one"))
        if self._reporter.gpu.is_due(now_ns):
            self._actions.append(ReadMeter())
        self._measure(now_ns)
        if now_ns >= self._reporter.due_ns:
            self._report(now_ns)
        return self._finish(now_ns)

    def expected_end_ns(self) -> int | None:
        """When the instruction that runs may end at the earliest; None if none runs, or its length is not known."""
        return self._pace.expected_end_ns(self._position)

    # ---- inside -----------------------------------------------------------------------------------------------------

    @property
    def _stall_ns(self) -> int:
        return self._last_boundary_ns + self._lease_ns + self._pace.longest_run_ns

    def _pass_boundary(self, timed: "TimedBoundary") -> None:
        boundary, time_ns = timed
        happened = self._position.step(boundary, time_ns)
        if self._timeline is not None:
            self._timeline.follow(boundary, happened, time_ns)
        if happened is Happened.BEGAN or happened is Happened.ENDED:  # almost always
            if happened is Happened.ENDED:
                self._end_run()
            self._pace.move(time_ns)
            return
        match boundary.event:
            case Event.ITERATION_BEGIN:
                self._begin_iteration(self._position.since)
            case Event.ITERATION_END:
                followed_mhz = self._followed_mhz(self._position.iteration)
                self._reporter.end_iteration(time_ns, followed_mhz, late_ns=self._late_ns)
                self._tell_drift()
            case Event.MARK:
                self._mark(boundary.kind, time_ns)
            case Event.CLOSE:
                self._end("finished", time_ns)
            case Event.WORK:
                self._reporter.ledger.add_work(boundary.timed_sequence, boundary.device_ns)
            case Event.TIMING:
                self._sweeper.add_device_time(boundary.timed_sequence, boundary.device_ns, time_ns)
                self._pace.add_device_time(boundary.timed_sequence, boundary.iteration, boundary.device_ns)
        if happened is Happened.ITERATION_BEGAN:
            self._pace.move(time_ns)
        if self._clock.is_unanswered(time_ns):
            self._reporter.kind_times.spoil()
        if happened is Happened.OUT_OF_STEP:
            if self._position.num_mismatched == 1:
                self._actions.append(Warn(f"out of step: {self._position.mismatch}"))
            self._leave_step(time_ns)

    def _begin_iteration(self, begin: Stamp) -> None:
        time_ns, iteration = begin.time_ns, begin.iteration
        self._is_evaluating = False
        if self._misses_planner:
            self._misses_planner = False
            self._actions.append(Warn("the job's planner is gone: clocks released until it is back"))
        if self._outside_since is not None:
            self._sweeper.add_activity(OUTSIDE, self._outside_since, begin)
            self._outside_since = None
        row = self._orders.row(iteration)
        self._pilot.begin_iteration(row.clocks_mhz)
        self._reporter.begin_iteration(begin, row, self._followed_mhz(iteration), late_ns=self._late_ns)
        self._orders.begin_iteration(iteration, time_ns)
        # An iteration's energy needs a reading at each end of it; one that was just taken would say the same.
        gap_ns = max(self._period_ns // 4, _MIN_READING_GAP_NS)
        if self._reporter.latest is None or time_ns > self._reporter.latest.time_after_ns + gap_ns:
            self._actions.append(ReadMeter())

    def _mark(self, phase: str, time_ns: int) -> None:
        if phase == Mark.GRAD_SYNC:
            self._reporter.ledger.end_pipeline(time_ns)
        elif phase == Mark.EVAL_BEGIN:
            self._is_evaluating = True
            self._reporter.ledger.interrupt()
            self._leave_step(time_ns)
        elif phase == Mark.EVAL_END:
            self._is_evaluating = False
        elif phase == Mark.RELEASE:
            self._leave_step(time_ns)

    def _end_run(self) -> None:
        run = self._position.last_run
        assert run is not None  # one has just ended
        self._pace.end_run(run, self._orders.row(run.iteration).clocks_mhz)
        work = self._order[run.place]
        self._sweeper.add_activity((work.chunk, work.kind), run.begin, run.end)
        if run.place == len(self._order) - 1:
            self._outside_since = run.end

    def _tell_drift(self) -> None:
        for drift in self._reporter.drifts():
            self._actions += [Say(drift_sentence(drift)), *self._dialogue.say(drift)]

    def _end(self, reason: str, now_ns: int) -> None:
        if self.is_over:
            return
        self.is_over = True
        self._reporter.ledger.interrupt()
        self._report(now_ns, is_last=True)
        self._actions += [*self._dialogue.say(Goodbye(reason=reason)), Say(f"trainer ended: {reason}")]

    def _leave_step(self, time_ns: int) -> None:
        self._position.lose_step()
        self._reporter.kind_times.spoil()
        self._sweeper.interrupt(time_ns)
        self._outside_since = None

    def _measure(self, now_ns: int) -> None:
        measured = self._sweeper.measure(now_ns, self._clock.latency_s)
        # Where nobody can hold a clock, and the GPU did not run at it by itself, there is nothing to tell.
        if measured is not None and (measured.samples or self._gpu.clocks_mhz):
            self._actions += self._dialogue.put(measured)

    def _followed_mhz(self, iteration: int) -> tuple[int, ...] | None:
        """The clocks of the plan that the iteration follows; None where it follows none."""
        row = self._orders.row(iteration)
        return row.clocks_mhz if row.point != NO_POINT and self._gpu.clocks_mhz and not self._refusal else None

    def _wanted_mhz(self) -> int | None:
        """What to ask for now. Whoever cannot set clocks asks for nothing, and holds nothing either."""
        is_silent = self.is_over or self._is_stalled or self._is_evaluating
        if is_silent or not self._gpu.clocks_mhz or not self._position.in_step:
            return None
        iteration = self._position.iteration
        row, next_row = self._orders.row(iteration), self._orders.row(iteration + 1)
        if row.clocks_mhz is None and next_row.clocks_mhz is None:
            return None
        return self._pilot.wanted_mhz(
            self._position,
            clocks_mhz=row.clocks_mhz,
            next_clocks_mhz=next_row.clocks_mhz,
            current_mhz=self._clock.requested_mhz,
            latency_ns=row.latency_ns,
        )

    def _settle(self) -> None:
        if self._clock.settled_ns is not None and self._clock.requested_mhz is not None:
            self._sweeper.settle(self._clock.requested_mhz, self._clock.settled_ns)

    def _finish(self, now_ns: int) -> list[Action]:
        """The actions so far, the clock first: nothing is as urgent."""
        actions, self._actions = self._actions, []
        if self._may_want_another or self._asks_again:
            self._may_want_another = False
            wanted_mhz = self._wanted_mhz()
            if wanted_mhz != self._clock.requested_mhz or self._asks_again:
                self._asks_again = False
                self._clock.request(wanted_mhz, now_ns)
                self._sweeper.unsettle(now_ns)
                actions.insert(0, RequestClock(wanted_mhz))
        wants_edges = self._period_ns > 0 and not self.is_over and self._sweeper.wants_edges(self._position.iteration)
        if wants_edges != self._is_watching:
            self._is_watching = wants_edges
            actions.append(WatchEnergy(wants_edges))
        return actions

    def _report(self, now_ns: int, *, is_last: bool = False) -> None:
        """Iterations to the report; and everything to the planner."""
        reports = self._reporter.collect(now_ns, is_last=is_last)
        if reports:
            self._actions.append(KeepReports(reports))
        if self._timeline is not None and (timeline := self._timeline.take(now_ns, is_last=is_last)):
            self._actions.append(KeepTimeline(timeline, self._clock.latency_s))
        self._tell_planner()

    def _tell_planner(self) -> None:
        """Everything that is known by now, once it listens."""
        if self._dialogue.is_connected:
            control = "observe" if self._refusal else self._gpu.control
            telemetry = self._reporter.telemetry(
                iteration=self._position.iteration, control=control, trouble=self._trouble()
            )
            self._actions += self._dialogue.say(telemetry)

    def _trouble(self) -> str:
        """What is wrong, the nearest cause first."""
        is_astray = self._position.num_mismatched >= _TROUBLED_ITERATIONS
        causes = (
            self._refusal,
            f"the schedule does not fit: {self._position.mismatch}" if is_astray else "",
            self._orders.plan.trouble,
            self._clock.trouble,
            self._meter_trouble,
            self._sweeper.trouble,
        )
        return next(filter(None, causes), "")


def _late_ns(time_ns: int, now_ns: int, looked_ns: int | None) -> int:
    """How late a boundary was seen, at most: since the look before it, or since its exact time if that is long ago."""
    if looked_ns is not None:
        return now_ns - looked_ns
    return now_ns - time_ns if now_ns - time_ns > _MAX_BACKLOG_NS else 0
