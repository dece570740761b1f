"""Iterations under one plan that look alike, and what one of them saves."""

from collections.abc import Hashable
from dataclasses import dataclass

from perseus_dist.planner.job.full_clocks import Beside, FullClocks

_ALIKE_STRETCH = 0.015
_Z = 4.0
_GUESS_DOUBT = 0.25  # share of what iterations save, where others under the same plan were measured
_PROFILE_DOUBT = 1.0  # the same, where the profile alone says it


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """The plans that all pipelines follow, and what these save by the profile.

    Attributes:
        key: Equal where the same is followed.
        stretch: Times by which iterations are longer than at full clocks; 0 where that is not known.
        rate_j: [J] that an iteration saves.
        is_waiting: Some pipelines wait for a straggler.
    """

    key: Hashable
    stretch: float = 0.0
    rate_j: float = 0.0
    is_waiting: bool = False


UNKNOWN = Followed(key="unknown")
"""Some plan of which nothing is known any more."""


@dataclass(slots=True, kw_only=True, eq=False)
class Level:
    """Iterations under one plan that look alike.

    Attributes:
        plan: What was followed.
        time_s, energy_j: [s], [J] the mean of one.
        count: How many there were.
        state: What full clocks would have been; None where that is not known.
        is_shown: A window beside it has shown that.
        num_since: Iterations since it was shown last.
        num_settled, settled_j: How many of them count no more, and [J] that these drew.
        guessed_j: [J] saved by one, where the state is a guess of this level's own; is_by_profile: the profile's.
    """

    plan: Followed
    time_s: float
    energy_j: float
    count: int = 0
    state: FullClocks | None = None
    is_shown: bool = False
    num_since: int = 0
    num_settled: int = 0
    settled_j: float = 0.0
    guessed_j: float | None = None
    is_by_profile: bool = False

    @property
    def rate_j(self) -> float:
        """[J] that one iteration saves."""
        return self.state.energy_j - self.energy_j if self.state is not None else 0.0

    @property
    def saved_j(self) -> float:
        """[J] that all of them save that are not settled."""
        if self.state is None:
            return 0.0
        return (self.count - self.num_settled) * self.state.energy_j - (self.count * self.energy_j - self.settled_j)

    @property
    def doubt_j(self) -> float:
        """[J] by which that may be more or less."""
        if self.state is None:
            return 0.0
        is_guess = not self.state.weight
        share = _PROFILE_DOUBT if self.is_by_profile else _GUESS_DOUBT
        return (self.count - self.num_settled) * (self.state.doubt_j + (share * abs(self.rate_j) if is_guess else 0.0))

    def settle(self) -> None:
        """Fix the sum that has been counted so far, whatever is found of the state later."""
        self.num_settled, self.settled_j = self.count, self.count * self.energy_j

    def may_be_in(self, state: FullClocks, time_noise: float) -> bool:
        """Whether iterations are as long as the plan makes them in a state."""
        doubt = max(_ALIKE_STRETCH, _Z * time_noise)
        stretch = self.plan.stretch
        return not stretch or abs(self.time_s / (stretch * state.time_s) - 1) <= doubt

    def beside(self, energies_j: list[float]) -> Beside:
        """These iterations of it, on one side of a window."""
        return Beside(energies_j=energies_j, usual_time_s=self.time_s, usual_j=self.energy_j, num_usual=self.count)

    def add(self, time_s: float, energy_j: float | None) -> None:
        """One more; where its energy is not known, it drew what the others did."""
        self.count += 1
        self.num_since += 1
        if energy_j is not None:
            self.time_s += (time_s - self.time_s) / self.count
            self.energy_j += (energy_j - self.energy_j) / self.count
        if self.guessed_j is not None and self.state is not None:
            self.state.energy_j = self.energy_j + self.guessed_j
