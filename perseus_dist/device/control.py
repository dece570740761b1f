"""Clock control of one GPU, as the agent sees it: ask, and learn later what became of it.

Four ways lead to a clock, all behind ``ClockControl``:

    clockd    the lease daemon of this node; the trainer needs no rights
    zeusd     an existing zeusd sets, a private lease process of ours sees to the restore
    direct    a private lease process sets by itself; needs root, or simulated GPUs of one's own
    observe   nothing is set; ``refusal`` says why

Whatever happens to the process that holds a control, its GPU is unlocked again: the end of the connection does it. A
private lease process that dies is replaced by the control's holder, and its successor first restores what it left.
Only clockd also outlives a SIGKILL of everything that the job has started, lease processes included; after one, the
next lease of the GPU or ``perseus-dist release`` unlocks it.
"""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockReport:
    """The result of one request. One that a newer one overtook, or that was lost with its control, has none.

    Attributes:
        requested_mhz: None for a release.
        observed_mhz: [MHz] SM clock read back last; None where it could not be read.
        event_reasons: NVML's clock event reasons at that reading; 0 where they could not be read.
        request_ns: When the request was made: the ``now_ns`` that it came with; that of the ``poll`` which passed it
            on, where the control was lost.
        set_ns: [ns, CLOCK_MONOTONIC] when NVML returned from setting it; 0 if it never got that far.
        reached_ns: When the clock was first seen to be the requested one; None if it was not, and for a release.
        error: Why it failed, in a sentence; empty if it did not.
    """

    requested_mhz: int | None
    observed_mhz: int | None
    event_reasons: int
    request_ns: int
    set_ns: int
    reached_ns: int | None
    error: str

    @property
    def reached(self) -> bool:
        """Whether the GPU was seen to run at the requested clock; for a release, whether it succeeded."""
        return not self.error and (self.requested_mhz is None or self.reached_ns is not None)


class ClockControl(Protocol):
    """One GPU's clock. Nothing here raises, and nothing but ``close`` waits.

    A control may be lost and come back, for example when the daemon is restarted: while it is lost, ``refusal`` is a
    sentence, requests are remembered (the last one only), and ``poll`` tries again. With ``observe`` that is for ever.
    """

    @property
    def name(self) -> str:
        """``clockd``, ``zeusd``, ``direct`` or ``observe``; stays the same."""

    @property
    def clocks_mhz(self) -> tuple[int, ...]:
        """Supported and within the operator's bounds, descending; stays the same; () for ``observe``."""

    @property
    def refusal(self) -> str:
        """Why no clock can be set now; empty while it can."""

    def request(self, clock_mhz: int | None, now_ns: int) -> None:
        """Ask for a clock out of ``clocks_mhz``, or for the release of all. The latest request wins."""

    def fileno(self) -> int:
        """A descriptor that is readable when ``poll`` has something to do; stays the same. -1 if there is none."""

    def poll(self, now_ns: int) -> list[ClockReport]:
        """Reports since the last call. Also keeps the lease alive: to be called at least every 0.5 s."""

    def close(self) -> None:
        """Release, and wait for the acknowledgement for a short while (1 s at most). The end; twice does no harm."""
