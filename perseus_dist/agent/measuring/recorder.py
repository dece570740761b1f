"""One step of a sweep while it runs: what the GPU did, edges of its energy counter, and when its clock was right.

Where boundaries are ordered by the device, they are seen late by the polling. The device's own times come later; each
counts from its iteration's first boundary, and the boundary that was seen with the least delay ties them to the clock
of the host, by which the energy counter is read.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from perseus_dist.agent.following.position import Stamp
from perseus_dist.agent.measuring.counter import Edge
from perseus_dist.agent.measuring.profiler import Activity, Estimate, Key, Span, estimate

_GRACE_NS = 300_000_000  # edges are on their way
_DEVICE_GRACE_NS = 3_000_000_000  # device times come with one of the next iterations


class _Recorded(NamedTuple):
    key: Key
    begin: Stamp
    end: Stamp


@dataclass(slots=True, kw_only=True)
class Recorder:
    """Collects until the step is over.

    Attributes:
        due_ns: When the estimate is to be made; None while the step runs.
    """

    sweep_id: int
    step: int
    clock_mhz: int
    begin_ns: int
    due_ns: int | None = None
    _recorded: list[_Recorded] = field(default_factory=list)
    _device_ns: dict[int, int] = field(default_factory=dict)  # by sequence
    _edges: list[Edge] = field(default_factory=list)
    _spans: list[Span] = field(default_factory=list)
    _open_ns: int | None = None

    def add_activity(self, key: Key, begin: Stamp, end: Stamp) -> None:
        """Record the next period of the GPU's work."""
        self._recorded.append(_Recorded(key, begin, end))

    def add_device_time(self, sequence: int, device_ns: int, now_ns: int) -> None:
        """When the device passed a boundary, after its iteration's first."""
        self._device_ns[sequence] = device_ns
        if self.due_ns is not None and self._recorded and sequence >= self._recorded[-1].end.sequence:
            self.due_ns = min(self.due_ns, now_ns)

    def add_edge(self, edge: Edge) -> None:
        """The next one; those behind the step's end do not matter."""
        self._edges.append(edge)

    def open_span(self, at_ns: int) -> None:
        """From here on the clock is right and the rank in step."""
        if self._open_ns is None and self.due_ns is None:
            self._open_ns = max(at_ns, self.begin_ns)

    def close_span(self, at_ns: int) -> None:
        """Until here it was; earlier than what was recorded before, if that turns out to be doubtful."""
        self._spans = [Span(s.begin_ns, min(s.end_ns, at_ns)) for s in self._spans if s.begin_ns < at_ns]
        if self._open_ns is not None and self._open_ns < at_ns:
            self._spans.append(Span(self._open_ns, at_ns))
        self._open_ns = None

    def end(self, now_ns: int) -> None:
        """The step is over; what is on its way is still taken."""
        self.close_span(now_ns)
        self.due_ns = now_ns + (_DEVICE_GRACE_NS if self._device_ns else _GRACE_NS)

    def estimate(self, period_ns: int) -> Estimate:
        """Fit what was collected."""
        return estimate(
            clock_mhz=self.clock_mhz,
            period_ns=period_ns,
            spans=self._spans,
            activities=self._activities(),
            edges=self._edges,
        )

    def _activities(self) -> list[Activity]:
        """On the host's clock, by the device's times where there are any."""
        first_ns: dict[int, int] = {}
        for recorded in self._recorded:
            for stamp in (recorded.begin, recorded.end):
                if stamp.sequence in self._device_ns:
                    candidate_ns = stamp.time_ns - self._device_ns[stamp.sequence]
                    first_ns[stamp.iteration] = min(candidate_ns, first_ns.get(stamp.iteration, candidate_ns))

        def time_ns(stamp: Stamp) -> int:
            if stamp.sequence in self._device_ns:
                return first_ns[stamp.iteration] + self._device_ns[stamp.sequence]
            return stamp.time_ns

        return [
            Activity(
                time_ns(recorded.begin),
                time_ns(recorded.end),
                recorded.key,
                is_exact=recorded.begin.sequence in self._device_ns and recorded.end.sequence in self._device_ns,
            )
            for recorded in self._recorded
        ]
