"""How long instructions take: when the one that runs may end, and what has drifted. From exact times alone."""

from collections.abc import Sequence
from typing import NamedTuple

from perseus_dist.agent.core.pilot import Pilot
from perseus_dist.agent.following.exact_runs import ExactRun, ExactRuns, RanAt
from perseus_dist.agent.following.position import Position, Run
from perseus_dist.agent.following.rank_program import Work
from perseus_dist.agent.measuring.drift import DriftWatch
from perseus_dist.agent.measuring.held_clock import HeldClock
from perseus_dist.agent.measuring.kind_times import KindTimes

_MAX_SILENT_NS = 60_000_000_000


class Running(NamedTuple):
    """The instruction that runs.

    Attributes:
        since_ns: It began no earlier.
        duration_ns: [ns] the least that it lately took at these clocks.
    """

    since_ns: int
    duration_ns: int


class Awaited(NamedTuple):
    """An instruction or an iteration's end that a rank waits for, by the latest iterations at these clocks.

    Attributes:
        since_ns: The wait began no earlier.
        wait_ns: [ns] the least before it.
        duration_ns: [ns] the least that it took itself; 0 where the rank waits for the iteration's end.
    """

    since_ns: int
    wait_ns: int
    duration_ns: int


class RunDurations:
    """Passes durations of runs on to the pilot, to the watch for drift and to the reports of kind times.

    Attributes:
        longest_silence_ns: [ns] the longest run, and the longest wait of this iteration and the last one, together up
            to a minute. A first stage waits for its first gradient, and a last one for the others' last, as long as
            several runs take.
    """

    def __init__(
        self, order: Sequence[Work], *, pilot: Pilot, clock: HeldClock, drift: DriftWatch, kind_times: KindTimes
    ) -> None:
        self._order = order
        self._pilot = pilot
        self._clock = clock
        self._drift = drift
        self._kind_times = kind_times
        self._exact_runs = ExactRuns(self._learn, kind_times.forget)
        self._late_ns: int | None = None  # at most, of the boundaries being passed; None where their times are exact
        self._since_ns = 0  # the rank has surely not been longer where it is
        self._earliest_end_ns = 0  # of a run that has ended and was seen to end later
        self._longest_run_ns = 0
        self._wait_ns, self._wait_before_ns = 0, 0  # the longest of this iteration, and of the one before
        self.longest_silence_ns = 0  # asked for several times as often as it changes

    def look(self, now_ns: int, looked_ns: int | None) -> None:
        """The boundaries that follow were passed since the look at ``looked_ns``; None where their times are exact."""
        self._late_ns = None if looked_ns is None else now_ns - looked_ns

    def move(self, time_ns: int) -> None:
        """The rank has come further in its order."""
        since_ns = time_ns if self._late_ns is None else time_ns - self._late_ns
        if self._earliest_end_ns > since_ns:
            since_ns = min(self._earliest_end_ns, time_ns)
        self._since_ns = since_ns
        self._earliest_end_ns = 0

    def end_run(self, run: Run, clocks_mhz: tuple[int, ...] | None) -> None:
        """An instruction has ended, in an iteration at these clocks."""
        place, duration_ns, idle_ns = run.place, run.duration_ns, run.idle_ns
        least_ns = self._pilot.least_duration_ns(place)
        self._earliest_end_ns = 0 if least_ns is None else self._since_ns + least_ns
        if duration_ns > self._longest_run_ns or idle_ns > self._wait_ns:
            self._longest_run_ns = max(self._longest_run_ns, duration_ns)
            self._wait_ns = max(self._wait_ns, idle_ns)
            self._update_silence()
        clock_mhz = None if clocks_mhz is None else clocks_mhz[place]
        is_held = clock_mhz is not None and self._clock.was_held(clock_mhz, run.begin.time_ns)
        ran_at = RanAt(clocks_mhz, clock_mhz if is_held else None)
        self._kind_times.wait(run)
        self._exact_runs.add(run, ran_at, is_host_timed=self._late_ns is None)

    def end_iteration(self, tail_ns: int) -> None:
        """An iteration has ended, so long after its last instruction."""
        self._pilot.remember_tail(tail_ns)
        self._wait_ns, self._wait_before_ns = 0, max(self._wait_ns, tail_ns)
        self._update_silence()

    def add_device_time(self, sequence: int, iteration: int, device_ns: int) -> None:
        """When the device passed a boundary, after its iteration's first."""
        self._kind_times.has_device_times = True
        self._exact_runs.add_device_time(sequence, iteration, device_ns)

    def running(self, position: Position) -> Running | None:
        """The instruction that runs; None if none does, or its length is not known.

        Its end is not expected later because its begin was seen late: it began after the look before the one that saw
        it, and after the one before it had taken what that lately took at these clocks.
        """
        duration_ns = self._pilot.least_duration_ns(position.index) if position.is_running else None
        return None if duration_ns is None else Running(self._since_ns, duration_ns)

    def awaited(self, position: Position) -> Awaited | None:
        """The instruction, or the iteration's end, that the rank waits for; None if its times are not known."""
        least = self._pilot.least_of_next(position)
        return None if least is None else Awaited(self._since_ns, *least)

    def _update_silence(self) -> None:
        self.longest_silence_ns = min(self._longest_run_ns + max(self._wait_ns, self._wait_before_ns), _MAX_SILENT_NS)

    def _learn(self, run: ExactRun) -> None:
        self._pilot.remember(run)
        self._kind_times.learn(run)
        if run.ran_at.held_mhz is not None:
            work = self._order[run.place]
            self._drift.add((work.chunk, work.kind), run.ran_at.held_mhz, run.duration_ns / 1e9)
