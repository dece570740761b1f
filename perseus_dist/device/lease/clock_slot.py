"""The lease on one GPU's clocks as a pure state machine: what to call next, and what a call's outcome means.

One slot for the newest request, never a queue. One call at a time. No clock is set once a lease is over, and a GPU that
was touched is not free before a reset has worked: these two hold whatever order things happen in.

              acquire                 check ok                     drop, lost
       FREE ----------> CHECKING ---------------> HELD -------------------------------> RESTORING
        ^                   | refused, drop         | drop, untouched                      |
        +-------------------+-----------------------+---------------- reset ok ------------+
"""

from dataclasses import dataclass
from enum import StrEnum

from perseus_dist.device.control import ClockReport

_MS = 1_000_000  # [ns]
# Read back every so often, for so long: settling takes 6-20 ms.
READ_INTERVAL_NS = 2 * _MS
READ_WINDOW_NS = 100 * _MS
# How often a held GPU is looked at for other jobs' processes, MIG mode or a lost device.
RECHECK_INTERVAL_NS = 5_000 * _MS
RETRY_FIRST_NS = 50 * _MS
RETRY_LONGEST_NS = 5_000 * _MS


class Phase(StrEnum):
    """Where a lease stands."""

    FREE = "free"
    CHECKING = "checking"
    HELD = "held"
    RESTORING = "restoring"


class Call(StrEnum):
    """The NVML call to make."""

    CHECK = "check"
    SET = "set"
    RESET = "reset"
    READ = "read"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A client's wish. ``clock_mhz`` None releases."""

    clock_mhz: int | None
    request_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One call.

    Attributes:
        first: A CHECK before the lease is granted; a SET that is the first since the clocks were free, before which it
            must be written down and an operator's lock be ruled out.
    """

    call: Call
    clock_mhz: int | None = None
    first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a call.

    Attributes:
        time_ns: When it returned.
        error: Empty if it worked.
        fatal: The lease is of no use any more.
        unusable: Nor would any other be: this process has no driver, no bindings or no rights, or does not see the GPU.
        nothing_done: The failed SET certainly changed nothing.
        observed_mhz, event_reasons: Of a READ.
        clocks_mhz: Of the first CHECK.
    """

    time_ns: int
    error: str = ""
    fatal: bool = False
    unusable: bool = False
    nothing_done: bool = False
    observed_mhz: int | None = None
    event_reasons: int = 0
    clocks_mhz: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """The lease is held, with these clocks to choose from."""

    clocks_mhz: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The lease was not granted.

    Attributes:
        reason: A sentence.
        retry: That may change within seconds.
        unusable: As in ``Outcome``.
    """

    reason: str
    retry: bool
    unusable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """A request was dealt with."""

    report: ClockReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """The lease is over before its time; the clocks are being restored."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreFailed:
    """The clocks are still locked; it is tried again in ``retry_s``."""

    reason: str
    num_failures: int
    retry_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Freed:
    """The lease is over and the clocks are as they were. The last event."""


SlotEvent = Granted | Refused | Reported | Lost | RestoreFailed | Freed


class ClockSlot:
    """One lease, from ``acquire`` to ``Freed``.

    Attributes:
        phase: Where it stands.
        touched: Clocks were or may have been set since the last reset that worked.
        in_flight: The call that has not returned.
    """

    def __init__(self) -> None:
        self.phase = Phase.FREE
        self.touched = False
        self.in_flight: Action | None = None
        self._wanted: Request | None = None
        self._serving: Request | None = None  # whose call is in flight
        self._verifying: Request | None = None
        self._set_ns = 0
        self._read_ns = 0
        self._recheck_ns = 0
        self._release_pending = False
        self._num_failures = 0
        self._retry_ns = 0

    def acquire(self) -> None:
        """Ask for the lease; answered by ``Granted`` or ``Refused``."""
        assert self.phase is Phase.FREE
        self.phase = Phase.CHECKING

    def restore(self) -> None:
        """Take over what a dead holder left: the lease begins with its end."""
        assert self.phase is Phase.FREE
        self.phase = Phase.RESTORING
        self.touched = True

    def request(self, request: Request) -> None:
        """Wish for a clock; the newest wish wins. Without a lease it is nothing."""
        if self.phase is Phase.HELD:
            self._wanted = request

    def drop(self) -> list[SlotEvent]:
        """The lease is over: client gone, silent, done, or the daemon ends."""
        if self.phase in (Phase.FREE, Phase.RESTORING):
            return []
        self._wanted = self._verifying = None
        self.phase = Phase.RESTORING
        self._retry_ns = self._num_failures = 0
        return self._freed_if_done()

    def next_action(self, now_ns: int) -> Action | None:
        """The call to make now, if any; the caller must make it and report it to ``finish``."""
        if self.in_flight is not None or self.phase is Phase.FREE:
            return None
        action = self._choose(now_ns)
        if action is not None and action.call is Call.SET:
            self.touched = True
        self.in_flight = action
        return action

    def wake_ns(self) -> int | None:
        """When ``next_action`` has something to say without anything happening before; None for never."""
        if self.in_flight is not None or self.phase in (Phase.FREE, Phase.CHECKING):
            return None
        if self.phase is Phase.RESTORING:
            return self._retry_ns
        times = [self._recheck_ns]
        if self._verifying is not None:
            times.append(self._read_ns)
        if self._release_pending:
            times.append(self._retry_ns)
        return min(times)

    def finish(self, outcome: Outcome) -> list[SlotEvent]:
        """Take in what the call in flight came to."""
        assert self.in_flight is not None
        action, self.in_flight = self.in_flight, None
        match action.call:
            case Call.CHECK:
                events = self._checked(outcome)
            case Call.SET:
                events = self._was_set(action, outcome)
            case Call.RESET:
                events = self._was_reset(outcome)
            case Call.READ:
                events = self._was_read(outcome)
        return events + self._freed_if_done()

    def _choose(self, now_ns: int) -> Action | None:
        if self.phase is Phase.CHECKING:
            return Action(call=Call.CHECK, first=True)
        if self.phase is Phase.RESTORING:
            return Action(call=Call.RESET) if now_ns >= self._retry_ns else None
        if self._wanted is not None:
            self._serving, self._wanted, self._verifying = self._wanted, None, None
            if self._serving.clock_mhz is not None:
                self._release_pending = False
                return Action(call=Call.SET, clock_mhz=self._serving.clock_mhz, first=not self.touched)
            return Action(call=Call.RESET) if self.touched else Action(call=Call.READ)
        if self._release_pending and now_ns >= self._retry_ns:
            return Action(call=Call.RESET)
        if self._verifying is not None and now_ns >= self._read_ns:
            return Action(call=Call.READ)
        if now_ns >= self._recheck_ns:
            return Action(call=Call.CHECK)
        return None

    def _checked(self, outcome: Outcome) -> list[SlotEvent]:
        self._recheck_ns = outcome.time_ns + RECHECK_INTERVAL_NS
        if self.phase is Phase.CHECKING:
            if outcome.error:
                self.phase = Phase.FREE
                return [Refused(reason=outcome.error, retry=not outcome.fatal, unusable=outcome.unusable), Freed()]
            self.phase = Phase.HELD
            return [Granted(clocks_mhz=outcome.clocks_mhz)]
        if outcome.error and self.phase is Phase.HELD:
            return self._lose(outcome.error)
        return []

    def _was_set(self, action: Action, outcome: Outcome) -> list[SlotEvent]:
        request, self._serving = self._serving, None
        assert request is not None
        if not outcome.error:
            if self.phase is Phase.HELD:
                self._verifying, self._set_ns, self._read_ns = request, outcome.time_ns, outcome.time_ns
            return []
        if action.first and outcome.nothing_done:
            self.touched = False
        if self.phase is not Phase.HELD:
            return []
        # The GPU's clock is not known now: go back to what is safe, unless something newer is wanted.
        self._release_pending = self.touched
        self._retry_ns = 0
        events: list[SlotEvent] = [_report(request, error=outcome.error)]
        return events + (self._lose(outcome.error) if outcome.fatal else [])

    def _was_reset(self, outcome: Outcome) -> list[SlotEvent]:
        request, self._serving = self._serving, None
        if not outcome.error:
            self.touched = self._release_pending = False
            self._num_failures = 0
            if request is not None and self.phase is Phase.HELD:
                self._verifying, self._set_ns, self._read_ns = request, outcome.time_ns, outcome.time_ns
            return []
        self._num_failures += 1
        retry_ns = min(RETRY_LONGEST_NS, RETRY_FIRST_NS << min(self._num_failures - 1, 10))
        self._retry_ns = outcome.time_ns + retry_ns
        self._release_pending = True
        failed = RestoreFailed(reason=outcome.error, num_failures=self._num_failures, retry_s=retry_ns / 1e9)
        if request is None or self.phase is not Phase.HELD:
            return [failed]
        return [_report(request, error=outcome.error), failed]

    def _was_read(self, outcome: Outcome) -> list[SlotEvent]:
        if self._serving is not None:  # a release where nothing was set
            self._verifying, self._serving = self._serving, None
            self._set_ns = outcome.time_ns
        request = self._verifying
        if request is None or self.phase is not Phase.HELD:
            return []
        if outcome.error:
            self._verifying = None
            return [_report(request, set_ns=self._set_ns, error=f"the clock cannot be read back: {outcome.error}")]
        reached = outcome.observed_mhz == request.clock_mhz
        is_last = outcome.time_ns >= self._set_ns + READ_WINDOW_NS
        if not reached and not is_last and request.clock_mhz is not None:
            self._read_ns = outcome.time_ns + READ_INTERVAL_NS
            return []
        self._verifying = None
        return [
            _report(
                request,
                observed_mhz=outcome.observed_mhz,
                event_reasons=outcome.event_reasons,
                set_ns=self._set_ns,
                reached_ns=outcome.time_ns if reached else None,
            )
        ]

    def _lose(self, reason: str) -> list[SlotEvent]:
        return [Lost(reason=reason), *self.drop()]

    def _freed_if_done(self) -> list[SlotEvent]:
        if self.phase is not Phase.RESTORING or self.touched or self.in_flight is not None:
            return []
        self.phase = Phase.FREE
        return [Freed()]


def _report(
    request: Request,
    *,
    observed_mhz: int | None = None,
    event_reasons: int = 0,
    set_ns: int = 0,
    reached_ns: int | None = None,
    error: str = "",
) -> Reported:
    return Reported(
        report=ClockReport(
            requested_mhz=request.clock_mhz,
            observed_mhz=observed_mhz,
            event_reasons=event_reasons,
            request_ns=request.request_ns,
            set_ns=set_ns,
            reached_ns=reached_ns,
            error=error,
        )
    )
