"""Judges the plan that an absent planner has left: does an iteration under it take no longer than the target allows?

While the planner is there, its own guard judges by probes at full clocks that it orders. While it is away, a link or a
GPU that becomes slow may turn a plan that was on time into one that is late, and a straggler that a plan waits for may
recover. So each rank compares with itself: with what iterations took when the planner went away, and, at the same
iterations as all other ranks, with what they take at full clocks. A rank that is cut off alone does not hear of a new
target and may delay the others. Its own iterations show that: the others do not probe with it, or have become faster.
"""

import sys
from collections import deque
from collections.abc import Collection
from statistics import median

from perseus_dist.agent.following.plan_view import RELEASED, Row
from perseus_dist.messages.terms import NO_POINT

_NUM_USUAL = 16  # iterations
_NUM_LATEST = 8  # iterations
_NUM_RELEASED = 8  # iterations
_TOLERANCE = 0.02
_LEAST_TOLERANCE = 0.005  # of a probe's comparison, where iterations are as long as each other
_Z = 3.5
# Iterations between the begins of two probes; ranks that hear of no planner agree by the iterations' numbers.
_PROBE_GAP = 64
_WAITING_PROBE_GAP = 16
_NUM_PROBE_ITERATIONS = 3  # the first is not counted: clocks are still on their way


class AbsenceGuard:
    """Iterations of one rank.

    An iteration's time is the same on all ranks of a job, as they wait for each other, so all of them come to the same
    verdict within an iteration or so; until then one that has released its clocks is early, never late.

    Attributes:
        verdict: Why the plan is given up until the planner is back, a clause; empty while it is not.
    """

    def __init__(self) -> None:
        self.verdict = ""
        self._absence = range(0)  # iterations
        self._given_up = range(0)  # iterations
        self._row = RELEASED
        self._begin_ns: int | None = None
        self._num_full = 0  # iterations at full clocks in a row, to this one
        self._released_ns: deque[int] = deque(maxlen=_NUM_RELEASED)  # in the newest row of those with the planner
        # Under this row: the last ones with the planner, filled up by the first ones without it; the last ones without.
        self._usual_ns: deque[int] = deque(maxlen=_NUM_USUAL)
        self._latest_ns: deque[int] = deque(maxlen=_NUM_LATEST)
        self._full_ns: deque[int] = deque(maxlen=_NUM_PROBE_ITERATIONS - 1)  # of a probe

    def leave(self, iteration: int) -> None:
        """The planner is gone; said again, the first counts.

        Args:
            iteration: Begun last.
        """
        if not self._is_away:
            self._absence = range(iteration + 1, sys.maxsize)
            self._latest_ns.clear()

    def come_back(self, iteration: int) -> None:
        """The planner is there again, and judges by itself.

        Args:
            iteration: Begun last; it goes on as it is.
        """
        self.verdict = ""
        self._absence = range(self._absence.start, min(self._absence.stop, iteration + 1))
        self._given_up = range(self._given_up.start, min(self._given_up.stop, iteration + 1))

    def is_free(self, iteration: int) -> bool:
        """Whether it runs at full clocks, whatever the plan says."""
        return iteration in self._given_up or self._is_probed(iteration)

    def begin_iteration(self, row: Row, time_ns: int) -> None:
        """An iteration begins at these clocks."""
        self._num_full = self._num_full + 1 if row == RELEASED else 0
        self._begin_ns = time_ns if self._num_full or row.point != NO_POINT else None
        if row.point != NO_POINT and row != self._row:
            self._row = row
            for durations_ns in (self._usual_ns, self._latest_ns, self._full_ns):
                durations_ns.clear()

    def end_iteration(self, iteration: int, time_ns: int) -> None:
        """Take note of its end, unless parts of it are not known."""
        if self._begin_ns is None or self.verdict:
            return
        duration_ns = time_ns - self._begin_ns
        self._begin_ns = None
        if iteration not in self._absence:
            if not self._num_full:
                self._usual_ns.append(duration_ns)
            elif self._num_full > 1:  # else clocks were on their way
                if self._num_full == 2:
                    self._released_ns.clear()
                self._released_ns.append(duration_ns)
        elif not self._is_away:
            return  # the planner has come back within it, and judges by itself
        elif self._is_probed(iteration):
            self._probe(iteration, duration_ns)
        elif not self._num_full:
            self._full_ns.clear()  # a probe may begin in its midst, where it has become due sooner
            if len(self._usual_ns) < _NUM_USUAL:
                self._usual_ns.append(duration_ns)
            else:
                self._latest_ns.append(duration_ns)
                self._compare(iteration)

    def _probe(self, iteration: int, duration_ns: int) -> None:
        if iteration % self._probe_gap == 0:
            self._full_ns.clear()
            return
        self._full_ns.append(duration_ns)
        durations_ns = self._latest_ns or self._usual_ns
        if len(self._full_ns) < _NUM_PROBE_ITERATIONS - 1 or not durations_ns:
            return
        # Whichever of them was slower may be how fast the job is.
        full_ns, planned_ns = max(self._full_ns), median(durations_ns)
        allowed_ns = max(self._row.max_slowdown * full_ns, self._row.deadline_s * 1e9)
        excess = planned_ns / allowed_ns - 1 if allowed_ns else 0.0
        noise = _Z * _scatter(durations_ns)
        least = min(max(_LEAST_TOLERANCE, noise), _TOLERANCE)
        if excess > least:
            self._give_up(iteration, f"iterations take {excess:.1%} longer than the job's target allows")
        elif why := self._why_outdated(full_ns, excess, noise):
            self._give_up(iteration, why)
        elif self._are_shorter:
            self._usual_ns.clear()
            self._usual_ns.extend(self._latest_ns)

    def _why_outdated(self, full_ns: int, excess: float, noise: float) -> str:
        """Why others may follow another plan than this rank, and wait for it; empty if nothing says so.

        A plan for the time at full clocks makes none wait. Where others are held to be slow for it, and wait as well,
        iterations are as long in a probe of this rank alone as under its plan.

        Args:
            full_ns: [ns] an iteration of the probe.
            excess: Share by which iterations under the plan are longer than the target allows; below 0 if shorter.
            noise: Share by which one of them may be longer by itself.
        """
        row = self._row
        if not (row.max_slowdown > 1 or row.deadline_s or row.is_waiting):
            return ""
        if self._released_ns and full_ns > (1 + _TOLERANCE + noise) * median(self._released_ns):
            return "in a probe iterations are longer than they were at full clocks"
        if excess < -_TOLERANCE and self._are_shorter:
            return f"iterations have become more than {_TOLERANCE:.0%} shorter"
        return ""

    def _compare(self, iteration: int) -> None:
        if len(self._latest_ns) < _NUM_LATEST:
            return
        if median(self._latest_ns) > (1 + _TOLERANCE) * median(self._usual_ns):
            self._give_up(iteration, f"iterations have become more than {_TOLERANCE:.0%} longer")

    def _give_up(self, iteration: int, verdict: str) -> None:
        self.verdict = verdict
        self._given_up = range(iteration + 1, sys.maxsize)

    @property
    def _is_away(self) -> bool:
        return self._absence.stop == sys.maxsize

    @property
    def _are_shorter(self) -> bool:
        """Whether iterations are shorter than they were, as where the others follow another plan."""
        return len(self._latest_ns) == _NUM_LATEST and (
            median(self._latest_ns) < (1 - _TOLERANCE) * median(self._usual_ns)
        )

    @property
    def _probe_gap(self) -> int:
        return _WAITING_PROBE_GAP if self._row.is_waiting or self._are_shorter else _PROBE_GAP

    def _is_probed(self, iteration: int) -> bool:
        place = iteration % self._probe_gap
        return place < _NUM_PROBE_ITERATIONS and iteration in self._absence and iteration - place in self._absence


def _scatter(durations_ns: Collection[int]) -> float:
    """Standard deviation of durations as a share of their median, by the absolute deviations' median."""
    middle_ns = median(durations_ns)
    return 1.4826 * median(abs(one - middle_ns) for one in durations_ns) / middle_ns if middle_ns else 0.0
