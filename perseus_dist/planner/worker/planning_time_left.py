"""How long planning still takes, by how far the solver says that it is: also where none of the size was planned."""

import time
from collections.abc import Callable

from perseus_dist.planning.frontier.frontier import REALISING

_LEAST_SHARE = 0.02  # of a phase, from which it says something of the rest
_LEAST_S = 0.5
_LEAST_TRACED_S = 3.0  # a frontier that is traced in less has its plans realised before long

Expect = Callable[[float], None]
"""Is called with the time [s] that is left."""


class PlanningTimeLeft:
    """Progress of the frontiers of one request, one after the other; as ``Progress`` of ``plan_frontier``.

    While a large frontier is traced, its plans count with as long as tracing takes, or with what those of the frontier
    before took. Nothing is reported before the plans of a small one are realised: most of its work where changes of
    clocks take time.

    Args:
        num_frontiers: That are planned, each about as long.
        expect: Called with the time [s] that is left.
        now_s: The clock.
    """

    def __init__(self, num_frontiers: int, expect: Expect, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._num_left = num_frontiers
        self._expect = expect
        self._now_s = now_s
        self._began_s = self._phase_began_s = now_s()
        self._phase = ""
        self._traced_s = 0.0
        self._realising_ratio = 1.0  # time of realising over that of tracing

    def begin_frontier(self) -> None:
        """The next frontier of the request begins."""
        now_s = self._now_s()
        if self._phase == REALISING and self._traced_s > 0:
            self._realising_ratio = (now_s - self._phase_began_s) / self._traced_s
        self._num_left -= 1
        self._began_s = now_s
        self._phase = ""

    def __call__(self, phase: str, share: float) -> bool:
        """Take note of a share of a phase; never cancels."""
        now_s = self._now_s()
        if phase != self._phase:
            if phase == REALISING:
                self._traced_s = now_s - self._began_s
            self._phase, self._phase_began_s = phase, now_s
        spent_s = now_s - self._phase_began_s
        is_last_phase = phase == REALISING or phase.startswith("plans by")
        if share >= _LEAST_SHARE and spent_s >= (_LEAST_S if is_last_phase else _LEAST_TRACED_S):
            left_s = spent_s * (1 - share) / share
            if not is_last_phase:
                left_s += self._realising_ratio * spent_s / share
            self._expect(left_s + self._num_left * (now_s - self._began_s + left_s))
        return True
