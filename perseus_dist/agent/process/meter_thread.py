"""Reads the GPU in a thread of its own, because NVML may take its time, or hang."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from perseus_dist.agent.measuring.counter import Edge, EdgeTracker
from perseus_dist.device.nvml.meter import GpuMeter, MeterSample

_SAMPLE_S = 1.0
_WATCHING_SAMPLE_S = 0.5  # a clock that is not the one asked for spoils the measurement since the last sample
_EDGES_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Reading:
    """A whole reading, and what is wrong with the meter."""

    sample: MeterSample
    trouble: str


@dataclass(frozen=True, slots=True)
class Edges:
    """Edges of the energy counter since the last ones told."""

    edges: tuple[Edge, ...]


class MeterThread(threading.Thread):
    """Samples once a second, and follows the energy counter while asked to.

    Args:
        meter: Used by this thread alone from here on.
        period_ns: [ns] of the energy counter; 0 without one.
        tell: Called with every reading, from this thread.
    """

    def __init__(self, meter: GpuMeter, period_ns: int, tell: Callable[[Reading | Edges], None]) -> None:
        super().__init__(name="meter", daemon=True)  # a hung driver must not keep the process
        self._meter = meter
        self._period_ns = period_ns
        self._tell = tell
        self._wake = threading.Event()
        self._is_watching = False
        self._wants_sample = False

    def watch_energy(self, is_on: bool) -> None:  # noqa: FBT001 - reads as an assignment
        """Follow the counter's edges from now on, or no more."""
        self._is_watching = is_on
        self._wake.set()

    def read_now(self) -> None:
        """Take a whole reading as soon as possible."""
        self._wants_sample = True
        self._wake.set()

    def run(self) -> None:
        """Until the process ends."""
        tracker: EdgeTracker | None = None
        edges: list[Edge] = []
        sample_s = reading_s = time.monotonic()
        while True:
            now_s = time.monotonic()
            if self._wants_sample or now_s >= sample_s:
                self._wants_sample = False
                self._tell(Reading(self._meter.sample(), self._meter.trouble))
                sample_s = now_s + (_WATCHING_SAMPLE_S if self._is_watching else _SAMPLE_S)
            if not self._is_watching:
                tracker = None
                self._sleep_until(sample_s)
                continue
            if tracker is None:
                tracker = EdgeTracker(self._period_ns)
            edge = self._read_counter(tracker)
            if edge is not None:
                edges.append(edge)
            if len(edges) >= _EDGES_AT_ONCE or (edges and now_s >= reading_s):
                self._tell(Edges(tuple(edges)))
                edges.clear()
                reading_s = now_s + _WATCHING_SAMPLE_S / 5
            self._sleep_until(tracker.next_reading_ns(time.monotonic_ns()) / 1e9)

    def _read_counter(self, tracker: EdgeTracker) -> Edge | None:
        before_ns = time.monotonic_ns()
        energy_mj = self._meter.energy_mj()
        return None if energy_mj is None else tracker.add(before_ns, energy_mj, time.monotonic_ns())

    def _sleep_until(self, until_s: float) -> None:
        if self._wake.wait(max(0.0, until_s - time.monotonic())):
            self._wake.clear()
