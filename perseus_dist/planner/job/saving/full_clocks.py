"""Energy of iterations at full clocks: windows of them in a row, and the states of the machines that they show.

An energy counter ticks. What is read between its ticks by straight lines moves energy across an iteration's begin and
end, but not across the middle of a window: the longer a window in a row, the less of its mean is in doubt. Where clocks
rise as a window begins, and fall as it ends, such lines round off the steps: always at the window's cost, and to the
gain of the iterations beside it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

METER_SHARE = 0.2
"""Of a counter's period: standard deviation at both ends of a window together, as time at the window's power."""
_STEP_SHARE = 1 / 6  # of a counter's period, that a step of power is rounded off by on the mean
_ALIKE_TIME = 0.005
_ALIKE_ENERGY = 0.003
_STEADY_ENERGY = 0.015  # lines between readings a second apart move that much at a window's begin and end
_MIN_STEADY = 3
_MIN_INNER = 5
_EDGES = 2  # readings that an iteration's energy is the difference of, each off by a counter's period at most
_ON_THE_WAY = 0.02
_Z = 4.0
_METER_Z = 2.0  # of what counters that tick leave in doubt: more would hide states
_DOUBT_Z = 4.0
_MIN_BESIDE, _MIN_USUAL = 2, 16
_MAX_WEIGHT = 1024.0  # a mean that ever more went into would hide the next cycle of heat and cold


@dataclass(slots=True, kw_only=True)
class FullClocks:
    """One state of the machines: an iteration at full clocks in it.

    Attributes:
        time_s: [s] it lasts.
        energy_j: [J] all GPUs draw.
        num_iterations: Measured ones that this is the mean of; 0 for a guess.
        weight: Of what was measured: a window counts by the square of its length.
        meter_s: [s] of an iteration's energy that is in doubt in a window of one.
        guess_share: Of what iterations under plans save, how much of that a guess may be off by.
    """

    time_s: float
    energy_j: float
    num_iterations: int
    weight: float = 0.0
    meter_s: float = 0.0
    guess_share: float = 0.0

    @property
    def doubt_j(self) -> float:
        """[J] that an iteration may draw more or less, because counters tick."""
        share = self.meter_s / self.time_s / math.sqrt(self.weight) if self.weight else 0.0
        return _DOUBT_Z * share * self.energy_j

    def is_like(self, other: "FullClocks", *, time_noise: float, energy_noise: float) -> bool:
        """Whether two may be one state, by the standard deviations of a single iteration, as shares."""
        if not (self.weight and other.weight):
            return False
        meter = _METER_Z * max(self.meter_s / self.time_s, other.meter_s / other.time_s) + _Z * energy_noise
        energy_doubt = max(_ALIKE_ENERGY, meter * math.sqrt(1 / self.weight + 1 / other.weight))
        is_as_hungry = abs(self.energy_j / other.energy_j - 1) <= energy_doubt
        return is_as_hungry and self.is_as_long_as(other, time_noise)

    def is_as_long_as(self, other: "FullClocks", time_noise: float) -> bool:
        """Whether iterations of two states may take as long, so that no time under a plan tells in which it lies."""
        num = 1 / max(1, self.num_iterations) + 1 / max(1, other.num_iterations)
        time_doubt = max(_ALIKE_TIME, _Z * time_noise * math.sqrt(num))
        return abs(self.time_s / other.time_s - 1) <= time_doubt

    def pool(self, other: "FullClocks") -> None:
        """More of the same was measured."""
        share = other.weight / (self.weight + other.weight)
        self.time_s += share * (other.time_s - self.time_s)
        self.energy_j += share * (other.energy_j - self.energy_j)
        self.weight = min(self.weight + other.weight, _MAX_WEIGHT)
        self.num_iterations += other.num_iterations
        self.meter_s = max(self.meter_s, other.meter_s)


@dataclass(slots=True, kw_only=True)
class Beside:
    """Iterations under a plan on one side of a window.

    Attributes:
        energies_j: [J] of each, from the window away.
        usual_time_s, usual_j: [s], [J] the mean of all that look like them.
        num_usual: How many that is of.
    """

    energies_j: list[float]
    usual_time_s: float
    usual_j: float
    num_usual: int

    def excess_j(self, window_w: float, period_s: float) -> tuple[float, float]:
        """[J] of the window's energy that was counted here, and how doubtful that is, as 1 for an edge read once.

        As the counter runs on, so does the sum of energies: the line that it follows under the plan, back to the
        window's edge, is known better than any one reading, if there are enough iterations to draw it by. No reading is
        further off than a counter's period at the step of power.
        """
        num, middle = len(self.energies_j), (len(self.energies_j) + 1) / 2
        tick_j = period_s * (window_w - self.usual_j / self.usual_time_s)
        if num < _MIN_BESIDE or self.num_usual < _MIN_USUAL:
            return _STEP_SHARE * tick_j, 1.0
        sums_j = list(accumulate(energy_j - self.usual_j for energy_j in self.energies_j))
        most_j = abs(tick_j)
        return max(-most_j, min(sum(sums_j) / num, most_j)), min(1.0, 1 / num + 2 * (middle / self.num_usual) ** 2)


@dataclass(slots=True, kw_only=True)
class FullWindow:
    """Iterations at full clocks in a row that take as long as each other.

    Attributes:
        first, last: Their numbers.
        time_s, energy_j: [s], [J] summed.
        period_s: [s] of the energy counters.
        is_settled: Its first iteration was not the first at full clocks, which are on their way then.
        last_s, last_j: [s], [J] of the last one; 0 where it is the first as well.
    """

    first: int
    last: int
    time_s: float
    energy_j: float
    period_s: float
    is_settled: bool
    last_s: float = 0.0
    last_j: float = 0.0

    @property
    def says_something(self) -> bool:
        """Whether an iteration in it was all at full clocks; a short one alone is lost in the counter's steps."""
        is_clear = self.is_settled and METER_SHARE * self.period_s <= _ALIKE_TIME * self.time_s
        return is_clear or self.first < self.last

    @property
    def num_iterations(self) -> int:
        """Number of iterations in the window."""
        return self.last - self.first + 1

    def is_on_the_way_to(self, time_s: float, stretch: float) -> bool:
        """Whether clocks rose in its only iteration, which is why the next one at full clocks takes less.

        Args:
            time_s: [s] of the next one.
            stretch: Of the plan before it, which is the most that lower clocks explain; 0 where that is not known.
        """
        is_explained = not stretch or self.time_s <= (1 + _ON_THE_WAY) * max(1.0, stretch) * time_s
        return self.num_iterations == 1 and not self.is_settled and time_s < self.time_s and is_explained

    def goes_on(self, number: int, time_s: float, energy_j: float, time_noise: float) -> bool:
        """Whether an iteration is the next one of this window; in the first one clocks may have been on their way.

        A GPU that others wait for hides in their times what another one draws more or less.
        """
        num = self.num_iterations
        is_on_the_way = not self.is_settled and num == 1
        time_share = _ON_THE_WAY if is_on_the_way else max(_ALIKE_TIME, _Z * time_noise)
        # Behind a first one that was on the way all are alike, and a little shorter.
        alike_s = self.last_s if not self.is_settled and self.last_s else self.time_s / num
        if number != self.last + 1 or abs(time_s / alike_s - 1) > time_share:
            return False
        energy_share = max(_STEADY_ENERGY, _Z * time_noise, _EDGES * self.period_s / time_s)
        return num < _MIN_STEADY or abs(energy_j * num / self.energy_j - 1) <= energy_share

    @property
    def borrowed_j(self) -> float:
        """[J] by which the last iteration drew more than the others: counted here, and missing just behind the window.

        Where clocks change, counters are read at once; at other iterations' ends lines between two readings tell, which
        are wrong by as much at each, as long as clocks stay. 0 where there are too few others.
        """
        num = self.num_iterations - 1
        return self.last_j - (self.energy_j - self.last_j) / num if num >= _MIN_INNER and self.last_j else 0.0

    def add(self, time_s: float, energy_j: float) -> None:
        """Add the next iteration's time [s] and energy [J]."""
        self.last += 1
        self.time_s += time_s
        self.energy_j += energy_j
        self.last_s, self.last_j = time_s, energy_j

    def excess_j(self, beside: Beside) -> tuple[float, float]:
        """As of ``Beside``, [J] of this window's."""
        return beside.excess_j(self.energy_j / self.time_s, self.period_s)

    def shown(self, beside: Sequence[Beside]) -> FullClocks:
        """Time and energy of its iterations, given those beside it at other clocks, on either side."""
        num = self.num_iterations
        found = [self.excess_j(one) for one in beside]
        doubt = sum(doubt for _, doubt in found) + 2 - len(found)
        return FullClocks(
            time_s=self.time_s / num,
            energy_j=(self.energy_j + sum(excess_j for excess_j, _ in found)) / num,
            num_iterations=num,
            weight=2 * num * num / doubt,
            meter_s=METER_SHARE * self.period_s,
        )
