"""Clocks that change by time since an iteration began, where instructions cannot be seen: a pure function."""

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple


class Change(NamedTuple):
    """A later clock of an iteration.

    Attributes:
        since_begin_ns: When it is to be asked for; what it takes to come is in there.
        clock_mhz: The clock; 0 keeps the one before.
    """

    since_begin_ns: int
    clock_mhz: int


class ClockNow(NamedTuple):
    """The clock of a moment.

    Attributes:
        clock_mhz: To ask for.
        next_ns: Since the iteration began, when that may change; None for not in this iteration.
    """

    clock_mhz: int
    next_ns: int | None


def clock_now(first_mhz: int, changes: Sequence[Change], since_begin_ns: int) -> ClockNow:
    """The clock that an iteration is to have by now, however many changes have been slept through.

    Args:
        first_mhz: The iteration's first clock.
        changes: Its later ones, ascending.
        since_begin_ns: Now.
    """
    num_past = bisect_right(changes, since_begin_ns, key=attrgetter("since_begin_ns"))
    clock_mhz = next((change.clock_mhz for change in reversed(changes[:num_past]) if change.clock_mhz), first_mhz)
    return ClockNow(clock_mhz, changes[num_past].since_begin_ns if num_past < len(changes) else None)
