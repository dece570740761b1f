"""GPU readings for the planner: each reading once, and at once where throttling begins or ends.

       told at once   told   told
    1 s     |<150 ms>|<150 ms>|      1 s      |      1 s      |
    clean   throttled

A reading of an idle GPU, or of one whose clock was asked for only just before, says nothing about its clock.
"""

from collections import deque
from typing import TYPE_CHECKING

from perseus_dist.agent.measuring.held_clock import REASON_IDLE, REASON_POWER_CAP, THROTTLE_REASONS, HeldClock
from perseus_dist.messages.from_agent import GpuSample

if TYPE_CHECKING:
    from perseus_dist.device.nvml.meter import MeterSample

READ_AGAIN_NS = 150_000_000
NUM_SAME = 3  # readings in a row that are sent at once, so that the planner can believe them
MAX_EXTRA = 12  # readings told out of turn within the window
EXTRA_WINDOW_NS = 10_000_000_000
_REACHED_SHARE = 0.98  # of the clock requested: a step or two below it is within what NVML reads at an instant


class ThrottleReporter:
    """Judges readings of one GPU.

    Args:
        clock: What was asked for.

    Attributes:
        due_ns: When to read again out of turn; None for not at all.
    """

    def __init__(self, clock: HeldClock) -> None:
        self._clock = clock
        self._sample = GpuSample()
        self._is_throttled = False  # as told
        self._num_untold = 0  # readings of the same state that are still to be sent at once
        self._extra_ns: deque[int] = deque(maxlen=MAX_EXTRA)
        self.due_ns: int | None = None

    def record(self, sample: "MeterSample", now_ns: int) -> bool:
        """Take a reading.

        Returns:
            Whether it is to be sent at once.
        """
        power_w, temperature_c = (sample.power_mw or 0) / 1e3, float(sample.temperature_c or 0)
        clock_mhz, reasons = sample.clock_mhz or 0, sample.event_reasons or 0
        if not clock_mhz or reasons & REASON_IDLE or not self._clock.is_due(sample.time_before_ns):
            self._sample = GpuSample(power_w=power_w, temperature_c=temperature_c)
            if self._num_untold:
                self._go_on(now_ns)
            return False
        requested_mhz = self._clock.requested_mhz or 0
        self._sample = GpuSample(
            requested_mhz=requested_mhz,
            power_w=power_w,
            clock_mhz=clock_mhz,
            event_reasons=reasons,
            temperature_c=temperature_c,
        )
        is_below = requested_mhz == 0 or clock_mhz < _REACHED_SHARE * requested_mhz
        is_throttled = is_below and bool(reasons & (REASON_POWER_CAP | THROTTLE_REASONS))
        if is_throttled != self._is_throttled:
            self._is_throttled, self._num_untold = is_throttled, NUM_SAME
        if not self._num_untold:
            return False
        self._num_untold -= 1
        return self._go_on(now_ns)

    def is_due(self, now_ns: int) -> bool:
        """Whether to read now, out of turn; true once for each time."""
        if self.due_ns is None or now_ns < self.due_ns:
            return False
        self.due_ns = None
        return True

    def tell(self) -> GpuSample:
        """The latest reading. Told again, it says nothing about the clock: it is no second one."""
        sample = self._sample
        if sample.clock_mhz:
            self._sample = GpuSample(power_w=sample.power_w, temperature_c=sample.temperature_c)
        return sample

    def _go_on(self, now_ns: int) -> bool:
        """One more out of turn, and the next if there is one: whether it may be, with so many lately."""
        is_free = len(self._extra_ns) < MAX_EXTRA or now_ns >= self._extra_ns[0] + EXTRA_WINDOW_NS
        if is_free:
            self._extra_ns.append(now_ns)
        else:
            self._num_untold = 0
        self.due_ns = now_ns + READ_AGAIN_NS if self._num_untold else None
        return is_free
