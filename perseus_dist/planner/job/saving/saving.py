"""Joules saved, by measurement: what iterations under plans drew less than the same ones would have at full clocks.

What full clocks draw *now* is the question. A GPU that is capped or hot, a batch that has grown or a straggler changes
it for every plan alike, and cannot be measured under a plan. Three things tell of it: windows of iterations at full
clocks (before the first plan, and probes ever after), each of which shows a *state* of the machines; iterations under
one plan that look alike, a *level*, which lie in the same state; and, where a level has no window beside it, the level
before, under the same plan: what makes all iterations longer makes those at full clocks longer too, and is not saved.

    windows at full clocks --> states --+
    iterations under plans --> levels --+--> saved = sum over levels of count x (state's energy - level's energy)

A level's sum is taken again whenever more is known of its state. What cannot be known is counted too, as doubt.
"""

import math
from collections import deque
from dataclasses import dataclass, field, replace

from perseus_dist.planner.job.saving.followed import Followed, FollowedPlans
from perseus_dist.planner.job.saving.full_clocks import FullClocks, FullWindow
from perseus_dist.planner.job.saving.kept import KeptSaving, at, copies, distinct, index_of, keep_level, restore_level
from perseus_dist.planner.job.saving.level import GUESS_SHARE, PROFILE_SHARE, Level
from perseus_dist.planner.job.saving.noise import Noise

_ALIKE_TIME = 0.005
_ALIKE_ENERGY = 0.01
_CLEARLY = 0.25  # of what an iteration may be off
_Z = 4.0
_MAX_GAP = 4  # iterations between a window and the one that follows it, where reports were lost
_MAX_STATES = 8
_MAX_LEVELS = 48
_NUM_SETTLED = 128  # iterations at full clocks after which a state is known well
_NUM_BESIDE = 8  # iterations beside a window that its energy is looked for in
_FIRST_WANTED = 4  # iterations of whose full clocks nothing tells, before a window is wanted
_NUM_MEASURED = 64  # iterations of which something tells, after which it is wanted so soon again


@dataclass(slots=True, kw_only=True)
class Saving:
    """Of one run.

    Attributes:
        counted_j, counted_doubt_j: [J] of what is known in sum only: counted by a planner before this one, or long ago.
        full: Full clocks as the machines are now, as far as windows that have ended show; None before any has.
        plans: Those that were in force of late.
    """

    counted_j: float = 0.0
    counted_doubt_j: float = 0.0
    full: FullClocks | None = None
    plans: FollowedPlans = field(default_factory=FollowedPlans)

    _states: list[FullClocks] = field(default_factory=list)  # the newest last: what ends may come again
    _levels: list[Level] = field(default_factory=list)  # the one that was met last, last
    _level: Level | None = None  # of the latest iteration under a plan
    _level_number: int = -1
    _row: deque[float] = field(default_factory=lambda: deque(maxlen=_NUM_BESIDE))  # [J] the latest, all of that level
    _window: FullWindow | None = None
    _num_unmeasured: int = 0  # iterations since a window of whose full clocks nothing tells
    _num_measured: int = 0  # and those of which something does, since the last of these
    _num_wanted: int = _FIRST_WANTED
    _before: Level | None = None  # what was followed just before the window
    _before_j: list[float] = field(default_factory=list)
    _after: Level | None = None  # and just after it
    _after_j: list[float] = field(default_factory=list)
    _noise: Noise = field(default_factory=Noise)

    @property
    def saved_j(self) -> float:
        """[J] so far; negative where plans drew more."""
        return self.counted_j + sum(level.saved_j for level in self._levels)

    @property
    def doubt_j(self) -> float:
        """[J] that it may be more or less, because counters tick and states changed that no window has shown."""
        hidden_j = self._level.hidden_j(self._states) if self._level is not None else 0.0
        noise = self._noise.time
        return self.counted_doubt_j + hidden_j + sum(level.doubt_j(noise) for level in self._levels)

    @property
    def is_known(self) -> bool:
        """Whether full clocks have been measured in this run."""
        return bool(self._states)

    @property
    def full_now(self) -> FullClocks | None:
        """``full``, or what a long window shows that goes on: one has no end where the plan is full clocks itself."""
        window = self._window
        if window is None or window.num_iterations < _NUM_BESIDE or not window.says_something:
            return self.full
        noise, shown = self._noise, window.shown([])
        is_known = self.full is not None and self.full.is_like(shown, time_noise=noise.time, energy_noise=noise.energy)
        return self.full if is_known else shown

    def keep(self) -> KeptSaving:
        """The count without the plans in force, as values that stay as they are."""
        levels = distinct([*self._levels, self._level, self._before, self._after])
        states = distinct([*self._states, self.full, *(level.state for level in levels)])
        return KeptSaving(
            counted_j=self.counted_j,
            counted_doubt_j=self.counted_doubt_j,
            states=tuple(copies(states)),
            num_states=len(self._states),
            levels=tuple(keep_level(level, states) for level in levels),
            num_levels=len(self._levels),
            full=index_of(self.full, states),
            level=index_of(self._level, levels),
            level_number=self._level_number,
            row_j=tuple(self._row),
            window=replace(self._window) if self._window is not None else None,
            before=index_of(self._before, levels),
            before_j=tuple(self._before_j),
            after=index_of(self._after, levels),
            after_j=tuple(self._after_j),
            num_unmeasured=self._num_unmeasured,
            num_measured=self._num_measured,
            num_wanted=self._num_wanted,
            noise=self._noise.keep(),
        )

    def restore(self, kept: KeptSaving) -> None:
        """Count on where another planner was when it kept this."""
        states = copies(kept.states)
        levels = [restore_level(level, states) for level in kept.levels]
        self.counted_j, self.counted_doubt_j = kept.counted_j, kept.counted_doubt_j
        self._states, self._levels = states[: kept.num_states], levels[: kept.num_levels]
        self.full, self._level, self._level_number = at(states, kept.full), at(levels, kept.level), kept.level_number
        self._row.extend(kept.row_j)
        self._window = replace(kept.window) if kept.window is not None else None
        self._before, self._before_j = at(levels, kept.before), list(kept.before_j)
        self._after, self._after_j = at(levels, kept.after), list(kept.after_j)
        self._num_unmeasured, self._num_measured = kept.num_unmeasured, kept.num_measured
        self._num_wanted = kept.num_wanted
        self._noise = Noise.restored(kept.noise)

    def wants_window(self) -> bool:
        """Whether iterations at full clocks are wanted now, since nothing tells of many; until a window has come.

        Each one doubles the number that the next is wanted after, until iterations have been measured for long.
        """
        return self._window is None and self._num_unmeasured >= self._num_wanted

    def begin(self, full: FullClocks) -> None:
        """A baseline is known, and no window is."""
        self.full = full
        self._states = [full]

    def record_full(self, number: int, time_s: float, energy_j: float | None, *, period_s: float) -> None:
        """Take note of an iteration at full clocks on all ranks.

        Args:
            number: Of the iteration.
            time_s: [s] it took.
            energy_j: [J] all GPUs drew; None where that is not known.
            period_s: [s] between two ticks of their energy counters.
        """
        if not energy_j:  # nor does a counter that has not ticked say anything
            self.end_window()
            return
        self._noise.note(None, time_s, energy_j)
        window, noise = self._window, self._noise.time
        if window is not None and self._after is None and window.goes_on(number, time_s, energy_j, noise):
            window.add(time_s, energy_j)
            return
        is_settled = window is not None and self._after is None and window.last == number - 1
        stretch = self._level.plan.stretch if self._level is not None else 0.0
        has_changed = is_settled and window is not None and not window.is_on_the_way_to(time_s, stretch)
        self.end_window()
        self._window = FullWindow(
            first=number, last=number, time_s=time_s, energy_j=energy_j, period_s=period_s, is_settled=is_settled
        )
        follows = self._level is not None and 0 < number - self._level_number <= _MAX_GAP and not has_changed
        self._before = self._level if follows else None
        self._before_j = list(reversed(self._row)) if self._level_number == number - 1 else []

    def record_planned(self, number: int, time_s: float, energy_j: float | None, *, plan: Followed) -> None:
        """Count an iteration under a plan.

        Args:
            number: Of the iteration.
            time_s: [s] it took.
            energy_j: [J] all GPUs drew. None where that is not known, as of the last one of a job that has ended: it
                drew what others like it drew; where there are none, it saved what the profile says.
            plan: What was followed in it.
        """
        level = self._find(plan, time_s, energy_j)
        level = None if level is not None and self._waits_again(level, number) else level
        if energy_j is None:
            if self._window is not None and self._after is not None:  # the counter will not be read at its end
                self._after.energy_j += self._window.borrowed_j / self._after.count
            self.end_window()
            if level is None and self._level is not None and self._level.plan.key == plan.key:
                level = self._level
                self.counted_doubt_j += abs(level.rate_j)
            if level is not None:
                level.add(time_s, None)
            elif self.full is not None:
                self.counted_j += plan.rate_j
                self.counted_doubt_j += abs(plan.rate_j)
            return
        self._noise.note(plan, time_s, energy_j)
        if self._window is not None and not self._goes_beside(self._window, level, number):
            self.end_window()
        before = self._level
        if level is None:
            level = self._begin(plan, time_s, energy_j, before)
        elif level in self._levels:
            self._levels.remove(level)
            self._levels.append(level)
        level.add(time_s, energy_j)
        self._note_unmeasured(level)
        if level.is_shown:
            self._replace_guess(before, level)
        if level is not before or self._level_number != number - 1:
            self._row.clear()
        self._row.append(energy_j)
        self._level, self._level_number, self.full = level, number, level.state or self.full
        if self._window is not None:
            self._after = level
            self._after_j.append(energy_j)
            if len(self._after_j) == _NUM_BESIDE:
                self.end_window()

    def _note_unmeasured(self, level: Level) -> None:
        """Count iterations of whose full clocks nothing that was measured tells, and others since."""
        if level.is_unmeasured:
            self._num_unmeasured += 1
            self._num_measured = 0
            return
        self._num_measured += 1
        if self._num_measured >= _NUM_MEASURED:
            self._num_unmeasured, self._num_wanted = 0, _FIRST_WANTED

    def _goes_beside(self, window: FullWindow, level: Level | None, number: int) -> bool:
        """Whether an iteration under a plan tells more of the window that it comes after.

        Clocks may be on their way in the first one behind it, which then is none of those that come before and after.
        """
        if self._after is None:
            return 0 < number - window.last <= _MAX_GAP
        if number != self._level_number + 1:
            return False
        if level is not None and level is self._before is not self._after and len(self._after_j) == 1:
            self._after, self._after_j = level, []
        return level is self._after

    def end_window(self) -> None:
        """Take the window into account, if there is one: no more will be known of it."""
        window, before, after, after_j = self._window, self._before, self._after, self._after_j
        sides = ((before, self._before_j), (after, after_j))
        self._window = self._before = self._after = None
        self._before_j, self._after_j = [], []
        if window is None or not window.says_something:
            return
        self._num_wanted *= 2 if self._num_unmeasured >= self._num_wanted else 1
        self._num_unmeasured = self._num_measured = 0
        self._settle(before, after, num_after=len(after_j))
        found = [(level, level.beside(energies_j)) for level, energies_j in sides if level]
        state = self._known(window.shown([one for _, one in found]))
        self.full = state
        for level, one in found:
            if one.energies_j:
                level.give_back(window.excess_j(one)[0])
        noise = self._noise.time
        if before is not None and before is not after:
            is_end = after is None or before.plan.key != after.plan.key
            # Behind a window clocks may be on their way for one iteration, which is a level of its own.
            is_telling = not before.is_shown and (is_end or before.is_by_profile)
            is_hidden = is_end and before.state is not None and before.state.is_as_long_as(state, noise)
            if (is_telling or is_hidden) and before.may_lie_in(state, noise, is_beside=True):
                self._show(before, state, num_after=0, is_beside=True)
        if after is None:
            return
        is_over = after.is_shorter_than(state, noise)
        if is_over and after.state is not None:
            self.full = after.state
        is_beside = after is before and not is_over
        if is_beside or after.may_lie_in(state, noise, is_beside=True) or after.waits_in(state):
            shown = self._show(after, state, num_after=len(after_j), is_beside=after is before)
            self._level = shown if self._level is after else self._level

    def _settle(self, before: Level | None, after: Level | None, *, num_after: int) -> None:
        """States drift: what lies long behind is not counted again by what is measured now.

        Args:
            before: The level just before a window, whose newest iterations it may show to lie in another state.
            after: That behind it, likewise.
            num_after: Iterations that followed the window.
        """
        noise = self._noise.time
        for level in self._levels:
            if level.state is not None and level.state.num_iterations >= _NUM_SETTLED:
                self.counted_j += level.saved_j
                self.counted_doubt_j += level.doubt_j(noise)
                beside = level.num_beside(num_after if level is after else 0, is_beside=level is before)
                level.settle(num_kept=beside)
                self.counted_j -= level.saved_j
                self.counted_doubt_j -= level.doubt_j(noise)

    def _begin(self, plan: Followed, time_s: float, energy_j: float, before: Level | None) -> Level:
        """Iterations that look like none before: another plan, or another state."""
        level = Level(plan=plan, time_s=time_s, energy_j=energy_j)
        is_change = self._window is None and before is not None and before.plan.key == plan.key
        noise = self._noise.time
        if is_change and plan.is_waiting and before is not None and time_s < before.time_s:
            level.state = before.faster_state(self._states)
        elif plan.stretch or not is_change:
            level.state = self._state_of(level, noise, is_change=is_change)
        if level.state is None:
            self._guess(level, before if is_change else None, noise)
        self._levels.append(level)
        while len(self._levels) > _MAX_LEVELS:
            oldest = self._levels.pop(0)
            self.counted_j += oldest.saved_j
            self.counted_doubt_j += oldest.doubt_j(noise)
        return level

    def _state_of(self, level: Level, noise: float, *, is_change: bool) -> FullClocks | None:
        """The state that a new level lies in by its time; caps and a wrong profile make iterations of any length."""
        full = self.full
        is_known = full is not None and bool(full.weight)
        known = [*([full] if is_known else []), *reversed(self._states), *([] if is_known else [full])]
        state = next((state for state in known if state is not None and level.may_be_in(state, noise)), None)
        if state is not None or full is None or not is_known or is_change or level.is_shorter_than(full, noise):
            return state
        # Pipelines that wait take the time that they wait for, whether what they wait for is there or over.
        is_as_profiled = not level.plan.is_waiting and level.is_as_profiled(noise)
        return full if is_as_profiled or level.may_lie_in(full, noise) else None

    def _guess(self, level: Level, before: Level | None, noise: float) -> None:
        """Guess what full clocks draw: it saves what others under its plan did, or else what the profile says.

        Args:
            level: New, in no state that is known.
            before: Under the same plan just before it, where its iterations have become longer or shorter.
            noise: Standard deviation of one iteration's time, as a share of it.
        """
        plan = level.plan
        shown = (one for one in reversed(self._levels) if one.plan.key == plan.key and one.is_shown)
        alike = next((one for one in shown if one.state and not one.waits_in(one.state)), None)
        alike = alike or before
        if alike is not None and not alike.is_well_metered:
            alike = None
        level.guessed_j = plan.rate_j if alike is None else alike.rate_j
        is_measured = alike is not None and not alike.is_by_profile
        if level.is_held_back(noise):
            level.guessed_j /= 2  # give or take as much: from nothing to all of it
        full_s = level.time_s if self.full is None else self.full.time_s
        level.state = FullClocks(
            time_s=level.time_s / plan.stretch if plan.stretch else full_s,
            energy_j=level.energy_j + level.guessed_j,
            num_iterations=0,
            guess_share=GUESS_SHARE if is_measured and level.is_as_long_as_full else PROFILE_SHARE,
        )

    def _known(self, found: FullClocks) -> FullClocks:
        """The state that a window shows: one that is known, which is known better now, or another one."""
        for known in reversed(self._states):
            if known.is_like(found, time_noise=self._noise.time, energy_noise=self._noise.energy):
                known.pool(found)
                self._states.remove(known)
                self._states.append(known)
                return known
        self._states = [*self._states, found][-_MAX_STATES:]
        return found

    def _show(self, level: Level, state: FullClocks, *, num_after: int, is_beside: bool) -> Level:
        """A window beside a level has shown its state; returns the level that goes on from there.

        Args:
            level: Whose newest iterations are those.
            state: Shown.
            num_after: Iterations that followed the window.
            is_beside: Iterations of the level came just before the window, too.
        """
        if level.state is not None and level.state is not state and level.is_measured:
            num_beside = level.num_beside(num_after, is_beside=is_beside)
            num = min(level.count - level.num_settled, num_beside)
            level.count -= num
            self.counted_doubt_j += (num_beside - num_after) * abs(state.energy_j - level.state.energy_j)
            level = Level(plan=level.plan, time_s=level.time_s, energy_j=level.energy_j, count=num)
            self._levels.append(level)
        level.state, level.is_shown, level.guessed_j, level.num_since = state, True, None, num_after
        self._replace_guesses(level, state)
        return level

    def _replace_guesses(self, shown: Level, state: FullClocks) -> None:
        """Give the same state to iterations just before that lasted as long, if the profile alone tells of them."""
        until = self._levels.index(shown) if shown in self._levels else 0
        for level in reversed(self._levels[:until]):
            if not (level.is_by_profile and level.guessed_j is not None and level.looks_like(shown)):
                break
            level.state, level.guessed_j = state, None

    def _replace_guess(self, before: Level | None, level: Level) -> None:
        """A guess is worth less than what is known of the iterations that follow it, after a switch."""
        state = level.state
        if before is None or before.guessed_j is None or before.plan.key == level.plan.key or state is None:
            return
        may_lie = before.may_lie_in(state, self._noise.time, is_beside=True)
        if may_lie and state.time_s <= (1 + _ALIKE_TIME) * before.time_s:
            before.state, before.guessed_j = state, None

    def _waits_again(self, level: Level, number: int) -> bool:
        """Whether a straggler is there, by iterations before a switch to a plan that waited for one that was over."""
        before = self._level
        if before is None or before.plan.key == level.plan.key or self._window is not None or level.state is None:
            return False
        is_next = number == self._level_number + 1
        noise = self._noise.time
        return is_next and level.waits_in(level.state) and not before.may_lie_in(level.state, noise)

    def _find(self, plan: Followed, time_s: float, energy_j: float | None) -> Level | None:
        """The level that an iteration looks like: the newest one, unless another is clearly nearer.

        Levels of equal times and energies may lie in different states, of which the newest is the likeliest.
        """
        time_doubt = max(_ALIKE_TIME, _Z * self._noise.time)
        meter_s = self.full.meter_s if self.full is not None else 0.0  # what one reading between two ticks may be off
        noise = 2 * self._noise.energy
        energy_doubt = max(_ALIKE_ENERGY, _Z * max(noise, meter_s / time_s))
        nearest, least = None, math.inf
        for level in reversed(self._levels):
            if level.plan.key != plan.key:
                continue
            off = level.distance(time_s, energy_j, time_doubt=time_doubt, energy_doubt=energy_doubt)
            if off < min(least, 1 + _CLEARLY) - _CLEARLY:
                nearest, least = level, off
        return nearest
