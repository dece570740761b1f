"""Is the GPU at the clock that was asked for? From reports of the clock control and from readings of the meter.

NVML's success means that a request was taken, not that the clock was reached. A power cap that keeps the GPU below it
belongs to what that clock costs on this GPU, and is measured with it; heat and hardware brakes do not.
"""

from bisect import bisect_left, insort
from collections import defaultdict, deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perseus_dist.device.control import ClockReport
    from perseus_dist.device.nvml.meter import MeterSample

REASON_IDLE = 0x1
REASON_POWER_CAP = 0x4
THROTTLE_REASONS = 0x8 | 0x20 | 0x40 | 0x80
"""Hardware slowdown, software thermal, hardware thermal, power brake."""

_TOLERANCE_MHZ = 7  # clocks come in steps of 15
_TRANSITION_NS = 100_000_000  # a reading this soon after a request says nothing
_NUM_LATENCIES = 64
_NUM_CHANGES = 16  # kept of each target
_MIN_DUE_NS = 20_000_000
_MAX_ANSWER_NS = 100_000_000


def is_at_clock(sample: "MeterSample", clock_mhz: int) -> bool | None:
    """Whether a reading shows a clock that is not held by a request; None where it says nothing, as of an idle GPU."""
    reasons = sample.event_reasons or 0
    if sample.clock_mhz is None or reasons & REASON_IDLE:
        return None
    return not reasons & THROTTLE_REASONS and abs(sample.clock_mhz - clock_mhz) <= _TOLERANCE_MHZ


def _is_above(observed_mhz: int | None, requested_mhz: int) -> bool:
    """Whether a GPU runs faster than it was asked to, which no power cap makes it do."""
    return observed_mhz is not None and observed_mhz > requested_mhz + _TOLERANCE_MHZ


class HeldClock:
    """Requests, and what became of them.

    Attributes:
        requested_mhz: Asked for last; None for released.
        request_ns: When.
        observed_mhz: Seen last since that request; None where nothing was.
        settled_ns: Since when the GPU has surely run at the requested clock; None while it may not.
        is_throttled: By heat or hardware, at the last reading.
        num_changes: Clocks asked for, releases aside.
        num_missed: Requests that were granted and not reached.
        latency_s: Upper quartile of the time from request to effect; 0 before the first.
        trouble: Why the last request failed, in a sentence; empty if it did not.
        has_failed: The requested clock could not be set, and the GPU is back at full clocks.
    """

    def __init__(self) -> None:
        self.requested_mhz: int | None = None
        self.request_ns = 0
        self.observed_mhz: int | None = None
        self.settled_ns: int | None = None
        self.is_throttled = False
        self.num_changes = 0
        self.num_missed = 0
        self.latency_s = 0.0
        self.trouble = ""
        self.has_failed = False
        self._latency_ns = 0
        self._last_good_ns = 0
        self._unanswered_ns: int | None = None  # since when no request has been answered
        self._latencies_ns: deque[int] = deque(maxlen=_NUM_LATENCIES)
        self._ordered_latencies_ns: list[int] = []  # the same, ascending
        self._is_change = False  # the last request's, from another clock that was asked for
        self._changes_ns: defaultdict[int, deque[int]] = defaultdict(lambda: deque(maxlen=_NUM_CHANGES))  # by target

    def request(self, clock_mhz: int | None, now_ns: int) -> None:
        """A clock is asked for."""
        self._is_change = self.requested_mhz not in (None, clock_mhz)
        self.requested_mhz = clock_mhz
        self.request_ns = now_ns
        self.has_failed = False
        self.observed_mhz = self.settled_ns = None
        if clock_mhz is None:
            self._unanswered_ns = None
        elif self._unanswered_ns is None:
            self._unanswered_ns = now_ns
        self.num_changes += clock_mhz is not None

    def is_due(self, at_ns: int) -> bool:
        """Whether what was asked for last, a release too, must be in force by then if nothing is in its way."""
        return self.request_ns + max(_MIN_DUE_NS, round(2e9 * self.latency_s)) <= at_ns

    def changes_to_s(self, clock_mhz: int) -> list[float]:
        """[s] ascending: the latest changes from another clock that was asked for, from request to effect."""
        return sorted(latency_ns / 1e9 for latency_ns in self._changes_ns.get(clock_mhz, ()))

    def is_unanswered(self, at_ns: int) -> bool:
        """Whether clock control hangs: which clock the GPU runs at is not known then."""
        return self._unanswered_ns is not None and at_ns - self._unanswered_ns > _MAX_ANSWER_NS

    def was_held(self, clock_mhz: int, since_ns: int) -> bool:
        """Whether this clock was asked for long enough before then to be there, and nothing throttles it."""
        is_in_force = self.request_ns + self._latency_ns <= since_ns
        return clock_mhz == self.requested_mhz and is_in_force and not self.is_throttled

    def report(self, report: "ClockReport") -> None:
        """Record the result of a request; of one older than the last, only its latency counts."""
        self.trouble = report.error
        self._unanswered_ns = None if report.requested_mhz == self.requested_mhz else self.request_ns
        self.has_failed = bool(report.error) and report.requested_mhz == self.requested_mhz is not None
        if report.error or report.requested_mhz is None:
            return
        if report.requested_mhz == self.requested_mhz:
            self.observed_mhz = report.observed_mhz
        if report.reached_ns is not None:
            latency_ns = report.reached_ns - report.request_ns
            self._keep_latency(latency_ns)
            if self._is_change and report.requested_mhz == self.requested_mhz:
                self._changes_ns[report.requested_mhz].append(latency_ns)
            settled_ns = report.reached_ns + 2 * latency_ns
        elif report.event_reasons & REASON_POWER_CAP and not _is_above(report.observed_mhz, report.requested_mhz):
            settled_ns = report.set_ns + _TRANSITION_NS
        else:
            self.num_missed += 1
            return
        if report.requested_mhz == self.requested_mhz:
            self.settled_ns = self._last_good_ns = settled_ns

    def _keep_latency(self, latency_ns: int) -> None:
        latencies_ns, ordered_ns = self._latencies_ns, self._ordered_latencies_ns
        if len(latencies_ns) == _NUM_LATENCIES:
            del ordered_ns[bisect_left(ordered_ns, latencies_ns[0])]
        latencies_ns.append(latency_ns)
        insort(ordered_ns, latency_ns)
        self._latency_ns = ordered_ns[3 * (len(ordered_ns) - 1) // 4]
        self.latency_s = self._latency_ns / 1e9

    def reading(self, sample: "MeterSample") -> int | None:
        """Judge a reading of the meter.

        Returns:
            Since when the clock may have been another one, if the reading says so.
        """
        reasons, clock_mhz, at_ns = sample.event_reasons or 0, sample.clock_mhz, sample.time_after_ns
        self.is_throttled = bool(reasons & THROTTLE_REASONS)
        if clock_mhz is None or sample.time_before_ns < self.request_ns + _TRANSITION_NS:
            return None
        if not reasons & REASON_IDLE:
            self.observed_mhz = clock_mhz
        if self.requested_mhz is None:
            return None
        is_capped = bool(reasons & REASON_POWER_CAP) and not _is_above(clock_mhz, self.requested_mhz)
        is_excused = is_capped or bool(reasons & REASON_IDLE)
        if self.is_throttled or not (is_excused or abs(clock_mhz - self.requested_mhz) <= _TOLERANCE_MHZ):
            was_settled, self.settled_ns = self.settled_ns is not None, None
            return max(self._last_good_ns, self.request_ns) if was_settled else None
        if not reasons & REASON_IDLE:
            self._last_good_ns = at_ns
            if self.settled_ns is None:
                self.settled_ns = at_ns
        return None
