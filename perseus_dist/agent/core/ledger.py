"""Time, energy and work of each iteration, kept until the planner can be reached."""

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass

from perseus_dist.agent.following.plan_view import RELEASED, Row
from perseus_dist.agent.measuring.kind_times import IterationRuns
from perseus_dist.messages.from_agent import IterationReport

MAX_REPORTS = 256
_MAX_POINTS = 4096
_MAX_POINT_GAP_NS = 3_000_000_000  # further apart, a straight line between two readings says nothing
_ENERGY_PATIENCE_NS = 1_500_000_000
_RUNS_PATIENCE = 3  # iterations as long as the one whose exact times are waited for
_MAX_TOKENS = 10**15  # more is a wrong number, as is a longer wait
_MAX_WAIT_NS = 10**16
_MAX_LATE_NS = 100_000_000  # of an iteration's begin and end; or, where that is more:
_MAX_LATE_SHARE = 0.1  # of the iteration


@dataclass(slots=True, kw_only=True)
class _Iteration:
    iteration: int
    begin_ns: int
    row: Row
    runs: IterationRuns | None
    tokens: int = 0
    input_wait_ns: int | None = None
    late_ns: int = 0  # its begin and its end were seen so late, at most
    pipeline_end_ns: int | None = None
    end_ns: int | None = None  # of the iteration itself
    end_late_ns: int = 0
    next_begin_ns: int = 0

    @property
    def is_live(self) -> bool:
        """Whether its begin and its end were seen soon enough to say how long it took, and what it drew."""
        duration_ns = self.next_begin_ns - self.begin_ns
        return duration_ns > 0 and self.late_ns <= max(_MAX_LATE_NS, round(_MAX_LATE_SHARE * duration_ns))


class Ledger:
    """Iterations of one rank.

    Attributes:
        num_lost: Reports that were dropped because they had waited too long.
    """

    def __init__(self) -> None:
        self._current: _Iteration | None = None
        self._closed: deque[_Iteration] = deque()
        self._point_times_ns: list[int] = []
        self._point_energies_mj: list[int] = []
        self.num_lost = 0

    def begin_iteration(
        self,
        iteration: int,
        time_ns: int,
        row: Row = RELEASED,
        runs: IterationRuns | None = None,
        *,
        late_ns: int = 0,
    ) -> None:
        """An iteration begins, and the one before it is over.

        Args:
            iteration: Its number.
            time_ns: Now.
            row: Its clocks.
            runs: Where exact times come together; None where none are collected.
            late_ns: How late that was seen, at most.
        """
        self.close(time_ns, late_ns=late_ns)
        self._current = _Iteration(iteration=iteration, begin_ns=time_ns, row=row, runs=runs, late_ns=late_ns)

    def end_pipeline(self, time_ns: int) -> None:
        """From here on the rank waits for its data-parallel peers; said again, the first counts."""
        if self._current is not None and self._current.pipeline_end_ns is None:
            self._current.pipeline_end_ns = time_ns

    def add_work(self, tokens: int, input_wait_ns: int) -> None:
        """Work of the iteration, as the trainer reports it: 0 tokens and a negative wait where it does not know."""
        if self._current is not None:
            self._current.tokens = tokens if tokens <= _MAX_TOKENS else 0
            self._current.input_wait_ns = input_wait_ns if 0 <= input_wait_ns <= _MAX_WAIT_NS else None

    def end_iteration(self, time_ns: int, *, late_ns: int = 0) -> None:
        """End an iteration. The time until the next one begins may belong to it, such as loading data."""
        if self._current is not None:
            self._current.end_ns, self._current.end_late_ns = time_ns, late_ns

    def interrupt(self) -> None:
        """Something else comes between this iteration and the next: it ends where it said that it ended, if it did."""
        if self._current is not None and self._current.end_ns is not None:
            self.close(self._current.end_ns, late_ns=self._current.end_late_ns)
        self._current = None

    def close(self, time_ns: int, *, late_ns: int = 0) -> None:
        """The current iteration is over; that was seen so late, at most."""
        if self._current is None:
            return
        self._current.next_begin_ns = time_ns
        self._current.late_ns = max(self._current.late_ns, late_ns)
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

    def take(self, now_ns: int, *, is_last: bool = False) -> tuple[IterationReport, ...]:
        """Reports of which all is known that will be; oldest first, at most ``MAX_REPORTS``.

        Args:
            now_ns: Now.
            is_last: What is not known yet never will be.
        """
        taken = []
        while self._closed and (is_last or not self._may_learn_more(self._closed[0], now_ns)):
            taken.append(self._report(self._closed.popleft()))
        return tuple(taken)

    def _may_learn_more(self, done: _Iteration, now_ns: int) -> bool:
        newest_ns = self._point_times_ns[-1] if self._point_times_ns else 0
        waited_ns = now_ns - done.next_begin_ns
        if newest_ns < done.next_begin_ns and waited_ns < _ENERGY_PATIENCE_NS:
            return True
        patience_ns = max(_ENERGY_PATIENCE_NS, _RUNS_PATIENCE * (done.next_begin_ns - done.begin_ns))
        return done.runs is not None and done.runs.is_waiting and waited_ns < patience_ns

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
            kind_times=done.runs.kind_times if done.runs is not None else (),
            tokens=float(done.tokens),
            input_wait_s=_input_wait_s(done),
            is_live=done.is_live,
        )

    def _energy_mj(self, time_ns: int) -> float | None:
        """Interpolated; None where the readings around it are too far apart."""
        times, energies = self._point_times_ns, self._point_energies_mj
        after = bisect_left(times, time_ns)
        if not 0 < after < len(times) or times[after] - times[after - 1] > _MAX_POINT_GAP_NS:
            return None
        share = (time_ns - times[after - 1]) / (times[after] - times[after - 1])
        return energies[after - 1] + share * (energies[after] - energies[after - 1])


def _input_wait_s(done: _Iteration) -> float | None:
    """[s] as the trainer reports it; otherwise the time that loading took, where the schedule has it."""
    if done.input_wait_ns is not None:
        return done.input_wait_ns / 1e9
    return done.runs.load_s if done.runs is not None else None
