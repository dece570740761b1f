"""What the planner is told regularly: iterations, the GPU, counts, drift. Numbers messages."""

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from perseus_dist.agent.drift import DriftWatch
from perseus_dist.agent.held_clock import HeldClock
from perseus_dist.agent.ledger import MAX_REPORTS, Ledger
from perseus_dist.messages import Drift, Expected, GpuSample, IterationReport, Telemetry

if TYPE_CHECKING:
    from perseus_dist.device.meter import MeterSample

TELEMETRY_NS = 1_000_000_000
_LAST_CALL_NS = 10_000_000_000  # what is not known at the end never will be


class Reporter:
    """Composes telemetry and drift.

    Attributes:
        ledger: Iterations.
        drift: What is watched for it.
        unresolved: Drifts that no new table has answered yet.
        latest: The last whole reading of the meter; None before the first.
        num_lost_boundaries: Since the start.
        due_ns: When the next collection and telemetry are.
    """

    def __init__(self, drift_tolerance: float) -> None:
        self.ledger = Ledger()
        self.drift = DriftWatch(drift_tolerance)
        self.unresolved: tuple[Drift, ...] = ()
        self.latest: MeterSample | None = None
        self.num_lost_boundaries = 0
        self.due_ns = 0
        self._untold: deque[IterationReport] = deque(maxlen=MAX_REPORTS)
        self._num_untold_lost = 0
        self._telemetry_sequence = 0
        self._drift_sequence = 0

    def collect(self, now_ns: int, *, is_last: bool = False) -> tuple[IterationReport, ...]:
        """Iterations that are known by now, each once; the planner is told them with the next telemetry."""
        self.due_ns = now_ns + TELEMETRY_NS
        reports = self.ledger.take(now_ns + _LAST_CALL_NS if is_last else now_ns)
        self._num_untold_lost += max(0, len(self._untold) + len(reports) - MAX_REPORTS)
        self._untold.extend(reports)
        return reports

    def telemetry(self, *, clock: HeldClock, control: str, trouble: str) -> Telemetry:
        """The next one; what it tells of iterations is forgotten here."""
        self._telemetry_sequence += 1
        iterations = tuple(self._untold)
        self._untold.clear()
        return Telemetry(
            sequence=self._telemetry_sequence,
            iterations=iterations,
            gpu=_gpu_sample(self.latest),
            lost_boundaries=self.num_lost_boundaries,
            lost_reports=self.ledger.num_lost + self._num_untold_lost,
            clock_changes=clock.num_changes,
            missed_clocks=clock.num_missed,
            control=control,
            trouble=trouble,
        )

    def expect(self, expected: Sequence[Expected]) -> None:
        """A new table, with its slice of the profile: what has drifted is judged by it from now on."""
        self.drift.expect(expected)
        self.unresolved = ()

    def drifts(self) -> list[Drift]:
        """What has newly drifted by the end of this iteration."""
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
                )
            )
        self.unresolved += tuple(found)
        return found


def drift_sentence(drift: Drift) -> str:
    """For the log."""
    return (
        f"drift: {drift.kind} of chunk {drift.chunk} takes {drift.measured_time_s:.4f} s at {drift.clock_mhz} MHz, "
        f"profiled {drift.profile_time_s:.4f} s"
    )


def _gpu_sample(sample: "MeterSample | None") -> GpuSample:
    if sample is None:
        return GpuSample()
    return GpuSample(
        power_w=(sample.power_mw or 0) / 1e3,
        clock_mhz=sample.clock_mhz or 0,
        event_reasons=sample.event_reasons or 0,
        temperature_c=float(sample.temperature_c or 0),
    )
