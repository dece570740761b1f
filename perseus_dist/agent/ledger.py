"""What every iteration took: time, and energy where the counter tells it. Kept until the planner can be told."""

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass

from perseus_dist.agent.plan_view import RELEASED, Row
from perseus_dist.messages import IterationReport

MAX_REPORTS = 256
_MAX_POINTS = 4096
_MAX_POINT_GAP_NS = 3_000_000_000  # further apart, a straight line between two readings says nothing
_ENERGY_PATIENCE_NS = 1_500_000_000


@dataclass(slots=True, kw_only=True)
class _Iteration:
    iteration: int
    begin_ns: int
    row: Row
    pipeline_end_ns: int | None = None
    end_ns: int | None = None  # of the iteration itself
    next_begin_ns: int = 0


class Ledger:
    """Iterations of one rank.

    Attributes:
        num_lost: Reports that were dropped because nobody took them for too long.
    """

    def __init__(self) -> None:
        self._current: _Iteration | None = None
        self._closed: deque[_Iteration] = deque()
        self._point_times_ns: list[int] = []
        self._point_energies_mj: list[int] = []
        self.num_lost = 0

    def begin_iteration(self, iteration: int, time_ns: int, row: Row = RELEASED) -> None:
        """An iteration begins, and the one before it is over."""
        self.close(time_ns)
        self._current = _Iteration(iteration=iteration, begin_ns=time_ns, row=row)

    def end_pipeline(self, time_ns: int) -> None:
        """From here on the rank waits for its data-parallel peers; said again, the first counts."""
        if self._current is not None and self._current.pipeline_end_ns is None:
            self._current.pipeline_end_ns = time_ns

    def end_iteration(self, time_ns: int) -> None:
        """What follows until the next one begins may be part of it, such as loading data."""
        if self._current is not None:
            self._current.end_ns = time_ns

    def interrupt(self) -> None:
        """Something else comes between this iteration and the next: it ends where it said that it ended, if it did."""
        if self._current is not None and self._current.end_ns is not None:
            self.close(self._current.end_ns)
        self._current = None

    def close(self, time_ns: int) -> None:
        """The current iteration is over."""
        if self._current is None:
            return
        self._current.next_begin_ns = time_ns
        self._closed.append(self._current)
        self._current = None
        if len(self._closed) > MAX_REPORTS:
            self._closed.popleft()
            self.num_lost += 1

    def add_energy(self, time_ns: int, energy_mj: int) -> None:
        """The counter stood at this value then; earlier times than the last are left out."""
        if self._point_times_ns and time_ns <= self._point_times_ns[-1]:
            return
        self._point_times_ns.append(time_ns)
        self._point_energies_mj.append(energy_mj)
        if len(self._point_times_ns) > 2 * _MAX_POINTS:
            del self._point_times_ns[:_MAX_POINTS]
            del self._point_energies_mj[:_MAX_POINTS]

    def take(self, now_ns: int) -> tuple[IterationReport, ...]:
        """Reports whose energy is known, or will not be; oldest first, at most ``MAX_REPORTS``."""
        newest_ns = self._point_times_ns[-1] if self._point_times_ns else 0
        taken = []
        while self._closed:
            done = self._closed[0]
            if newest_ns < done.next_begin_ns and now_ns < done.next_begin_ns + _ENERGY_PATIENCE_NS:
                break
            taken.append(self._report(self._closed.popleft()))
        return tuple(taken)

    def _report(self, done: _Iteration) -> IterationReport:
        begin_mj, end_mj = self._energy_mj(done.begin_ns), self._energy_mj(done.next_begin_ns)
        pipeline_end_ns = next(
            end for end in (done.pipeline_end_ns, done.end_ns, done.next_begin_ns) if end is not None
        )
        return IterationReport(
            iteration=done.iteration,
            time_s=(done.next_begin_ns - done.begin_ns) / 1e9,
            pipeline_time_s=(pipeline_end_ns - done.begin_ns) / 1e9,
            energy_j=None if begin_mj is None or end_mj is None else max(0.0, end_mj - begin_mj) / 1e3,
            table_revision=done.row.table_revision,
            point=done.row.point,
        )

    def _energy_mj(self, time_ns: int) -> float | None:
        """Interpolated; None where the readings around it are too far apart."""
        times, energies = self._point_times_ns, self._point_energies_mj
        after = bisect_left(times, time_ns)
        if not 0 < after < len(times) or times[after] - times[after - 1] > _MAX_POINT_GAP_NS:
            return None
        share = (time_ns - times[after - 1]) / (times[after] - times[after - 1])
        return energies[after - 1] + share * (energies[after] - energies[after - 1])
