"""Follows a rank through its program, and passes each boundary on to the parts that measure.

boundary --> position --+--> durations, timeline
+--> sweeper: activity of each kind of work, device times
+--> reporter: iterations, work done, the end of the pipeline's part
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from perseus_dist.agent.core.clock_directives import ClockDirectives
from perseus_dist.agent.core.clock_requests import ClockRequests
from perseus_dist.agent.core.pilot import Pilot
from perseus_dist.agent.core.reporter import Reporter
from perseus_dist.agent.core.run_durations import RunDurations
from perseus_dist.agent.core.timeline import Timeline
from perseus_dist.agent.following.position import BoundaryEffect, Position, Stamp
from perseus_dist.agent.following.rank_program import Work
from perseus_dist.agent.following.timed_runs import TimedRuns
from perseus_dist.agent.measuring.held_clock import HeldClock
from perseus_dist.agent.measuring.profiler import OUTSIDE
from perseus_dist.boundaries.record import Event, Mark

if TYPE_CHECKING:
    from perseus_dist.boundaries.reader import TimedBoundary
    from perseus_dist.boundaries.record import Boundary

_MAX_BACKLOG_NS = 1_000_000_000  # between a boundary whose time is exact and its reading: energies are still told apart


class RankTracker:
    """Moves the rank's parts by one boundary after the other.

    Args:
        program: Of the rank.
        position, pilot, directives, clock, requests, reporter: The rank's.
        keeps_timeline: As in ``Settings``.
        is_pipeline: Whether there are other pp_ranks.

    Attributes:
        durations: Of the instructions that ran.
        timeline: Of whole iterations; None where none is kept.
        timed_runs: Of chosen iterations; None without other pp_ranks.
    """

    def __init__(
        self,
        program: Sequence[Work],
        *,
        position: Position,
        pilot: Pilot,
        directives: ClockDirectives,
        clock: HeldClock,
        requests: ClockRequests,
        reporter: Reporter,
        host_clock: str,
        keeps_timeline: bool,
        is_pipeline: bool,
    ) -> None:
        self._program = program
        self._position = position
        self._pilot = pilot
        self._directives = directives
        self._requests = requests
        self._reporter = reporter
        self.durations = RunDurations(
            program, pilot=pilot, clock=clock, drift=reporter.drift, kind_times=reporter.kind_times
        )
        self.timeline = (
            Timeline(program, position=position, directives=directives, clock=clock) if keeps_timeline else None
        )
        self.timed_runs = (
            TimedRuns(
                program,
                position=position,
                row=directives.row,
                is_wanted=directives.is_timed,
                clock_mhz=lambda: clock.observed_mhz or clock.requested_mhz or 0,
                host_clock=host_clock,
            )
            if is_pipeline
            else None
        )
        self._misses_boundaries = False  # since the newest iteration began
        self._outside_since: Stamp | None = None  # the last instruction ended, and the next iteration has not begun

    def follow(self, timed: "TimedBoundary", now_ns: int, looked_ns: int | None) -> BoundaryEffect:
        """Pass one boundary; ``now_ns`` and ``looked_ns`` as in ``AgentCore.on_boundaries``."""
        boundary, time_ns = timed
        if self._misses_boundaries and boundary.event is not Event.TIMING:  # which tells of earlier iterations
            self._see_what_is_missed(boundary)
        effect = self._position.step(boundary, time_ns)
        if self.timeline is not None:
            self.timeline.follow(boundary, effect, time_ns)
        if effect is BoundaryEffect.BEGAN:
            self.durations.move(time_ns)
            return effect
        if self.timed_runs is not None:
            self.timed_runs.follow(boundary, effect)
        if effect is BoundaryEffect.ENDED:
            self._end_run()
            self.durations.move(time_ns)
            return effect
        sweeper, ledger = self._directives.sweeper, self._reporter.ledger
        match boundary.event:
            case Event.ITERATION_BEGIN:
                self._begin_iteration(self._position.since, _late_ns(time_ns, now_ns, looked_ns))
            case Event.ITERATION_END:
                if self._outside_since is not None:
                    self.durations.end_iteration(time_ns - self._outside_since.time_ns)
                followed_mhz = self._requests.followed_mhz(self._position.iteration)
                self._reporter.end_iteration(time_ns, followed_mhz, late_ns=_late_ns(time_ns, now_ns, looked_ns))
            case Event.MARK:
                self._mark(boundary.kind, time_ns)
            case Event.WORK:
                ledger.add_work(boundary.timed_sequence, boundary.device_ns)
            case Event.TIMING:
                sweeper.add_device_time(boundary.timed_sequence, boundary.device_ns, time_ns)
                self.durations.add_device_time(boundary.timed_sequence, boundary.iteration, boundary.device_ns)
        if effect is BoundaryEffect.ITERATION_BEGAN:
            self.durations.move(time_ns)
        return effect

    def miss_boundaries(self, time_ns: int) -> None:
        """Boundaries were dropped."""
        self._misses_boundaries = True
        self.lose_step(time_ns)

    def _see_what_is_missed(self, boundary: "Boundary") -> None:
        """Where the next iteration's begin was dropped, the current one is reported only if its own end was seen."""
        is_begin = boundary.event is Event.ITERATION_BEGIN
        if boundary.iteration != self._position.iteration + is_begin:
            self._reporter.ledger.interrupt()
        self._misses_boundaries = not is_begin

    def lose_step(self, time_ns: int) -> None:
        """Boundaries were dropped or do not fit: the rank is out of step until the next iteration."""
        self._position.lose_step()
        self._reporter.kind_times.spoil()
        self._directives.sweeper.interrupt(time_ns)
        self._outside_since = None

    def _begin_iteration(self, begin: Stamp, late_ns: int) -> None:
        self._requests.is_paused = False
        if self._outside_since is not None:
            self._directives.sweeper.add_activity(OUTSIDE, self._outside_since, begin)
            self._outside_since = None
        row = self._directives.row(begin.iteration)
        self._pilot.begin_iteration(row.clocks_mhz)
        self._reporter.begin_iteration(begin, row, self._requests.followed_mhz(begin.iteration), late_ns=late_ns)
        self._directives.begin_iteration(begin.iteration, begin.time_ns)

    def _end_run(self) -> None:
        run = self._position.last_run
        assert run is not None  # one has just ended
        self.durations.end_run(run, self._directives.row(run.iteration).clocks_mhz)
        work = self._program[run.place]
        self._directives.sweeper.add_activity((work.chunk, work.kind), run.begin, run.end)
        if run.place == len(self._program) - 1:
            self._outside_since = run.end

    def _mark(self, phase: str, time_ns: int) -> None:
        if phase == Mark.GRAD_SYNC:
            self._reporter.ledger.end_pipeline(time_ns)
        elif phase in (Mark.EVAL_BEGIN, Mark.CHECKPOINT):
            self._requests.is_paused = True
            self._reporter.ledger.interrupt()
            self.lose_step(time_ns)
        elif phase == Mark.EVAL_END:
            self._requests.is_paused = False
        elif phase == Mark.RELEASE:
            self._reporter.ledger.interrupt()  # it failed, or has another order: no end of it will come
            self.lose_step(time_ns)


def _late_ns(time_ns: int, now_ns: int, looked_ns: int | None) -> int:
    """How late a boundary was seen, at most: since the look before it, or since its exact time if that is long ago."""
    if looked_ns is not None:
        return now_ns - looked_ns
    return now_ns - time_ns if now_ns - time_ns > _MAX_BACKLOG_NS else 0
