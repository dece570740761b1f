"""The lease on one GPU's clock in virtual time: as ``device.lease.client`` has it, with a holder that can be lost."""

from perseus_dist.device.control import ClockReport
from perseus_dist.device.lease.client import HANG_NS
from perseus_dist.simulator.gpu import SimulatedGpu

_LOOK_NS = 1_000_000  # how often the holder looks whether the clock is there
_FIRST_RETRY_NS = 250_000_000
NEVER_NS = 1 << 62
LEASE_NS = 2_000_000_000


class VirtualLease:
    """Clock control of one GPU.

    Attributes:
        refusal: Why no clock can be set now; empty while it can.
        next_ns: When ``poll`` has something to do.
        is_holder_stopped: The holder does nothing, and the clock stays what it is, until it is replaced because it
            hangs.
    """

    def __init__(self, gpu: SimulatedGpu) -> None:
        self._gpu = gpu
        self.refusal = ""
        self._held_mhz: int | None = None
        self._setting: tuple[int | None, int] | None = None  # (clock, asked at) of the call that is under way
        self._wanted: tuple[int | None, int] | None = None  # what is asked for after it; the latest wins
        self._report_ns: int | None = None
        self._retry_ns: int | None = None
        self.is_holder_stopped = False
        self._hangs_ns: int | None = None  # when a stopped holder counts as one that hangs
        self.next_ns = NEVER_NS

    def next_look_ns(self, now_ns: int) -> int | None:
        """When the holder next looks, after now; None while it waits for nothing."""
        report_ns = self._report_ns
        return None if report_ns is None else report_ns - (report_ns - now_ns - 1) // _LOOK_NS * _LOOK_NS

    def request(self, clock_mhz: int | None, now_ns: int) -> None:
        """Ask for a clock, or for the release of all. The latest request wins."""
        self._wanted, self._held_mhz = (clock_mhz, now_ns), clock_mhz
        if self.is_holder_stopped and self._hangs_ns is None:
            self._hangs_ns = now_ns + HANG_NS
            self._look_ahead()
        self._set_wanted(now_ns)

    def poll(self, now_ns: int) -> list[ClockReport]:
        """Do what is due; reports since the last call."""
        if self._hangs_ns is not None and now_ns >= self._hangs_ns:
            self.lose(now_ns, "the direct lease daemon hangs")
            return []
        if self._retry_ns is not None and now_ns >= self._retry_ns:
            self._retry_ns, self.refusal = None, ""
            self._set_wanted(now_ns)
            self._look_ahead()
        if self._report_ns is None or now_ns < self._report_ns or self.is_holder_stopped:
            return []
        state = self._gpu.read()
        if state.pending_at_ns or self._setting is None:
            self._expect_clock(now_ns)
            return []
        (clock_mhz, asked_ns), self._setting, self._report_ns = self._setting, None, None
        self._look_ahead()
        report = ClockReport(
            requested_mhz=clock_mhz,
            observed_mhz=state.clock_mhz,
            event_reasons=state.event_reasons,
            request_ns=asked_ns,
            set_ns=now_ns,
            reached_ns=now_ns if clock_mhz == state.clock_mhz else None,
            error="",
        )
        return [report]

    def set_next(self, now_ns: int) -> None:
        """After a report: what was asked for meanwhile."""
        self._set_wanted(now_ns)

    def lose(self, now_ns: int, reason: str = "the direct lease daemon ended the connection") -> None:
        """The holder is gone: the GPU is unlocked, and the lease taken anew a little later."""
        self.close()
        self.refusal = reason
        if self._wanted is None and self._held_mhz is not None:
            self._wanted = (self._held_mhz, now_ns)
        self._retry_ns = now_ns + _FIRST_RETRY_NS
        self.is_holder_stopped, self._hangs_ns = False, None
        self._look_ahead()

    def stop_holder(self, now_ns: int) -> None:
        """The holder does nothing any more, and says nothing."""
        self.is_holder_stopped = True
        self._hangs_ns = None if self._setting is None else now_ns + HANG_NS
        self._look_ahead()

    def continue_holder(self, now_ns: int) -> None:
        """The holder goes on, with the request that it got last."""
        self.is_holder_stopped, self._hangs_ns = False, None
        self._set_wanted(now_ns)
        self._look_ahead()

    def close(self) -> None:
        """The connection ends: the GPU is unlocked, at once."""
        if not self._gpu.state().is_unlocked:
            self._gpu.request_clock(None)
        self._setting = self._report_ns = None
        self._look_ahead()

    def _set_wanted(self, now_ns: int) -> None:
        """One call at a time; the simulated GPU reckons with its latency."""
        can_set = self._retry_ns is None and not self.is_holder_stopped
        if can_set and self._setting is None and self._wanted is not None:
            self._setting, self._wanted = self._wanted, None
            self._gpu.request_clock(self._setting[0])
            self._expect_clock(now_ns)

    def _expect_clock(self, now_ns: int) -> None:
        """The holder looks every millisecond; what it sees before the clock is there changes nothing."""
        pending_ns = max(self._gpu.read().pending_at_ns - now_ns, 1)
        self._report_ns = now_ns + -(-pending_ns // _LOOK_NS) * _LOOK_NS
        self._look_ahead()

    def _look_ahead(self) -> None:
        """When ``poll`` has something to do, now that something was done."""
        due_ns = self._report_ns if self._retry_ns is None else self._retry_ns
        if self.is_holder_stopped:
            due_ns = self._hangs_ns
        self.next_ns = NEVER_NS if due_ns is None else due_ns
