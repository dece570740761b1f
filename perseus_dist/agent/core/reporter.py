"""Regular messages to the planner: iterations, GPU readings, counts, drift. Numbers them."""

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from perseus_dist.agent.core.ledger import MAX_REPORTS, Ledger
from perseus_dist.agent.following.plan_view import Row
from perseus_dist.agent.following.position import Stamp
from perseus_dist.agent.following.rank_program import Work
from perseus_dist.agent.measuring.drift import DriftWatch
from perseus_dist.agent.measuring.held_clock import HeldClock
from perseus_dist.agent.measuring.kind_times import KindTimes
from perseus_dist.agent.measuring.throttle_reporter import ThrottleReporter
from perseus_dist.messages.from_agent import Drift, IterationReport, Telemetry
from perseus_dist.messages.from_planner import Expected

if TYPE_CHECKING:
    from perseus_dist.device.nvml.meter import MeterSample

TELEMETRY_NS = 1_000_000_000


class Reporter:
    """Composes telemetry and drift.

    Args:
        order: Of the rank.
        clock: What is asked for.
        drift_tolerance: As in ``Settings``.

    Attributes:
        ledger: Iterations.
        kind_times: What instructions took in them.
        drift: What is watched for it.
        gpu: Readings.
        unresolved: Drifts that no new table has answered yet.
        latest: The last whole reading of the meter; None before the first.
        meter_trouble: Why the meter cannot read, in a sentence; empty while it can.
        num_lost_boundaries: Since the start.
        due_ns: When the next collection and telemetry are.
    """

    def __init__(self, order: Sequence[Work], clock: HeldClock, drift_tolerance: float) -> None:
        self._clock = clock
        self.ledger = Ledger()
        self.kind_times = KindTimes(order)
        self.gpu = ThrottleReporter(clock)
        self.drift = DriftWatch(drift_tolerance)
        self.unresolved: tuple[Drift, ...] = ()
        self.latest: MeterSample | None = None
        self.meter_trouble = ""
        self.num_lost_boundaries = 0
        self.due_ns = 0
        self._untold: deque[IterationReport] = deque(maxlen=MAX_REPORTS)
        self._num_untold_lost = 0
        self._telemetry_sequence = 0
        self._drift_sequence = 0

    def begin_iteration(self, begin: Stamp, row: Row, followed_mhz: tuple[int, ...] | None, *, late_ns: int) -> None:
        """An iteration begins.

        Args:
            begin: Its first boundary.
            row: Its clocks.
            followed_mhz: Those of the plan that it follows; None where it follows none.
            late_ns: How late that was seen, at most.
        """
        runs = self.kind_times.begin_iteration(begin.iteration, followed_mhz)
        self.ledger.begin_iteration(begin.iteration, begin.time_ns, row, runs, late_ns=late_ns)

    def end_iteration(self, time_ns: int, followed_mhz: tuple[int, ...] | None, *, late_ns: int) -> None:
        """End an iteration that was followed at these clocks to its end; its end was seen at most ``late_ns`` late."""
        self.ledger.end_iteration(time_ns, late_ns=late_ns)
        self.kind_times.end_iteration(followed_mhz)

    def collect(self, now_ns: int, *, is_last: bool = False) -> tuple[IterationReport, ...]:
        """Iterations that are known by now, each once; the next telemetry carries them to the planner."""
        self.due_ns = now_ns + TELEMETRY_NS
        reports = self.ledger.take(now_ns, is_last=is_last)
        self._num_untold_lost += max(0, len(self._untold) + len(reports) - MAX_REPORTS)
        self._untold.extend(reports)
        return reports

    def telemetry(self, *, iteration: int, control: str, trouble: str) -> Telemetry:
        """The next one; what it tells of iterations is forgotten here.

        Args:
            iteration: Begun last.
            control: As in ``Gpu``.
            trouble: What is wrong, in a sentence.
        """
        self._telemetry_sequence += 1
        iterations = tuple(self._untold)
        self._untold.clear()
        return Telemetry(
            sequence=self._telemetry_sequence,
            iteration=iteration,
            iterations=iterations,
            gpu=self.gpu.tell(),
            lost_boundaries=self.num_lost_boundaries,
            lost_reports=self.ledger.num_lost + self._num_untold_lost,
            clock_changes=self._clock.num_changes,
            missed_clocks=self._clock.num_missed,
            control=control,
            trouble=trouble,
        )

    def expect(self, expected: Sequence[Expected]) -> None:
        """A new table, with its slice of the profile: what instructions take is judged by it from now on."""
        self.kind_times.expect(expected)
        self.drift.expect(expected)
        self.unresolved = ()

    def drifts(self) -> list[Drift]:
        """Instructions that have newly drifted by the end of this iteration."""
        found = []
        for drifted in self.drift.end_iteration():
            chunk, kind = drifted.key
            self._drift_sequence += 1
            found.append(
                Drift(
                    sequence=self._drift_sequence,
                    chunk=chunk,
                    kind=kind,
                    clock_mhz=drifted.clock_mhz,
                    profile_time_s=drifted.profile_time_s,
                    measured_time_s=drifted.measured_time_s,
                    num_runs=drifted.num_runs,
                    num_iterations=drifted.num_iterations,
                )
            )
        self.unresolved += tuple(found)
        return found


def drift_sentence(drift: Drift) -> str:
    """The log's sentence on a computation whose time has left its profile."""
    return (
        f"drift: {drift.kind} of chunk {drift.chunk} takes {drift.measured_time_s:.4f} s at {drift.clock_mhz} MHz, "
        f"profiled {drift.profile_time_s:.4f} s"
    )
