"""Which clock to request now: none where this rank may set none, or where nothing is known of what it runs."""

from perseus_dist.agent.core.actions import RequestClock
from perseus_dist.agent.core.clock_directives import ClockDirectives
from perseus_dist.agent.core.pilot import Pilot
from perseus_dist.agent.following.moments import clock_now
from perseus_dist.agent.following.position import Position, ProgramPoint
from perseus_dist.agent.measuring.held_clock import HeldClock
from perseus_dist.messages.terms import NO_POINT, Gpu


class ClockRequests:
    """Requests a clock where the wanted one has changed.

    Args:
        gpu: Its ``clocks_mhz`` are empty where no clock can be set.
        position, pilot, directives, clock: The rank's.

    Attributes:
        refusal: Why no clock can be set now; empty while it can.
        is_stalled: No boundary has come for a while: clocks are released until the next one.
        is_paused: The trainer evaluates or saves its state: clocks are released until it trains again.
        is_over: The trainer has ended.
        is_stale: The wanted clock may have changed.
        must_repeat: The clock is to be requested again, the same one or not.
        due_ns: When the clock changes by time next; None while none does.
    """

    def __init__(
        self, gpu: Gpu, *, position: Position, pilot: Pilot, directives: ClockDirectives, clock: HeldClock
    ) -> None:
        self._has_clocks = bool(gpu.clocks_mhz)
        self._full_mhz = (max(gpu.clocks_mhz, default=0),) * directives.num_instructions
        self._position = position
        self._pilot = pilot
        self._directives = directives
        self._clock = clock
        self.refusal = gpu.refusal
        self.is_stalled = self.is_paused = self.is_over = False
        self.is_stale = self.must_repeat = False
        self.due_ns: int | None = None

    def next(self, now_ns: int) -> RequestClock | None:
        """The request to make; None where the clock stays as it is."""
        is_due = self.due_ns is not None and now_ns >= self.due_ns
        if not (self.is_stale or self.must_repeat or is_due):
            return None
        self.is_stale = False
        self.due_ns = None
        wanted_mhz = self._wanted_mhz(self._position, now_ns)
        if wanted_mhz == self._clock.requested_mhz and not self.must_repeat:
            return None
        self.must_repeat = False
        self._clock.request(wanted_mhz, now_ns)
        self._directives.sweeper.unsettle(now_ns)
        return RequestClock(wanted_mhz)

    def is_change_due(self, *, is_device_ordered: bool) -> bool:
        """Whether another clock may be requested at the end of the instruction that runs or comes next.

        Also where the times of its boundaries count although they are only those of looks: without a plan, in an
        iteration whose times the planner wants, at an iteration's end, and until the clock requested last is there.

        Args:
            is_device_ordered: Whether boundaries have the time at which they are seen, instead of the trainer's own.
        """
        position, clock = self._position, self._clock
        iteration, next_index = position.iteration, position.index + 1
        if not position.in_iteration or next_index >= self._directives.num_instructions:
            return True
        if not (self._may_set_clocks or is_device_ordered):
            return False
        if clock.settled_ns is None:
            return True
        if self._directives.row(iteration).point == NO_POINT or self._directives.is_timed(iteration):
            return True
        return self._wanted_mhz(ProgramPoint(index=next_index), position.since.time_ns) != clock.requested_mhz

    def settle(self) -> None:
        """The GPU may have reached its clock: from then on a sweep measures."""
        if self._clock.settled_ns is not None and self._clock.requested_mhz is not None:
            self._directives.sweeper.settle(self._clock.requested_mhz, self._clock.settled_ns)

    def followed_mhz(self, iteration: int) -> tuple[int, ...] | None:
        """The clocks that an iteration follows, of its plan or of a probe; None where it follows none."""
        if not self._may_set_clocks:
            return None
        if self._directives.is_at_full_clocks(iteration):
            return self._full_mhz
        row = self._directives.row(iteration)
        return row.clocks_mhz if row.point != NO_POINT else None

    @property
    def _may_set_clocks(self) -> bool:
        return self._has_clocks and not self.refusal

    def _wanted_mhz(self, position: Position | ProgramPoint, now_ns: int) -> int | None:
        """None for released. A rank that cannot set clocks requests none, and holds none either."""
        is_silent = self.is_over or self.is_stalled or self.is_paused
        if is_silent or not self._has_clocks or not self._position.in_step:
            return None
        iteration = self._position.iteration
        row, next_row = self._directives.row(iteration), self._directives.row(iteration + 1)
        if row.clocks_mhz is None and next_row.clocks_mhz is None:
            return None
        if row.changes and row.clocks_mhz is not None and self._position.in_iteration and self._position.index == 0:
            begin_ns = self._position.since.time_ns
            clock_mhz, next_ns = clock_now(row.clocks_mhz[0], row.changes, now_ns - begin_ns)
            self.due_ns = None if next_ns is None else begin_ns + next_ns
            return clock_mhz
        return self._pilot.wanted_mhz(
            position,
            clocks_mhz=row.clocks_mhz,
            next_clocks_mhz=next_row.clocks_mhz,
            current_mhz=self._clock.requested_mhz,
            latency_ns=row.latency_ns,
            latencies_ns=row.latencies_ns,
        )
