"""Has an instruction's time left the profile? What is throttled or not at the clock asked for is not asked about."""

import statistics
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from perseus_dist.agent.measuring.profiler import Key
from perseus_dist.messages.from_planner import Expected

_WINDOW_RUNS = 32
_MIN_RUNS = 8
_ITERATIONS = 5  # in a row, so that one slow iteration, or one slow data batch, is no drift
_PROBE_ITERATIONS = 3  # without a plan; after more of them it is not known whether a drift has lasted
_LASTING_ITERATIONS = 24  # in a row, after which it is reported again; then each time twice as many


@dataclass(frozen=True, slots=True, kw_only=True)
class Drifted:
    """One kind of instruction whose median time is beyond the tolerance."""

    key: Key
    clock_mhz: int
    profile_time_s: float
    measured_time_s: float
    num_runs: int
    num_iterations: int


@dataclass(slots=True)
class _Watch:
    times_s: dict[int, float]  # by clock
    ratios: deque[float]
    clock_mhz: int = 0
    num_new: int = 0
    num_idle: int = 0  # iterations in a row without a run at the clock asked for
    streak: int = 0
    reported_at: int = _ITERATIONS  # the streak that is reported next


class DriftWatch:
    """Ratios of measured to expected time, by (chunk, kind).

    A drift is reported once per profile, and again where it lasts.
    """

    def __init__(self, tolerance: float) -> None:
        self._tolerance = tolerance
        self._watches: dict[Key, _Watch] = {}

    def expect(self, expected: Sequence[Expected]) -> None:
        """A new profile: everything starts again."""
        self._watches = {
            (e.chunk, e.kind): _Watch(dict(zip(e.clocks_mhz, e.times_s, strict=True)), deque(maxlen=_WINDOW_RUNS))
            for e in expected
        }

    def add(self, key: Key, clock_mhz: int, time_s: float) -> None:
        """A run at the clock that was asked for."""
        watch = self._watches.get(key)
        if watch is None or (expected_s := watch.times_s.get(clock_mhz)) is None:
            return
        watch.ratios.append(time_s / expected_s)
        watch.clock_mhz = clock_mhz
        watch.num_new += 1

    def end_iteration(self) -> list[Drifted]:
        """Instructions that have drifted by now."""
        return [drifted for key, watch in self._watches.items() if (drifted := self._judge(key, watch)) is not None]

    def _judge(self, key: Key, watch: _Watch) -> Drifted | None:
        has_news = watch.num_new > 0
        watch.num_new, watch.num_idle = 0, 0 if has_news else watch.num_idle + 1
        if watch.num_idle > _PROBE_ITERATIONS:
            watch.ratios.clear()
            watch.streak = 0
        if not has_news or len(watch.ratios) < _MIN_RUNS:
            return None
        ratio = _lasting_ratio(watch.ratios)
        watch.streak = watch.streak + 1 if abs(ratio - 1) > self._tolerance else 0
        if watch.streak < watch.reported_at:
            return None
        watch.reported_at = max(_LASTING_ITERATIONS, 2 * watch.streak)
        expected_s = watch.times_s[watch.clock_mhz]
        return Drifted(
            key=key,
            clock_mhz=watch.clock_mhz,
            profile_time_s=expected_s,
            measured_time_s=ratio * expected_s,
            num_runs=len(watch.ratios),
            num_iterations=watch.streak,
        )


def _lasting_ratio(ratios: Collection[float]) -> float:
    """The median, as far as the newest runs are still so far off: few microbatches fill the window for long."""
    whole, newest = statistics.median(ratios), statistics.median(list(ratios)[-_MIN_RUNS:])
    return 1.0 if (whole > 1) != (newest > 1) else min(whole, newest, key=lambda ratio: abs(ratio - 1))
