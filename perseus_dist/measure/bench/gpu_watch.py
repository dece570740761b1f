"""Reads one GPU in a thread of its own while it works: when its energy counter is published, and how it runs."""

import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple, Self

from perseus_dist.agent.measuring.counter import Edge, EdgeTracker
from perseus_dist.device.nvml.meter import GpuMeter
from perseus_dist.measure.errors import MeasureError

_LOOK_NS = 20_000_000
_MIN_SLEEP_S = 0.0002


class Look(NamedTuple):
    """How the GPU ran at one instant; None is what could not be read."""

    time_ns: int
    clock_mhz: int | None
    event_reasons: int | None
    temperature_c: int | None


class GpuWatch:
    """A context manager: the thread reads as long as the block lasts. Nothing is ever set."""

    def __init__(self, gpu_uuid: str, period_ns: int) -> None:
        """Prepare.

        Args:
            gpu_uuid: As NVML writes it.
            period_ns: Of the energy counter, about.
        """
        self._meter = GpuMeter(gpu_uuid)
        self._tracker = EdgeTracker(period_ns)
        self._edges: list[Edge] = []
        self._looks: list[Look] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="gpu-watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def edges(self, begin_ns: int = 0) -> Sequence[Edge]:
        """Publications of the energy counter since then, ascending.

        Raises:
            MeasureError: The counter cannot be read any more.
        """
        if not self._thread.is_alive():
            raise MeasureError(f"the GPU's energy counter cannot be read any more: {self._meter.trouble or 'unknown'}")
        return [edge for edge in self._edges[:] if edge.earliest_ns >= begin_ns]

    def looks(self, begin_ns: int, end_ns: int) -> Sequence[Look]:
        """How it ran in a time."""
        return [look for look in self._looks[:] if begin_ns <= look.time_ns <= end_ns]

    def _watch(self) -> None:
        look_ns = 0
        while not self._stop.is_set():
            before_ns = time.monotonic_ns()
            energy_mj = self._meter.energy_mj()
            after_ns = time.monotonic_ns()
            if energy_mj is None:
                return
            edge = self._tracker.add(before_ns, energy_mj, after_ns)
            if edge is not None:
                self._edges.append(edge)
                # Just after a publication the next one is far: reading the rest costs no edge.
                if after_ns >= look_ns:
                    look_ns = after_ns + _LOOK_NS
                    sample = self._meter.sample()
                    self._looks.append(
                        Look(sample.time_after_ns, sample.clock_mhz, sample.event_reasons, sample.temperature_c)
                    )
            sleep_s = (self._tracker.next_reading_ns(after_ns) - time.monotonic_ns()) / 1e9
            time.sleep(max(_MIN_SLEEP_S, sleep_s))
