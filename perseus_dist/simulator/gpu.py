"""One simulated GPU as a test sees it: its true state, and what can be done to it."""

import ctypes
import os
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

from perseus_dist.simulator import native_library as layout
from perseus_dist.simulator.errors import SimulatorError
from perseus_dist.simulator.gpu_preset import GpuPreset
from perseus_dist.simulator.native_library import NativeGpuState, NativeReading, native
from perseus_dist.simulator.stream import SimulatedStream

_READINGS_PER_CALL = 256


class Load(StrEnum):
    """The work of a GPU."""

    IDLE = "idle"
    BLOCKED = "blocked"  # waits for a peer or a transfer, or had work less than 50 ms ago
    RUNNING = "running"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuState:
    """The truth about a GPU at one moment.

    Attributes:
        time_ns: The machine's clock.
        locked_mhz: The lock in effect (lo, hi), or None.
        is_pending: A set or reset has been accepted and is not in effect yet.
        clock_mhz: The clock it runs at.
        event_reasons: As from NVML.
        load: What it does.
        power_w: What it draws.
        power_limit_w: What it may draw.
        true_energy_j: The exact integral of power since the machine was made.
        energy_counter_mj: NVML's counter: since the driver was loaded, updated once a period.
        running_s: How long kernels have run.
        num_sets: Accepted requests for a lock.
        num_resets: Accepted resets.
        num_enqueued: Operations ever enqueued on the stream.
        num_completed: Operations done.
    """

    time_ns: int
    locked_mhz: tuple[int, int] | None
    is_pending: bool
    clock_mhz: int
    event_reasons: int
    load: Load
    power_w: float
    power_limit_w: float
    true_energy_j: float
    energy_counter_mj: int
    running_s: float
    num_sets: int
    num_resets: int
    num_enqueued: int
    num_completed: int

    @property
    def is_unlocked(self) -> bool:
        """Neither locked nor about to be."""
        return self.locked_mhz is None and not self.is_pending


class GpuReading(NamedTuple):
    """A reading of a GPU through NVML at one moment.

    Attributes:
        pending_at_ns: When the clock that is on its way will be there; 0 where none is. NVML does not tell.
    """

    energy_mj: int
    power_mw: int
    clock_mhz: int
    event_reasons: int
    temperature_c: int
    pending_at_ns: int


class SimulatedGpu:
    """One GPU of a ``SimulatedMachine``."""

    def __init__(self, machine: int, index: int, preset: GpuPreset) -> None:
        self._machine = machine
        self.index = index
        self.preset = preset
        self._raw = NativeGpuState()
        self._readings = (NativeReading * _READINGS_PER_CALL)()
        self._reading_numbers = (ctypes.c_uint64 * (2 * _READINGS_PER_CALL)).from_buffer(self._readings)
        self.uuid: str = native().perseus_sim_uuid(machine, index).decode()

    @cached_property
    def stream(self) -> SimulatedStream:
        """Its compute stream, opened by this process at first use."""
        return SimulatedStream(self._machine, self.index)

    def state(self) -> GpuState:
        """The GPU's true state at this moment, past what NVML shows."""
        raw = NativeGpuState()
        native().perseus_sim_gpu_state(self._machine, self.index, raw)
        return GpuState(
            time_ns=raw.time_ns,
            locked_mhz=(raw.lock_lo_mhz, raw.lock_hi_mhz) if raw.lock_hi_mhz else None,
            is_pending=bool(raw.is_pending),
            clock_mhz=raw.clock_mhz,
            event_reasons=raw.reasons,
            load=tuple(Load)[raw.load],
            power_w=raw.power_w,
            power_limit_w=raw.power_limit_mw / 1e3,
            true_energy_j=raw.true_energy_j,
            energy_counter_mj=raw.energy_counter_mj,
            running_s=raw.running_s,
            num_sets=raw.num_sets,
            num_resets=raw.num_resets,
            num_enqueued=raw.num_enqueued,
            num_completed=raw.num_completed,
        )

    def read(self) -> GpuReading:
        """The same that NVML would tell now, without NVML."""
        raw = self._raw
        native().perseus_sim_gpu_state(self._machine, self.index, raw)
        return GpuReading(
            energy_mj=raw.energy_counter_mj,
            power_mw=raw.power_mw,
            clock_mhz=raw.clock_mhz,
            event_reasons=raw.reasons,
            temperature_c=raw.temperature_c,
            pending_at_ns=raw.pending_at_ns,
        )

    def keep_counter(self, is_on: bool) -> int:  # noqa: FBT001 - a switch
        """Keep what the energy counter publishes from now on, for ``published``; [mJ] of the counter now."""
        energy_mj: int = native().perseus_sim_keep_readings(self._machine, self.index, is_on)
        return energy_mj

    def published(self) -> list[tuple[int, int]]:
        """(time [ns], counter [mJ]) of each publication since the last call; the latest 4,096 are kept."""
        numbers = self._reading_numbers
        taken: list[tuple[int, int]] = []
        while True:
            count = native().perseus_sim_take_readings(self._machine, self.index, self._readings, _READINGS_PER_CALL)
            taken += zip(numbers[0 : 2 * count : 2], numbers[1 : 2 * count : 2], strict=True)
            if count < _READINGS_PER_CALL:
                return taken

    def request_clock(self, clock_mhz: int | None) -> None:
        """Lock to one clock, or unlock, as the NVML calls do, but without waiting for the call's latency."""
        clock = clock_mhz or 0
        native().perseus_sim_request_lock(self._machine, self.index, clock, clock)

    def set_thermal_cap(self, clock_mhz: int | None) -> None:
        """Overheat: no clock above this one, event reason 0x20, 90 C. None cools down."""
        self._set(layout.SET_THERMAL_CAP, clock_mhz or 0)
        self._set(layout.SET_TEMPERATURE, 90 if clock_mhz else 45)

    def set_event_reasons(self, reasons: int) -> None:
        """Event reasons that NVML reports besides those that follow from the state."""
        self._set(layout.SET_REASONS, reasons)

    def set_power_limit_w(self, limit_w: float) -> None:
        """Set the power limit, as an operator does with ``nvidia-smi -pl``."""
        self._set(layout.SET_POWER_LIMIT, round(limit_w * 1e3))

    def set_power_profiles(self, requested: Collection[int], *, enforced: Collection[int] | None = None) -> None:
        """Have workload power profiles, as a GPU of Blackwell has, and these set by an operator's tool.

        Args:
            requested: NVML's numbers, below 64.
            enforced: Of those, the ones in force; None for all.
        """
        self._set(layout.SET_HAS_POWER_PROFILES, 1)
        self._set(layout.SET_REQUESTED_PROFILES, sum(1 << number for number in requested))
        in_force = requested if enforced is None else enforced
        self._set(layout.SET_ENFORCED_PROFILES, sum(1 << number for number in in_force))

    def set_mig(self, enabled: bool) -> None:  # noqa: FBT001 - a switch, as nvidia-smi -mig has it
        """Switch MIG on (one instance) or off."""
        self._set(layout.SET_MIG, int(enabled))

    def set_lost(self, lost: bool) -> None:  # noqa: FBT001 - a switch
        """Fall off the bus (every NVML call on the GPU fails), or come back."""
        self._set(layout.SET_LOST, int(lost))

    def add_process(self, pid: int) -> None:
        """List a process as one that computes on the GPU, as long as it lives."""
        self._set(layout.SET_ADD_PROCESS, pid)

    def remove_process(self, pid: int) -> None:
        """Take a process off the list."""
        self._set(layout.SET_REMOVE_PROCESS, pid)

    def _set(self, setting: int, value: int) -> None:
        error = native().perseus_sim_set(self._machine, self.index, setting, value)
        if error:
            raise SimulatorError(f"simulated GPU {self.index}: {os.strerror(error)} (setting {setting}, value {value})")
