"""One GPU on the bench: its workload, its clock, its readings, and the few things that are done with them."""

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

from perseus_dist.device.control import ClockReport
from perseus_dist.measure.bench.gpu_watch import GpuWatch
from perseus_dist.measure.bench.kept_control import KeptControl
from perseus_dist.measure.bench.workload import Workload
from perseus_dist.measure.errors import MeasureError
from perseus_dist.measure.estimates import Span, busy_spans, mean_power_w

_AHEAD = 3  # runs that the host launches ahead, so that the device never waits for it
_PROBES_AHEAD = 20
_PROBES_AT_ONCE = 1000
_SETTLED_NS = 60_000_000  # after a clock was reached or work has changed, until power counts
_ANSWER_S = 10.0
_WELL_KNOWN = 0.005  # standard error of power, as a share of it, with which a block is not measured again
_MAX_TRIES = 3  # each twice as long, where the counter was read badly


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One kind of work, repeated for a while at one clock.

    Attributes:
        kind: F or B; "" for waiting.
        begin_ns, end_ns: [ns] what of it was counted, pauses of a device that waited for its host within it left out.
        times_s: [s] of each run; () for waiting.
        power_w, power_se_w: [W] mean and its standard error.
        clock_mhz: SM clock, the median of what was read; 0 where it could not be.
        event_reasons: NVML's, bits, all that were read.
        temperature_c: The last that was read; None where it could not be.
    """

    kind: str
    begin_ns: int
    end_ns: int
    times_s: tuple[float, ...]
    power_w: float
    power_se_w: float
    clock_mhz: int
    event_reasons: int
    temperature_c: int | None


class Runs:
    """The same thing launched again and again, each time between two marks, a little ahead of the device."""

    def __init__(self, workload: Workload, launch: Callable[[], None], *, num_ahead: int) -> None:
        self._workload = workload
        self._launch = launch
        self._num_ahead = num_ahead
        self._marks: list[Any] = []

    @property
    def num_launched(self) -> int:
        """Number of times it was launched; each holds two of the device's events until its times are read."""
        return len(self._marks) // 2

    def launch(self) -> None:
        """Once more; waits where enough is ahead."""
        self._marks.append(self._workload.mark())
        self._launch()
        self._marks.append(self._workload.mark())
        if len(self._marks) > 2 * self._num_ahead:
            self._workload.wait(self._marks[-1 - 2 * self._num_ahead])

    def times_ns(self) -> tuple[list[int], list[int]]:
        """[ns, CLOCK_MONOTONIC] when each began and ended. Waits for the last one, and is the end of this object."""
        times_ns = self._workload.times_ns(self._marks)
        return times_ns[::2], times_ns[1::2]


class Bench:
    """The GPU, its clock control, its meter and its workload, for a measurement.

    Attributes:
        workload: What runs.
        control: The GPU's clock; of ``observe`` nothing is asked.
        watch: What is read.
        period_ns: Of the energy counter, about.
    """

    def __init__(self, workload: Workload, control: KeptControl, watch: GpuWatch, period_ns: int) -> None:
        self.workload = workload
        self.control = control
        self.watch = watch
        self.period_ns = period_ns
        self._reports: list[ClockReport] = []
        self._is_observing = False

    def request(self, clock_mhz: int) -> int:
        """Ask for a clock; when that was [ns]."""
        now_ns = time.monotonic_ns()
        self.control.request(clock_mhz, now_ns)
        return now_ns

    def report_of(self, request_ns: int) -> ClockReport | None:
        """The result of a request, once it is known.

        Raises:
            MeasureError: The clock cannot be set, or not any more.
        """
        self._reports += self.control.poll(time.monotonic_ns())
        self.check_control()
        for report in self._reports:
            if report.request_ns >= request_ns:  # later where the control was lost meanwhile
                self._reports.clear()
                if report.error:
                    raise MeasureError(f"{report.requested_mhz} MHz could not be set: {report.error}")
                return report
        return None

    def try_control(self) -> str:
        """Set the maximum clock, as NVML tells rights only when they are used; from then on observe where that fails.

        Returns:
            Why no clock can be set; empty if one was.
        """
        refusal = self.control.refusal
        if not refusal:
            try:
                self.hold(self.control.clocks_mhz[0])
            except MeasureError as error:
                refusal = str(error)
                self.control.request(None, time.monotonic_ns())  # whatever became of it
        self._is_observing = bool(refusal)
        return refusal

    def hold(self, clock_mhz: int) -> ClockReport:
        """Ask for a clock under load, and wait until it is there, or is known not to come.

        Raises:
            MeasureError: It cannot be set.
        """
        request_ns = self.request(clock_mhz)
        until_s = time.monotonic() + _ANSWER_S
        probes = self.probes()
        while time.monotonic() < until_s:
            probes.launch()
            report = self.report_of(request_ns)
            if report is not None or probes.num_launched == _PROBES_AT_ONCE:
                probes.times_ns()
                if report is not None:
                    return report
                probes = self.probes()
        probes.times_ns()
        raise MeasureError(f"{self.control.name} has not answered for {_ANSWER_S:g} s; look at 'perseus-dist doctor'")

    def probes(self) -> "Runs":
        """Short kernels one after the other."""
        return Runs(self.workload, self.workload.probe, num_ahead=_PROBES_AHEAD)

    def run(self, kind: str, seconds: float) -> Block:
        """Repeat one kind of work for about so long, longer where the counter was read badly.

        Raises:
            MeasureError: Power cannot be determined.
        """
        block = best_block(self._run(kind, seconds * 2**doubling) for doubling in range(_MAX_TRIES))
        if block is None:
            raise MeasureError(
                f"the energy counter's publications could not be located within {seconds * (2**_MAX_TRIES - 1):.1f} s; "
                "is this machine very busy? Measure again when it is quiet"
            )
        return block

    def wait_blocked(self, seconds: float) -> Block:
        """Let the GPU wait as in a receive, for about so long.

        Raises:
            MeasureError: Power cannot be determined.
        """
        block = best_block(self._wait_blocked(seconds * 2**doubling) for doubling in range(_MAX_TRIES))
        if block is None:
            raise MeasureError("the power of a waiting GPU could not be told; measure again when this machine is quiet")
        return block

    def check_control(self) -> None:
        """Whether clocks can still be set, where they could.

        Raises:
            MeasureError: The lease is lost.
        """
        if self.control.refusal and not self._is_observing:
            raise MeasureError(f"the GPU's clock cannot be set any more: {self.control.refusal}")

    def _run(self, kind: str, seconds: float) -> Block | None:
        until_ns = time.monotonic_ns() + round(seconds * 1e9) + _SETTLED_NS
        runs = Runs(self.workload, lambda: self.workload.launch(kind), num_ahead=_AHEAD)
        while time.monotonic_ns() < until_ns:
            runs.launch()
            self._reports += self.control.poll(time.monotonic_ns())
        self.check_control()
        begins_ns, ends_ns = runs.times_ns()
        settled_ns = begins_ns[0] + _SETTLED_NS
        counted = [index for index, begin_ns in enumerate(begins_ns) if begin_ns >= settled_ns]
        if len(counted) < 2:
            return None
        times_s = tuple((ends_ns[index] - begins_ns[index]) / 1e9 for index in counted)
        return self._block(kind, busy_spans(begins_ns, ends_ns, _SETTLED_NS), times_s)

    def _wait_blocked(self, seconds: float) -> Block | None:
        self.workload.block(seconds)
        begin_ns = time.monotonic_ns() + _SETTLED_NS
        end_mark = self.workload.mark()
        (end_ns,) = self.workload.times_ns([end_mark])
        return self._block("", [(begin_ns, end_ns)], ())

    def _block(self, kind: str, spans: Sequence[Span], times_s: tuple[float, ...]) -> Block | None:
        if not spans:
            return None
        begin_ns, end_ns = spans[0][0], spans[-1][1]
        power = mean_power_w(self.watch.edges(begin_ns), spans, self.period_ns)
        if power is None:
            return None
        looks = self.watch.looks(begin_ns, end_ns)
        clocks = [look.clock_mhz for look in looks if look.clock_mhz is not None]
        return Block(
            kind=kind,
            begin_ns=begin_ns,
            end_ns=end_ns,
            times_s=times_s,
            power_w=power[0],
            power_se_w=power[1],
            clock_mhz=round(statistics.median_low(clocks)) if clocks else 0,
            event_reasons=reduce(or_, (look.event_reasons or 0 for look in looks), 0),
            temperature_c=next((look.temperature_c for look in reversed(looks)), None),
        )


def best_block(tries: Iterable[Block | None]) -> Block | None:
    """The first try whose power is known to half a percent; without one, that with the smallest standard error.

    Args:
        tries: None is one whose power could not be determined. Those behind the first good one are not begun.
    """
    found: list[Block] = []
    for block in tries:
        if block is not None:
            found.append(block)
            if block.power_se_w <= _WELL_KNOWN * block.power_w:
                break
    return min(found, key=lambda block: block.power_se_w, default=None)
