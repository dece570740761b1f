"""Power of the groups of budgets over time, for those who look at it: once a second, for half an hour, in memory."""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from perseus_dist.planner.budget.sharing import BudgetState

NUM_KEPT = 1800
_PERIOD_S = 1.0


class PowerSample(NamedTuple):
    """[W] of a group at a Unix time; None for no cap, and for power that is not known of all jobs."""

    at_s: float
    cap_w: float | None
    planned_w: float
    measured_w: float | None


class PowerHistory:
    """Samples of each budget that there is, oldest first."""

    def __init__(self) -> None:
        self._of: dict[str, deque[PowerSample]] = {}

    def add(self, states: Iterable[BudgetState], now_s: float) -> None:
        """Note the states of all budgets; those of budgets that are gone are forgotten."""
        kept: dict[str, deque[PowerSample]] = {}
        for state in states:
            samples = kept[state.budget.name] = self._of.get(state.budget.name, deque(maxlen=NUM_KEPT))
            while samples and samples[-1].at_s > now_s:  # the clock was set back
                samples.pop()
            if not samples or now_s - samples[-1].at_s >= _PERIOD_S:
                samples.append(PowerSample(now_s, state.cap_w, state.planned_w, state.measured_w))
        self._of = kept

    def of(self, budget: str) -> list[PowerSample]:
        """Samples of a budget, oldest first; none of a budget that is not known."""
        return list(self._of.get(budget, ()))
