"""Iterations under one plan that look alike, and what one of them saves."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from perseus_dist.planner.job.saving.followed import Followed
from perseus_dist.planner.job.saving.full_clocks import Beside, FullClocks

_ALIKE_STRETCH = 0.015
_GUESS_STRETCH = 0.05  # where their state is a guess, and a window is beside them
_ALIKE_TIME = 0.005
_RECOVERED = 0.02
_AS_PLANNED = 0.01  # of what a plan draws by the profile
_Z = 4.0
_SAMPLING_Z = 2.0
GUESS_SHARE = 0.25  # of what iterations save, in doubt where others under the same plan were measured
_DISPUTED_SHARE = 0.05  # of what iterations save
PROFILE_SHARE = 1.0  # the same, where the profile alone says it


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
        guessed_j: [J] saved by one, where the state is a guess of this level's own.
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

    @property
    def rate_j(self) -> float:
        """[J] that one iteration saves."""
        return self.state.energy_j - self.energy_j if self.state is not None else 0.0

    @property
    def is_as_long_as_full(self) -> bool:
        """Whether the plan makes no iteration longer, so that a longer one is no shorter at full clocks."""
        return 0 < self.plan.stretch <= 1 + _ALIKE_STRETCH

    @property
    def is_by_profile(self) -> bool:
        """Whether nothing but the profile says what they save."""
        return self.state is None or self.state.guess_share >= PROFILE_SHARE

    @property
    def is_guess(self) -> bool:
        """Whether no iteration at full clocks in their state was measured."""
        return self.state is None or not self.state.weight

    @property
    def saved_j(self) -> float:
        """[J] that all of them save that are not settled."""
        if self.state is None:
            return 0.0
        return (self.count - self.num_settled) * self.state.energy_j - (self.count * self.energy_j - self.settled_j)

    def doubt_j(self, time_noise: float) -> float:
        """[J] by which that may be more or less.

        Args:
            time_noise: Standard deviation of one iteration's time, as a share of it.
        """
        if self.state is None:
            return 0.0
        num = self.count - self.num_settled
        guess_j = max(self.state.guess_share * abs(self.rate_j), self._disputed_j)
        edges_j = _Z * self.state.meter_s * self.energy_j / self.time_s if num and self.time_s else 0.0
        return num * (self.state.doubt_j + self._sampling_j(time_noise) + guess_j) + edges_j

    @property
    def may_be_other(self) -> bool:
        """Whether full clocks may draw something else than in its state, measured before ranks became slow."""
        return self.plan.is_around_slow and not self.is_shown

    @property
    def is_measured(self) -> bool:
        """Whether its state was measured, and nothing says that full clocks have become something else since."""
        return self.is_shown or (not self.is_guess and not self.may_be_other)

    @property
    def _disputed_j(self) -> float:
        """[J] that one iteration may save more or less where it may be in another state: the profile knows of that."""
        return abs(self.rate_j - self.plan.rate_j) if self.may_be_other else 0.0

    def _sampling_j(self, time_noise: float) -> float:
        """[J] of one iteration: few at full clocks, or few of these, may by chance be longer than others."""
        if self.state is None or not self.state.num_iterations or not self.count:
            return 0.0
        error = time_noise * math.sqrt(1 / self.state.num_iterations + 1 / self.count)
        return _SAMPLING_Z * error * self.state.energy_j

    @property
    def is_unmeasured(self) -> bool:
        """Whether nothing that was measured tells of full clocks.

        Only the profile does, a deadline hides them, or the profile says something else of a state that was guessed
        before pipelines waited, or measured before ranks became slow.
        """
        is_contradicted = abs(self.rate_j - self.plan.rate_j) > GUESS_SHARE * abs(self.rate_j)
        is_in_question = self.plan.is_waiting and self.is_guess and is_contradicted
        is_disputed = self._disputed_j > _DISPUTED_SHARE * abs(self.rate_j)
        return self.is_by_profile or is_in_question or is_disputed or not (self.plan.stretch or self.is_shown)

    def is_held_back(self, time_noise: float) -> bool:
        """Whether iterations are longer than a slower plan makes them: caps may hold clocks that are lower than its.

        These are the clocks of all then, with a plan or without, and nothing is saved by them. They draw less than the
        plan does that waits as long; a GPU that is slow at the plan's clocks does not.
        """
        plan, doubt = self.plan, max(_ALIKE_STRETCH, _Z * time_noise)
        is_slower = plan.is_waiting or plan.stretch > 1 + _ALIKE_STRETCH
        waits_j = plan.energy_j + plan.waiting_w * (self.time_s - plan.time_s)
        draws_less = not plan.energy_j or self.energy_j < (1 - _AS_PLANNED) * waits_j
        return is_slower and draws_less and 0 < plan.time_s * (1 + doubt) < self.time_s

    def num_beside(self, num_after: int, *, is_beside: bool) -> int:
        """How many of its newest iterations may lie in the state that a window beside them shows, if it is another.

        Where nothing under the plan shows when the state has changed, the middle is assumed.

        Args:
            num_after: Iterations that followed the window.
            is_beside: Whether iterations came just before the window, too.
        """
        return num_after + (max(0, self.num_since - num_after) // 2 if is_beside else 0)

    def settle(self, *, num_kept: int = 0) -> None:
        """Fix the sum that has been counted so far, whatever is found of the state later, but for the newest ones."""
        num_open = self.count - self.num_settled
        if num_open > num_kept:
            num = num_open - num_kept
            self.settled_j += (self.count * self.energy_j - self.settled_j) * num / num_open
            self.num_settled += num

    def may_be_in(self, state: FullClocks, time_noise: float) -> bool:
        """Whether iterations are as long as the plan makes them in a state."""
        doubt = max(_ALIKE_STRETCH, _Z * time_noise)
        stretch = self.plan.stretch
        return not stretch or abs(self.time_s / (stretch * state.time_s) - 1) <= doubt

    def is_as_profiled(self, time_noise: float) -> bool:
        """Whether iterations take what the profile says of the plan, whatever it says of full clocks."""
        doubt = max(_ALIKE_STRETCH, _Z * time_noise)
        return bool(self.plan.time_s) and abs(self.time_s / self.plan.time_s - 1) <= doubt

    def is_shorter_than(self, state: FullClocks, time_noise: float) -> bool:
        """Whether iterations are shorter than at full clocks in a state, as no plan makes them."""
        return self.time_s < (1 - max(_ALIKE_STRETCH, _Z * time_noise)) * state.time_s

    def may_lie_in(self, state: FullClocks, time_noise: float, *, is_beside: bool = False) -> bool:
        """Whether iterations may be as long in a state, where caps may hold clocks that are lower than the plan's.

        They are as long as at full clocks then. No plan makes them shorter. And where the profile says of full clocks
        that they take longer than beside these, as one that was swept under a cap of all, a plan takes what it says.

        Args:
            state: In question.
            time_noise: Standard deviation of one iteration's time, as a share of it.
            is_beside: Iterations in that state are beside these, and known better than a guess.
        """
        doubt = max(_GUESS_STRETCH if is_beside and self.is_guess else _ALIKE_STRETCH, _Z * time_noise)
        most_s = max(1.0, self.plan.stretch) * state.time_s if self.plan.stretch else math.inf
        if is_beside and self.plan.stretch and (self.is_by_profile or not self.plan.is_waiting):
            is_profile_slow = self.plan.time_s / self.plan.stretch > (1 + _GUESS_STRETCH) * state.time_s
            most_s = max(most_s, self.plan.time_s) if is_profile_slow else most_s
        return not self.is_shorter_than(state, time_noise) and self.time_s <= (1 + doubt) * most_s

    @property
    def is_well_metered(self) -> bool:
        """Whether what one saves is known well enough to be expected of others, although counters tick."""
        if self.state is None or not self.state.meter_s:
            return self.state is not None
        meter_j = self.state.energy_j * self.state.meter_s / self.state.time_s
        return meter_j <= GUESS_SHARE * abs(self.rate_j) * self.count

    def distance(self, time_s: float, energy_j: float | None, *, time_doubt: float, energy_doubt: float) -> float:
        """By how much an iteration differs from these, of what it may differ by: below 1 it is one of them.

        Args:
            time_s: [s] it took.
            energy_j: [J] it drew; None where that is not known.
            time_doubt: Share by which times of one level differ at most.
            energy_doubt: The same of energies.
        """
        time_off = abs(time_s / self.time_s - 1) / time_doubt
        if energy_j is None or not self.energy_j:
            return time_off
        return max(time_off, abs(energy_j / self.energy_j - 1) / energy_doubt)

    def looks_like(self, other: "Level") -> bool:
        """Whether iterations of two plans last as long."""
        return abs(self.time_s / other.time_s - 1) <= _ALIKE_STRETCH

    def hides(self, state: FullClocks) -> bool:
        """Whether iterations at full clocks would be shorter in a state, so that their time tells nothing of it."""
        return state.time_s <= self.time_s / (1 + _ALIKE_TIME)

    def waits_in(self, state: FullClocks) -> bool:
        """Whether pipelines wait for a straggler that is over in a state."""
        return self.plan.is_waiting and self.hides(state)

    def faster_state(self, states: Sequence[FullClocks]) -> FullClocks | None:
        """The newest state without the straggler that is no longer waited for, although the plan still waits."""
        if self.state is None:
            return None
        least_s = (1 - _RECOVERED) * self.state.time_s
        return next((state for state in reversed(states) if state.time_s < least_s), None)

    def hidden_j(self, states: Sequence[FullClocks]) -> float:
        """[J] by which the newest iterations may be counted wrong: plans may hide one of these states."""
        if self.state is None:
            return 0.0
        hidden = [
            abs(state.energy_j - self.state.energy_j)
            for state in states
            if state is not self.state and self.hides(state) and (self.plan.is_waiting or self.hides(self.state))
        ]
        return self.num_since * max(hidden, default=0.0)

    def beside(self, energies_j: list[float]) -> Beside:
        """These iterations of it, on one side of a window."""
        num_others = self.count - len(energies_j)
        others_j = (self.count * self.energy_j - sum(energies_j)) / num_others if num_others > 0 else self.energy_j
        return Beside(energies_j=energies_j, usual_time_s=self.time_s, usual_j=others_j, num_usual=num_others)

    def give_back(self, energy_j: float) -> None:
        """Count so much of the energy no more: it is a window's beside these iterations, if any are left here."""
        if self.count:
            self.energy_j -= energy_j / self.count

    def add(self, time_s: float, energy_j: float | None) -> None:
        """One more; where its energy is not known, it drew what the others did."""
        self.count += 1
        self.num_since += 1
        if energy_j is not None:
            self.time_s += (time_s - self.time_s) / self.count
            self.energy_j += (energy_j - self.energy_j) / self.count
        if self.guessed_j is not None and self.state is not None:
            self.state.energy_j = self.energy_j + self.guessed_j
