"""Which clock to ask for now: the model of ``planning.frontier.replay``, played forward.

A change is asked for when the clocked instruction before it ends, the next iteration's first one at the end of this
iteration's last. What an idle gap does not hide of the latency, the next instruction runs at the old clock. A change
that would arrive only after an instruction is over is not made for it, but for the first one that it still reaches.

      end of 0F1                      0B0 begins
    ----|------ waits for its peer ------|---- 0B0 ------
        ask for 0B0's clock ..latency..> there
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from operator import sub

from perseus_dist.agent.following.exact_runs import ExactRun
from perseus_dist.agent.following.position import Position, ProgramPoint
from perseus_dist.agent.following.rank_program import Work

NO_LATENCIES: Mapping[int, int] = {}
_NUM_RUNS = 4
_NUM_KEPT = 3  # plans that come back after probes, or with a straggler, and full clocks


class Pilot:
    """Chooses clocks along one rank's order; remembers how long each instruction and the wait before it took lately."""

    def __init__(self, order: Sequence[Work]) -> None:
        self._clocked = [index for index, work in enumerate(order) if not work.is_constant]
        self._clocks_mhz: tuple[int, ...] | None = None
        # Of the runs at these clocks, the latest: their durations, and idle time before them and themselves.
        self._durations_ns: list[deque[int]] = [deque(maxlen=_NUM_RUNS) for _ in order]
        self._lengths_ns: list[deque[int]] = [deque(maxlen=_NUM_RUNS) for _ in order]
        self._tails_ns: deque[int] = deque(maxlen=_NUM_RUNS)
        # Least waits and durations at clocks of before, the latest last, and bounds that follow from those at another
        # clock. Only looks go by them: clocks go by medians.
        self._kept: dict[tuple[int, ...] | None, list[tuple[int, int] | None]] = {}
        self._bounds: list[tuple[int, int] | None] = [None] * (len(order) + 1)
        # Medians, made when they are asked for; at other clocks the earlier ones stand until there are new ones.
        # 0 while unknown.
        self._duration_ns = [0] * len(order)
        self._length_ns = [0] * len(order)
        self._has_new_runs = [False] * len(order)

    def begin_iteration(self, clocks_mhz: tuple[int, ...] | None) -> None:
        """An iteration at these clocks begins; at others everything takes another time."""
        if clocks_mhz != self._clocks_mhz:
            self._keep(clocks_mhz)
            self._clocks_mhz = clocks_mhz
            for place, has_new_runs in enumerate(self._has_new_runs):
                if has_new_runs:
                    self._update_medians(place)
            for values_ns in (*self._durations_ns, *self._lengths_ns, self._tails_ns):
                values_ns.clear()

    def remember(self, run: ExactRun) -> None:
        """Take note of how long an instruction took; of earlier clocks it is not any more."""
        if run.ran_at.clocks_mhz != self._clocks_mhz:
            return
        place, _, idle_ns, duration_ns, _ = run
        self._durations_ns[place].append(duration_ns)
        self._lengths_ns[place].append(duration_ns + idle_ns)
        self._has_new_runs[place] = True

    def remember_tail(self, tail_ns: int) -> None:
        """Take note of how long after its last instruction an iteration ended."""
        self._tails_ns.append(tail_ns)

    def least_duration_ns(self, place: int) -> int | None:
        """The least that an instruction took lately at these clocks; None if that is not known."""
        if durations_ns := self._durations_ns[place]:
            return min(durations_ns)
        least = self._least(place)
        return None if least is None else least[1]

    def least_of_next(self, position: Position) -> tuple[int, int] | None:
        """The least wait before the instruction that the rank waits for, and the least that it took, lately.

        Behind the last instruction, the least wait before the iteration's end, and 0. None if it waits for neither, or
        that is not known.
        """
        return self._least(position.index) if position.in_iteration and not position.is_running else None

    def _least(self, index: int) -> tuple[int, int] | None:
        if index == len(self._durations_ns) and self._tails_ns:
            return min(self._tails_ns), 0
        if index < len(self._durations_ns) and (durations_ns := self._durations_ns[index]):
            return min(map(sub, self._lengths_ns[index], durations_ns)), min(durations_ns)
        kept = self._kept.get(self._clocks_mhz)
        return (kept[index] if kept else None) or self._bounds[index]

    def _keep(self, next_clocks_mhz: tuple[int, ...] | None) -> None:
        least = [self._least(index) for index in range(len(self._durations_ns) + 1)]
        if least != self._bounds:
            self._kept.pop(self._clocks_mhz, None)
            self._kept[self._clocks_mhz] = least
            if len(self._kept) > _NUM_KEPT:
                del self._kept[next(iter(self._kept))]
        shares = _least_shares(self._clocks_mhz, next_clocks_mhz, len(self._durations_ns))
        self._bounds = [
            None if one is None or share is None else (0, round(one[1] * share))
            for one, share in zip(least[:-1], shares, strict=True)
        ] + [None]

    def wanted_mhz(
        self,
        position: Position | ProgramPoint,
        *,
        clocks_mhz: Sequence[int] | None,
        next_clocks_mhz: Sequence[int] | None,
        current_mhz: int | None,
        latency_ns: int,
        latencies_ns: Mapping[int, int] = NO_LATENCIES,
    ) -> int | None:
        """The clock to ask for at this boundary; ``current_mhz`` if none.

        Args:
            position: Of the rank, in step, or where it will be.
            clocks_mhz: (num_instructions) this iteration's, 0 for an instruction that keeps what it finds; None for
                clocks released.
            next_clocks_mhz: The next iteration's.
            current_mhz: Asked for last; None when released.
            latency_ns: From asking for a clock to having it.
            latencies_ns: The same of the clocks [MHz] that have a latency of their own.
        """
        ahead = bisect_left(self._clocked, position.index) if position.in_iteration else len(self._clocked)
        if ahead < len(self._clocked):
            if clocks_mhz is None:
                return None
            reached_mhz = self._first_reached_mhz(ahead, position, clocks_mhz, current_mhz, latency_ns, latencies_ns)
            if reached_mhz:
                return reached_mhz
        if next_clocks_mhz is None:
            return None
        return next((next_clocks_mhz[index] for index in self._clocked if next_clocks_mhz[index]), current_mhz)

    def _first_reached_mhz(
        self,
        ahead: int,
        position: Position | ProgramPoint,
        clocks_mhz: Sequence[int],
        current_mhz: int | None,
        latency_ns: int,
        latencies_ns: Mapping[int, int],
    ) -> int:
        """The clock of the first instruction that a change asked for now still reaches; 0 if there is none."""
        ahead_ns = 0
        for index in islice(self._clocked, ahead, None):
            clock_mhz = clocks_mhz[index]
            if clock_mhz and clock_mhz == current_mhz:
                return clock_mhz
            if self._has_new_runs[index]:
                self._update_medians(index)
            is_running = position.is_running and index == position.index
            length_ns = (self._duration_ns if is_running else self._length_ns)[index]
            ahead_ns += length_ns
            # An instruction whose length is not known yet is taken for a long one.
            if clock_mhz and (length_ns == 0 or ahead_ns > latencies_ns.get(clock_mhz, latency_ns)):
                return clock_mhz
        return 0

    def _update_medians(self, place: int) -> None:
        self._has_new_runs[place] = False
        self._duration_ns[place] = _median_ns(self._durations_ns[place])
        self._length_ns[place] = _median_ns(self._lengths_ns[place])


def _least_shares(
    clocks_mhz: tuple[int, ...] | None, next_clocks_mhz: tuple[int, ...] | None, num_instructions: int
) -> list[float | None]:
    """Of the time of each instruction, what it takes at other clocks at least: a GPU gains no more than its clock."""
    if clocks_mhz is None:  # full ones: none is faster
        return [1.0] * num_instructions
    if next_clocks_mhz is None:
        return [None] * num_instructions
    return [
        min(1.0, mhz / next_mhz) if mhz and next_mhz else None
        for mhz, next_mhz in zip(clocks_mhz, next_clocks_mhz, strict=True)
    ]


def _median_ns(values_ns: Collection[int]) -> int:
    """Of a few; what the trainer's every instruction asks for must be quick."""
    ordered_ns = sorted(values_ns)
    middle = len(ordered_ns) // 2
    is_odd = len(ordered_ns) % 2
    return ordered_ns[middle] if is_odd else round((ordered_ns[middle - 1] + ordered_ns[middle]) / 2)
