"""Readings of one GPU's energy, power, clock and temperature through NVML. Reading needs no rights."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from perseus_dist.device.nvml.nvml import (
    DRIVER_NOT_LOADED,
    FUNCTION_NOT_FOUND,
    GPU_IS_LOST,
    LIBRARY_NOT_FOUND,
    NO_BINDINGS,
    NOT_FOUND,
    NOT_SUPPORTED,
    UNINITIALIZED,
    Nvml,
    NvmlError,
)
from perseus_dist.device.nvml.power_profiles import read_power_profiles

T = TypeVar("T")

# nvmlFieldValue: the power now, where GetPowerUsage tells the mean of a second on newer GPUs.
_FIELD_POWER_INSTANT = 186
_TEMPERATURE_GPU = 0

# With one of these the GPU is not there; looking for it again costs a driver call, so ever less often.
_GONE = frozenset({UNINITIALIZED, DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, NO_BINDINGS, NOT_FOUND, GPU_IS_LOST})
_RETRY_FIRST_NS = 500_000_000
_RETRY_LONGEST_NS = 30_000_000_000

_PERIOD_WINDOW_NS = 1_000_000_000
_PERIOD_STEP_S = 0.001
# Edges of the counter to be seen: the first marks no period, and the median of the others is the period.
_PERIOD_EDGES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterSample:
    """A GPU at one instant. None is what could not be read.

    Attributes:
        time_before_ns, time_after_ns: [ns, CLOCK_MONOTONIC] around the reading of the energy counter.
        energy_mj: [mJ] of the counter; never falls while the meter lives, not even when the driver is reloaded. Where
            the counter steps back, it stands until the counter has caught up.
        power_mw: [mW] instantaneous where the driver knows it, else the mean of about a second.
        clock_mhz: SM clock.
        event_reasons: NVML's clock event reasons, bits.
        temperature_c: of the GPU.
    """

    time_before_ns: int
    time_after_ns: int
    energy_mj: int | None
    power_mw: int | None
    clock_mhz: int | None
    event_reasons: int | None
    temperature_c: int | None


class GpuMeter:
    """Reads one GPU, by UUID. Never raises; may wait as long as the driver does, so give it a thread.

    Attributes:
        name: Product name; empty until it was read.
        driver_version: Empty until it was read.
        clocks_mhz: Supported SM clocks at the memory clock in use, descending; () until they were read.
        memory_mib: In all; 0 until it was read.
        default_power_limit_w, power_limit_w: By default, and enforced when it was read; 0 until they were.
        power_profiles: Enforced workload power profiles, or ``none``; empty where the GPU has no such thing.
    """

    def __init__(self, gpu_uuid: str) -> None:
        """Read what stays the same; if the GPU is not there, it is read later."""
        self._troubles: dict[str, str] = {}
        self.name = ""
        self.driver_version = ""
        self.clocks_mhz: tuple[int, ...] = ()
        self.memory_mib = 0
        self.default_power_limit_w = 0.0
        self.power_limit_w = 0.0
        self.power_profiles = ""
        self._nvml = Nvml()
        self._gpu = self._nvml.gpu(gpu_uuid)
        self._unsupported: set[str] = set()
        self._last_raw_mj = 0
        self._base_mj = 0
        self._has_been_gone = False  # since the counter was read last
        self._retry_ns = 0
        self._num_failures = 0
        self._identify()
        self._read_limits()

    @property
    def trouble(self) -> str:
        """The readings that fail, and why, in a sentence; empty while all succeed."""
        return next(iter(self._troubles.values()), "")

    def sample(self) -> MeterSample:
        """Everything at once: about six NVML calls."""
        self._identify()
        before_ns = time.monotonic_ns()
        energy_mj = self.energy_mj()
        after_ns = time.monotonic_ns()
        return MeterSample(
            time_before_ns=before_ns,
            time_after_ns=after_ns,
            energy_mj=energy_mj,
            power_mw=self._read("power", self._power_mw),
            clock_mhz=self._read("SM clock", self._gpu.sm_clock_mhz),
            event_reasons=self._read("clock event reasons", self._gpu.event_reasons),
            temperature_c=self._read("temperature", self._temperature_c),
        )

    def energy_mj(self) -> int | None:
        """The energy counter alone [mJ], as in ``MeterSample``: one NVML call."""
        raw_mj = self._read("energy", lambda: int(self._gpu.call("nvmlDeviceGetTotalEnergyConsumption")))
        if raw_mj is None:
            return None
        if raw_mj < self._last_raw_mj:
            # A reloaded driver counts from 0 again.
            if self._has_been_gone or raw_mj < self._last_raw_mj // 2:
                self._base_mj += self._last_raw_mj
            else:
                raw_mj = self._last_raw_mj
        self._last_raw_mj = raw_mj
        self._has_been_gone = False
        return self._base_mj + raw_mj

    def energy_period_s(self) -> float:
        """How often the driver publishes the counter [s], measured by watching it for up to a second; 0 without one."""
        edges_ns: list[int] = []
        last_mj = self.energy_mj()
        until_ns = time.monotonic_ns() + _PERIOD_WINDOW_NS
        while last_mj is not None and len(edges_ns) < _PERIOD_EDGES and (now_ns := time.monotonic_ns()) < until_ns:
            time.sleep(_PERIOD_STEP_S)
            energy_mj = self.energy_mj()
            if energy_mj is None:
                break
            if energy_mj != last_mj:
                edges_ns.append(now_ns)
            last_mj = energy_mj
        periods_ns = sorted(later - earlier for earlier, later in pairwise(edges_ns))
        return periods_ns[len(periods_ns) // 2] / 1e9 if periods_ns else 0.0

    def _identify(self) -> None:
        if not self.name:
            self.name = self._read("name", lambda: _text(self._gpu.call("nvmlDeviceGetName"))) or ""
        if not self.driver_version:
            read = self._read("driver version", lambda: _text(self._nvml.call("nvmlSystemGetDriverVersion")))
            self.driver_version = read or ""
        if not self.clocks_mhz:
            self.clocks_mhz = self._read("supported clocks", self._gpu.clocks_mhz) or ()

    def _read_limits(self) -> None:
        """Read memory, power limits and profiles for the fingerprint; that a driver has them not is no trouble."""
        self.memory_mib = self._quietly(lambda: int(self._gpu.call("nvmlDeviceGetMemoryInfo").total)) >> 20
        default_mw = self._quietly(lambda: int(self._gpu.call("nvmlDeviceGetPowerManagementDefaultLimit")))
        limit_mw = self._quietly(lambda: int(self._gpu.call("nvmlDeviceGetEnforcedPowerLimit")))
        self.default_power_limit_w, self.power_limit_w = default_mw / 1e3, limit_mw / 1e3
        with suppress(NvmlError):
            self.power_profiles = str(read_power_profiles(self._gpu))

    @staticmethod
    def _quietly(read: Callable[[], int]) -> int:
        """One reading; 0 where it fails."""
        try:
            return read()
        except NvmlError:
            return 0

    def _read(self, what: str, read: Callable[[], T]) -> T | None:
        """One reading; a failure becomes None and trouble."""
        if what in self._unsupported or time.monotonic_ns() < self._retry_ns:
            return None
        try:
            value = read()
        except NvmlError as error:
            self._troubles[what] = f"{what} cannot be read: {error}"
            if error.code in _GONE:
                self._has_been_gone = True
                delay_ns = min(_RETRY_LONGEST_NS, _RETRY_FIRST_NS << min(self._num_failures, 10))
                self._retry_ns = time.monotonic_ns() + delay_ns
                self._num_failures += 1
            elif error.code in (NOT_SUPPORTED, FUNCTION_NOT_FOUND):
                self._unsupported.add(what)
            return None
        self._num_failures = 0
        self._troubles.pop(what, None)
        return value

    def _power_mw(self) -> int:
        try:
            (field,) = self._gpu.call("nvmlDeviceGetFieldValues", [_FIELD_POWER_INSTANT])
            if field.nvmlReturn == 0:
                return int(field.value.uiVal)
        except NvmlError as error:
            if error.code not in (NOT_SUPPORTED, FUNCTION_NOT_FOUND):
                raise
        return int(self._gpu.call("nvmlDeviceGetPowerUsage"))

    def _temperature_c(self) -> int:
        try:
            return int(self._gpu.call("nvmlDeviceGetTemperatureV", _TEMPERATURE_GPU))
        except NvmlError as error:
            if error.code != FUNCTION_NOT_FOUND:
                raise
        return int(self._gpu.call("nvmlDeviceGetTemperature", _TEMPERATURE_GPU))


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
