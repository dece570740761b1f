"""Follows a sweep: which clock an iteration holds, and a recorder for every step until its estimate is made.

Steps are found by iteration number alone, so all ranks hold the same clock at the same time, and one that comes late
joins in the middle.
"""

import math
from collections import deque
from collections.abc import Iterator
from statistics import median
from typing import TYPE_CHECKING

from perseus_dist.agent.following.position import Stamp
from perseus_dist.agent.measuring.counter import Edge
from perseus_dist.agent.measuring.held_clock import HeldClock, is_at_clock
from perseus_dist.agent.measuring.profiler import Key
from perseus_dist.agent.measuring.recorder import Recorder
from perseus_dist.messages.from_agent import ProfileSamples, Sample
from perseus_dist.messages.from_planner import StopSweep, Sweep
from perseus_dist.messages.terms import NO_ITERATION
from perseus_dist.planning.schedule.instruction import CLOCK_CHANGE

if TYPE_CHECKING:
    from perseus_dist.device.nvml.meter import MeterSample


class Sweeper:
    """At most one sweep at a time; the newest one counts.

    Attributes:
        end_iteration: The first behind the newest sweep, before any -1.
        trouble: What could not be measured in the last step, in a sentence; empty otherwise.
    """

    def __init__(self, period_ns: int) -> None:
        self._period_ns = period_ns
        self._sweep: Sweep | None = None
        self.end_iteration = NO_ITERATION
        self._current: Recorder | None = None
        self._finished: deque[Recorder] = deque()
        self._settled: tuple[int, int] | None = None  # (clock, since)
        self._seen_ns = 0  # at the step's clock, where no clock can be held
        self._is_in_step = False
        self.trouble = ""

    def start(self, sweep: Sweep, iteration: int) -> None:
        """Take a sweep; one that runs already goes on, also one that was suspended.

        Args:
            sweep: As the planner sent it.
            iteration: Begun last.
        """
        if sweep != self._sweep:
            self._current = None
            self._sweep = sweep
        self.end_iteration = sweep.first_iteration + sweep.iterations_per_clock * len(sweep.clocks_mhz)
        if iteration >= self.end_iteration:
            self._sweep = None

    def stop(self, stop: StopSweep) -> None:
        """Hold no clock from its iteration on."""
        if self._sweep is not None and stop.sweep_id == self._sweep.sweep_id:
            self.end_iteration = min(self.end_iteration, stop.first_iteration)

    def suspend(self, iteration: int) -> None:
        """Go no further than the clock that an iteration holds: only the planner sees that lower ones do not pay."""
        if self._sweep is not None:
            step = self._step(iteration)
            num_steps = 0 if step is None else step + 1
            end = self._sweep.first_iteration + self._sweep.iterations_per_clock * num_steps
            self.end_iteration = min(self.end_iteration, end)

    def abandon(self) -> None:
        """Hold no clock any more, and drop what was not measured to its end."""
        self._sweep = self._current = None

    def clock_mhz(self, iteration: int) -> int | None:
        """The clock that an iteration holds; None for none."""
        step = self._step(iteration)
        return None if step is None or self._sweep is None else self._sweep.clocks_mhz[step]

    def wants_edges(self, iteration: int) -> bool:
        """Whether the energy counter should be watched closely in this iteration and the next."""
        return bool(self._finished) or self._current is not None or self._step(iteration + 1) is not None

    def begin_iteration(self, iteration: int, time_ns: int) -> None:
        """The rank is in step, and the clock may be another one."""
        step = self._step(iteration)
        if self._current is not None and (step != self._current.step or self._sweep is None):
            self._finish(self._current, time_ns)
        if step is not None and self._current is None and self._sweep is not None:
            self._current = Recorder(
                sweep_id=self._sweep.sweep_id,
                step=step,
                clock_mhz=self._sweep.clocks_mhz[step],
                begin_ns=time_ns,
            )
        if iteration >= self.end_iteration:
            self._sweep = None
        self._is_in_step = True
        self._open_span(time_ns)

    def interrupt(self, time_ns: int) -> None:
        """The rank is out of step until its next iteration begins."""
        self._is_in_step = False
        self._close_span(time_ns)

    def settle(self, clock_mhz: int, since_ns: int) -> None:
        """The GPU runs at this clock; it has since then."""
        if self._settled is None or self._settled[0] != clock_mhz:
            self._settled = (clock_mhz, since_ns)
            self._open_span(since_ns)

    def unsettle(self, at_ns: int) -> None:
        """Another clock was asked for, or the GPU ran at another one; since then."""
        self._settled = None
        self._close_span(at_ns)

    def see(self, sample: "MeterSample") -> None:
        """A reading of a GPU whose clock cannot be set: it is measured where it runs at the step's by itself."""
        if self._current is None:
            return
        is_at = is_at_clock(sample, self._current.clock_mhz)
        if is_at:
            self._seen_ns = sample.time_after_ns
            self.settle(self._current.clock_mhz, self._seen_ns)
        elif is_at is not None:
            self.unsettle(self._seen_ns)

    def add_activity(self, key: Key, begin: Stamp, end: Stamp) -> None:
        """Record a period of the rank's work."""
        if self._current is not None:
            self._current.add_activity(key, begin, end)

    def add_device_time(self, sequence: int, device_ns: int, now_ns: int) -> None:
        """When the device passed a boundary, after its iteration's first."""
        for recorder in self._recorders():
            recorder.add_device_time(sequence, device_ns, now_ns)

    def add_edge(self, edge: Edge) -> None:
        """Record an edge of the energy counter."""
        for recorder in self._recorders():
            recorder.add_edge(edge)

    @property
    def due_ns(self) -> int | None:
        """When ``measure`` has something to do; None if never."""
        return self._finished[0].due_ns if self._finished else None

    def measure(self, now_ns: int, clock: HeldClock) -> ProfileSamples | None:
        """The estimate of one finished step, not numbered yet; takes some milliseconds.

        Args:
            now_ns: On the host's monotonic clock.
            clock: The rank's, which knows how long changes have taken.
        """
        due_ns = self.due_ns
        if due_ns is None or due_ns > now_ns:
            return None
        recorder = self._finished.popleft()
        found = recorder.estimate(self._period_ns)
        self.trouble = found.trouble
        return ProfileSamples(
            sequence=0,
            sweep_id=recorder.sweep_id,
            step=recorder.step,
            samples=(*found.samples, *_clock_changes(recorder.clock_mhz, clock)),
            blocking_power_w=found.blocking_power_w,
            switch_latency_s=clock.latency_s,
            last=True,
        )

    def _step(self, iteration: int) -> int | None:
        if self._sweep is None or not self._sweep.first_iteration <= iteration < self.end_iteration:
            return None
        return (iteration - self._sweep.first_iteration) // self._sweep.iterations_per_clock

    def _finish(self, recorder: Recorder, time_ns: int) -> None:
        recorder.end(time_ns)
        self._finished.append(recorder)
        self._current = None

    def _open_span(self, at_ns: int) -> None:
        recorder, settled = self._current, self._settled
        if recorder is not None and settled is not None and self._is_in_step and settled[0] == recorder.clock_mhz:
            recorder.open_span(max(at_ns, settled[1]))

    def _close_span(self, at_ns: int) -> None:
        if self._current is not None:
            self._current.close_span(at_ns)

    def _recorders(self) -> Iterator[Recorder]:
        yield from self._finished
        if self._current is not None:
            yield self._current


def _clock_changes(clock_mhz: int, clock: HeldClock) -> list[Sample]:
    """How long changes to a step's clock have taken; none where none was seen."""
    latencies_s = clock.changes_to_s(clock_mhz)
    if not latencies_s:
        return []
    return [
        Sample(
            chunk=0,
            kind=CLOCK_CHANGE,
            clock_mhz=clock_mhz,
            time_s=median(latencies_s),
            energy_j=0.0,
            time_std_s=0.0,
            energy_std_j=0.0,
            num_runs=len(latencies_s),
            window_s=0.0,
            time_p90_s=latencies_s[math.ceil(0.9 * len(latencies_s)) - 1],
        )
    ]
