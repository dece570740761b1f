"""The count of joules saved as plain values, so that a restarted planner recounts as the one before it would have."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from perseus_dist.planner.job.saving.followed import Followed
from perseus_dist.planner.job.saving.full_clocks import FullClocks, FullWindow
from perseus_dist.planner.job.saving.level import Level
from perseus_dist.planner.job.saving.noise import KeptNoise

_T = TypeVar("_T")

NONE = -1
"""Index of no state and of no level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptLevel:
    """As of ``Level``.

    Attributes:
        state: Index of its state; ``NONE`` for none.
    """

    plan: Followed
    time_s: float
    energy_j: float
    count: int
    state: int
    is_shown: bool
    num_since: int
    num_settled: int
    settled_j: float
    guessed_j: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSaving:
    """As of ``Saving``; levels and states are named by their index.

    Attributes:
        states, num_states: Those that windows have shown, of which there are so many, and then those of levels.
        levels, num_levels: Those that are counted, of which there are so many, and then others that were met of late.
        full: Index of a state.
        level, level_number, row_j: Of the latest iteration under a plan.
        window: That has not ended yet.
        before, before_j, after, after_j: What was followed on both sides of it.
        noise: Of iterations.
    """

    counted_j: float
    counted_doubt_j: float
    states: tuple[FullClocks, ...]
    num_states: int
    levels: tuple[KeptLevel, ...]
    num_levels: int
    full: int
    level: int
    level_number: int
    row_j: tuple[float, ...]
    window: FullWindow | None
    before: int
    before_j: tuple[float, ...]
    after: int
    after_j: tuple[float, ...]
    num_unmeasured: int
    num_measured: int
    num_wanted: int
    noise: KeptNoise


def distinct(items: Iterable[_T | None]) -> list[_T]:
    """Each object once, in the order in which they come first."""
    return list({id(item): item for item in items if item is not None}.values())


def index_of(item: _T | None, items: Sequence[_T]) -> int:
    """Index of this very object; ``NONE`` for None."""
    return next((index for index, one in enumerate(items) if one is item), NONE)


def at(items: Sequence[_T], index: int) -> _T | None:
    """The inverse of ``index_of``."""
    return None if index == NONE else items[index]


def keep_level(level: Level, states: Sequence[FullClocks]) -> KeptLevel:
    """A level, whose state is among these."""
    return KeptLevel(
        plan=level.plan,
        time_s=level.time_s,
        energy_j=level.energy_j,
        count=level.count,
        state=index_of(level.state, states),
        is_shown=level.is_shown,
        num_since=level.num_since,
        num_settled=level.num_settled,
        settled_j=level.settled_j,
        guessed_j=level.guessed_j,
    )


def restore_level(kept: KeptLevel, states: Sequence[FullClocks]) -> Level:
    """The inverse of ``keep_level``."""
    return Level(
        plan=kept.plan,
        time_s=kept.time_s,
        energy_j=kept.energy_j,
        count=kept.count,
        state=at(states, kept.state),
        is_shown=kept.is_shown,
        num_since=kept.num_since,
        num_settled=kept.num_settled,
        settled_j=kept.settled_j,
        guessed_j=kept.guessed_j,
    )


def copies(states: Iterable[FullClocks]) -> list[FullClocks]:
    """The same states, which may change on their own."""
    return [replace(state) for state in states]
