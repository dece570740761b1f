"""Results of a simulated job: measured before any plan, measured under the plan, and predicted."""

from dataclasses import dataclass
from typing import Any

from perseus_dist.planner.job.measured_iterations import MeasuredIterations


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Energies are of one iteration of the whole job.

    Attributes:
        baseline: Before any plan.
        enforced: Under the last plan.
        predicted_saving: Share, by the profile that was measured.
        predicted_saving_low, predicted_saving_high: Where it is likely to lie; both 0 where that is not known.
        num_profiled_clocks: Clocks that the sweep tried.
        reason: The job's last decision.
        troubles: What hinders it, a sentence each.
        planner_restarts: How often the planner died and was started again.
        clocks_left_locked: GPUs that are still locked.
        is_virtual: Whether the job ran in virtual time.
    """

    baseline: MeasuredIterations
    enforced: MeasuredIterations
    predicted_saving: float
    predicted_saving_low: float
    predicted_saving_high: float
    num_profiled_clocks: int
    reason: str
    troubles: tuple[str, ...]
    planner_restarts: int
    clocks_left_locked: int
    is_virtual: bool

    @property
    def passed(self) -> bool:
        """Whether the job ran under a plan, and left no clock locked."""
        return self.enforced.num_iterations > 0 and not self.clocks_left_locked

    @property
    def saving_percent(self) -> float:
        """Energy below the baseline's; 0 without both."""
        return percent_less(self.enforced.energy_j, self.baseline.energy_j)

    @property
    def slowdown_percent(self) -> float:
        """Time above the baseline's; 0 without both."""
        return 0.0 - percent_less(self.enforced.time_s, self.baseline.time_s)  # not -0.0

    @property
    def predicted_saving_percent(self) -> float:
        """Energy below the baseline's [%], as the plan predicts it."""
        return 100 * self.predicted_saving

    @property
    def predicted_saving_interval_percent(self) -> tuple[float, float] | None:
        """Where ``predicted_saving_percent`` is likely to lie [%]; None where that is not known."""
        low, high = self.predicted_saving_low, self.predicted_saving_high
        return (100 * low, 100 * high) if low or high else None

    def document(self) -> dict[str, Any]:
        """For ``--json``. Spreads are interquartile ranges."""
        return {
            "simulated_gpus": True,
            "virtual_time": self.is_virtual,
            "baseline": _document(self.baseline),
            "enforced": _document(self.enforced),
            "saving_percent": self.saving_percent,
            "slowdown_percent": self.slowdown_percent,
            "predicted_saving_percent": self.predicted_saving_percent,
            "predicted_saving_interval_percent": self.predicted_saving_interval_percent,
            "profiled_clocks": self.num_profiled_clocks,
            "planner_restarts": self.planner_restarts,
            "clocks_left_locked": self.clocks_left_locked,
            "troubles": list(self.troubles),
        }


def _document(measured: MeasuredIterations) -> dict[str, float]:
    return {
        "num_iterations": measured.num_iterations,
        "iteration_time_s": measured.time_s,
        "iteration_time_spread_s": measured.time_spread_s,
        "energy_j": measured.energy_j,
        "energy_spread_j": measured.energy_spread_j,
    }


def percent_less(value: float, reference: float) -> float:
    """[%] that a value is less than a reference; 0 without both."""
    return 100 * (1 - value / reference) if value > 0 and reference > 0 else 0.0
