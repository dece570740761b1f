"""Joules saved, by measurement: what iterations under plans drew less than the same ones would have at full clocks.

What full clocks draw *now* is the question. A GPU that is capped or hot, a batch that has grown or a straggler changes
it for every plan alike, so what the run's baseline drew answers it at the begin only; probes do so ever after. One
probe is a noisy answer: as long as probes agree, the mean of all of them and of the baseline is taken.
"""

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median

_NUM_NOISE = 64
_MIN_NOISE = 8
_NORMAL = 1.4826 / math.sqrt(2)  # from a median of absolute differences to a standard deviation
_NORMAL_SPREAD = 1.349  # from a standard deviation to an interquartile range
_ALIKE_TIME = 0.02
_ALIKE_ENERGY = 0.01
_Z = 4.0
_MOST_POOLED = 64  # a mean that many cycles of heat and cold have gone into would hide the next one
_PROBED = 3  # iterations of a probe; clocks are on their way in the first
_MOST_KNOWN = 8
_MOST_OPEN = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class FullClocks:
    """An iteration at full clocks.

    Attributes:
        time_s: [s] it lasts.
        energy_j: [J] all GPUs draw.
        num_iterations: Those that this is the mean of.
    """

    time_s: float
    energy_j: float
    num_iterations: int


@dataclass(frozen=True, slots=True)
class _Planned:
    time_s: float
    energy_j: float
    waited_s: float | None
    waiting_w: float

    def saved_j(self, full: FullClocks) -> float:
        free_s = min(self.time_s, full.time_s) if self.waited_s is None else self.waited_s
        return full.energy_j + self.waiting_w * max(0.0, free_s - full.time_s) - self.energy_j


@dataclass(slots=True, kw_only=True)
class Saving:
    """Of one run.

    Attributes:
        saved_j: [J] so far; negative where plans drew more.
        full: Full clocks as the newest probes, or the baseline, have shown them; None before either.
    """

    saved_j: float = 0.0
    full: FullClocks | None = None

    _probed: list[tuple[float, float]] = field(default_factory=list)
    _probed_number: int = -1
    _open: deque[_Planned] = field(default_factory=lambda: deque(maxlen=_MOST_OPEN))  # since the newest probe
    _known: list[FullClocks] = field(default_factory=list)  # the newest last: what ends may come again
    _first_noise: float = 0.0
    _noise: deque[float] = field(default_factory=lambda: deque(maxlen=_NUM_NOISE))
    _latest: _Planned | None = None

    def begin(self, full: FullClocks, energy_spread_j: float) -> None:
        """The baseline has been measured.

        Args:
            full: What it was.
            energy_spread_j: [J] interquartile range of its iterations.
        """
        self.full = full
        self._known = [full]
        self._first_noise = energy_spread_j / _NORMAL_SPREAD / full.energy_j
        self._open.clear()

    def take_full(self, number: int, time_s: float, energy_j: float | None) -> None:
        """Take note of an iteration at full clocks on all ranks.

        Args:
            number: Of the iteration.
            time_s: [s] it took.
            energy_j: [J] all GPUs drew; None where that is not known.
        """
        if number != self._probed_number + 1:
            self._probed.clear()
        self._probed_number = number
        if not energy_j:  # nor does a counter that has not ticked say anything
            self._probed.clear()
            return
        self._probed.append((time_s, energy_j))
        if len(self._probed) < _PROBED:
            return
        probed = _full_clocks(self._probed)
        self._probed.clear()
        before, alike = self.full, [known for known in reversed(self._known) if self._are_alike(known, probed)]
        for known in alike[:1]:
            self._known.remove(known)
            probed = _pooled(known, probed)
        self._known = [*self._known, probed][-_MOST_KNOWN:]
        self.full = probed
        if before is not None and before not in alike[:1]:
            self._change(before, probed)
        self._open.clear()

    def take_planned(
        self, time_s: float, energy_j: float | None, *, waited_s: float | None = None, waiting_w: float
    ) -> None:
        """Count an iteration under a plan.

        Args:
            time_s: [s] it took.
            energy_j: [J] all GPUs drew. None where that is not known, as of the last one of a job that has ended: it
                drew what the one before drew, if it took as long.
            waited_s: [s] that it would have lasted at full clocks, where an operator or the target asks for a wait. By
                default as long as the newest probe, and no longer than it did.
            waiting_w: [W] that all GPUs draw while they wait.
        """
        latest = self._latest
        if energy_j is None:
            if latest is None or abs(time_s / latest.time_s - 1) > _ALIKE_TIME:
                return
            energy_j = latest.energy_j
        elif latest is not None and latest.energy_j > 0 and energy_j > 0:
            self._noise.append(abs(math.log(energy_j / latest.energy_j)))
        self._latest = planned = _Planned(time_s, energy_j, waited_s, waiting_w)
        if self.full is None:
            return
        self._open.append(planned)
        self.saved_j += planned.saved_j(self.full)

    def _are_alike(self, full: FullClocks, probed: FullClocks) -> bool:
        noise = _NORMAL * median(self._noise) if len(self._noise) >= _MIN_NOISE else self._first_noise
        doubt = _Z * noise * math.sqrt(1 / full.num_iterations + 1 / probed.num_iterations)
        is_as_long = abs(probed.time_s / full.time_s - 1) <= _ALIKE_TIME
        return is_as_long and abs(probed.energy_j / full.energy_j - 1) <= max(_ALIKE_ENERGY, doubt)

    def _change(self, before: FullClocks, now: FullClocks) -> None:
        """Full clocks are another matter now, from somewhere between the two newest probes on."""
        changed = list(self._open)[_change_point(self._open, before, now) :]
        self.saved_j += sum(one.saved_j(now) - one.saved_j(before) for one in changed)


def _full_clocks(probed: Sequence[tuple[float, float]]) -> FullClocks:
    """Of successive iterations, the first of which may have begun at other clocks.

    An energy counter that ticks, and is read by lines through its ticks, gives the first too little and the last too
    much where clocks rise before and fall after; together they are right.
    """
    time_s = fmean(time_s for time_s, _ in probed[1:])
    if abs(probed[0][0] / time_s - 1) <= _ALIKE_TIME:
        return FullClocks(time_s=time_s, energy_j=fmean(energy_j for _, energy_j in probed), num_iterations=len(probed))
    return FullClocks(time_s=time_s, energy_j=probed[1][1], num_iterations=1)


def _pooled(full: FullClocks, probed: FullClocks) -> FullClocks:
    num = min(full.num_iterations, _MOST_POOLED) + probed.num_iterations
    share = probed.num_iterations / num
    return replace(
        full,
        time_s=full.time_s + share * (probed.time_s - full.time_s),
        energy_j=full.energy_j + share * (probed.energy_j - full.energy_j),
        num_iterations=num,
    )


def _change_point(planned: Sequence[_Planned], before: FullClocks, now: FullClocks) -> int:
    """Index of the first iteration after the change.

    It is behind those that were faster than full clocks are now, or drew more, which no plan is or does. Else it is
    where times leave what they were for what they are, or else where energies change most; and if they show nothing,
    it was in the middle.
    """
    shortest_s, most_j = (1 - _ALIKE_TIME) * now.time_s, (1 + _ALIKE_TIME) * now.energy_j
    first = _behind_last(one.time_s < shortest_s or one.energy_j > most_j for one in planned)
    if abs(now.time_s / before.time_s - 1) > _ALIKE_TIME:
        were = _behind_last(abs(one.time_s - before.time_s) < abs(one.time_s - now.time_s) for one in planned)
        return max(first, were)
    num, total, sum_before = len(planned), sum(one.energy_j for one in planned), 0.0
    best, most = (first + num) // 2, _ALIKE_ENERGY
    mean_j = total / num if num else 0.0
    for k in range(1, num):
        sum_before += planned[k - 1].energy_j
        change_j = abs(sum_before / k - (total - sum_before) / (num - k))
        change = change_j * math.sqrt(k * (num - k)) / num / mean_j if mean_j else 0.0
        if k >= first and change > most:
            best, most = k, change
    return best


def _behind_last(flags: Iterable[bool]) -> int:
    return max((i + 1 for i, flag in enumerate(flags) if flag), default=0)
