"""A clock control whose lease is kept by a thread, while the main thread launches and waits for long kernels."""

import threading
import time
from types import TracebackType
from typing import Self

from perseus_dist.device.control import ClockControl, ClockReport

_BEAT_S = 0.2
# A main thread that is silent for longer hangs in a driver: its lease ends then, and its clock is free.
_PATIENCE_S = 60.0


class KeptControl:
    """A ``ClockControl`` for one thread, and one more that polls it. A context manager: at its end clocks are free."""

    def __init__(self, control: ClockControl) -> None:
        self._control = control
        self._lock = threading.Lock()
        self._reports: list[ClockReport] = []
        self._seen_s = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="clock-lease", daemon=True)
        self.name = control.name
        self.clocks_mhz = control.clocks_mhz

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._control.close()

    @property
    def refusal(self) -> str:
        """See ``ClockControl``."""
        return self._control.refusal

    def request(self, clock_mhz: int | None, now_ns: int) -> None:
        """See ``ClockControl``."""
        with self._lock:
            self._control.request(clock_mhz, now_ns)

    def poll(self, now_ns: int) -> list[ClockReport]:
        """Reports since the last call."""
        with self._lock:
            self._seen_s = time.monotonic()
            reports, self._reports = [*self._reports, *self._control.poll(now_ns)], []
        return reports

    def _keep(self) -> None:
        while not self._stop.wait(_BEAT_S):
            with self._lock:
                if time.monotonic() - self._seen_s < _PATIENCE_S:
                    self._reports += self._control.poll(time.monotonic_ns())
