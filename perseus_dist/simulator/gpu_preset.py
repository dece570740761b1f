"""Model of a simulated GPU: clocks, limits, latencies, and the cost of kernels at each clock."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from perseus_dist.simulator.errors import SimulatorError

Knots = tuple[tuple[int, float], ...]
"""(clock [MHz], value) in ascending order of clocks; in between, values are interpolated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long clock changes take and how often the energy counter is published.

    Attributes:
        call_latency_s: How long the driver call that sets or resets a lock blocks.
        call_jitter_s: Up to this much more, drawn for each call from the machine's own random numbers.
        settle_s: From the return of the call until the clock is there.
        settle_by_clock_s: The same by the clock that is asked for, interpolated; empty where all take ``settle_s``, as
            the return from a lock does.
        energy_period_s: Between two updates of the energy counter; 0 for a counter that is always exact.
    """

    call_latency_s: float = 0.006
    call_jitter_s: float = 0.0015
    settle_s: float = 0.006
    settle_by_clock_s: Knots = ()
    energy_period_s: float = 0.02

    def settle_to_s(self, clock_mhz: int) -> float:
        """[s] from the return of the call until this clock is there."""
        return _interpolate(self.settle_by_clock_s, clock_mhz) if self.settle_by_clock_s else self.settle_s


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelClass:
    """A kind of kernel, as curves over the clock. Below the lowest knot time grows as 1 / clock.

    Attributes:
        name: For example "forward".
        relative_time: Any unit; only ratios count.
        power_w: Below the lowest knot it falls in a straight line to the GPU's idle power at 0 MHz.
    """

    name: str
    relative_time: Knots
    power_w: Knots


@dataclass(frozen=True, kw_only=True)
class GpuPreset:
    """A GPU model.

    Attributes:
        nvml_name: What NVML calls it.
        architecture: NVML's number (7 = Ampere, 9 = Hopper).
        compute_capability: CUDA's.
        pci_device_id: Device and vendor.
        memory_mib: Size of the memory.
        clocks_mhz: Supported graphics clocks, descending.
        memory_clocks_mhz: Supported memory clocks, descending.
        power_limits_w: Least, default, greatest.
        regulated_share: Where the power cap keeps the mean power, as a share of the limit.
        power_average_s: What nvmlDeviceGetPowerUsage averages over; 0 = instantaneous.
        idle_power_w: With nothing to do.
        blocking_power_w: At the maximum clock, while a kernel waits for another GPU.
        blocking_clock_share: What part of the blocking power goes with the clock.
        timing: Latencies.
        classes: What kernels cost.
        source: Where the figures come from.
    """

    name: str
    nvml_name: str
    architecture: int
    compute_capability: tuple[int, int]
    pci_device_id: int
    memory_mib: int
    clocks_mhz: tuple[int, ...]
    memory_clocks_mhz: tuple[int, ...]
    power_limits_w: tuple[float, float, float]
    regulated_share: float = 0.98
    power_average_s: float = 0.0
    idle_power_w: float
    blocking_power_w: float
    blocking_clock_share: float = 0.1
    timing: Timing = Timing()
    classes: tuple[KernelClass, ...]
    source: str

    def blocking_power_at_w(self, clock_mhz: int) -> float:
        """Power while a kernel waits for another GPU [W]: mostly static, a little less at lower clocks."""
        return self.blocking_power_w * (1.0 - self.blocking_clock_share * (1.0 - clock_mhz / self.clocks_mhz[0]))

    def kernel_time_s(self, kernel_class: str, seconds: float, clock_mhz: int) -> float:
        """How long a kernel takes at a locked clock, under the default power limit.

        Args:
            kernel_class: Name of the class.
            seconds: Its time at the maximum clock.
            clock_mhz: A supported clock.

        Raises:
            SimulatorError: No such class or clock.
        """
        return seconds * self._regulated(kernel_class, clock_mhz)[0]

    def kernel_power_w(self, kernel_class: str, clock_mhz: int) -> float:
        """[W] power of a kernel at a locked clock, under the default power limit. Raises as ``kernel_time_s``."""
        return self._regulated(kernel_class, clock_mhz)[1]

    def check_clock(self, clock_mhz: int) -> None:
        """Whether the GPU has a clock.

        Raises:
            SimulatorError: It has not.
        """
        if clock_mhz not in self.clocks_mhz:
            raise SimulatorError(
                f"clock {clock_mhz} MHz: {self.nvml_name} has {self.clocks_mhz[-1]} to {self.clocks_mhz[0]} MHz "
                f"in steps of {self.clocks_mhz[0] - self.clocks_mhz[1]}; name one of them"
            )

    def class_tables(self, kernel_class: str) -> tuple[list[float], list[float]]:
        """Relative times and powers [W] at all clocks, descending, as if there were no power limit.

        A relative time of 1 is that of the maximum clock under the default power limit.
        """
        curve = self._class(kernel_class)
        times = [_time_at(curve.relative_time, clock) for clock in self.clocks_mhz]
        powers = [_power_at(curve.power_w, clock, self.idle_power_w) for clock in self.clocks_mhz]
        at_maximum = _regulate(times, powers, 0, self.regulated_share * self.power_limits_w[1])[0]
        return [time / at_maximum for time in times], powers

    @cached_property
    def _tables(self) -> dict[str, tuple[list[float], list[float]]]:
        return {curve.name: self.class_tables(curve.name) for curve in self.classes}

    def _regulated(self, kernel_class: str, clock_mhz: int) -> tuple[float, float]:
        self._class(kernel_class)
        self.check_clock(clock_mhz)
        times, powers = self._tables[kernel_class]
        index = self.clocks_mhz.index(clock_mhz)
        return _regulate(times, powers, index, self.regulated_share * self.power_limits_w[1])

    def _class(self, name: str) -> KernelClass:
        for curve in self.classes:
            if curve.name == name:
                return curve
        names = ", ".join(curve.name for curve in self.classes)
        raise SimulatorError(f"kernel class {name!r}: {self.nvml_name} has {names}; name one of them")


def _interpolate(knots: Knots, clock_mhz: int) -> float:
    for (left, left_value), (right, right_value) in pairwise(knots):
        if clock_mhz <= right:
            return left_value + (right_value - left_value) * (clock_mhz - left) / (right - left)
    return knots[-1][1]


def _time_at(knots: Knots, clock_mhz: int) -> float:
    lowest_mhz, lowest_value = knots[0]
    return lowest_value * lowest_mhz / clock_mhz if clock_mhz < lowest_mhz else _interpolate(knots, clock_mhz)


def _power_at(knots: Knots, clock_mhz: int, idle_w: float) -> float:
    lowest_mhz, lowest_w = knots[0]
    if clock_mhz < lowest_mhz:  # the voltage is at its floor: what is not static goes with the clock
        return idle_w + (lowest_w - idle_w) * clock_mhz / lowest_mhz
    return _interpolate(knots, clock_mhz)


def _regulate(times: list[float], powers: list[float], index: int, regulated_w: float) -> tuple[float, float]:
    """Relative time and power [W] at the clock of an index, under a power cap; the same rule as in physics.c."""
    slow = index
    while slow + 1 < len(powers) and powers[slow] > regulated_w:
        slow += 1
    power_w, rate = powers[slow], 1.0 / times[slow]
    if slow != index:
        share = (regulated_w - power_w) / (powers[slow - 1] - power_w) if power_w < regulated_w else 0.0
        power_w += share * (powers[slow - 1] - power_w)
        rate += share * (1.0 / times[slow - 1] - rate)
    return 1.0 / rate, power_w
