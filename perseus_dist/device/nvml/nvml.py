"""NVML, through nvidia-ml-py: one way to call it, one kind of failure, and GPUs found by UUID.

The library is loaded when it is first called, never at import: a process may import this and have no driver.
"""

import threading
from collections.abc import Sequence
from typing import Any

from perseus_dist.errors import PerseusError

# nvmlReturn_t, as far as somebody here decides by it.
UNINITIALIZED = 1
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
DRIVER_NOT_LOADED = 9
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
# Ours, beside NVIDIA's: nvidia-ml-py is missing; a daemon that writes for us was not reached.
NO_BINDINGS = -1
NOT_REACHED = -2

# Nothing was changed by a call that failed with one of these.
NOTHING_DONE = frozenset(
    {INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, FUNCTION_NOT_FOUND, NO_BINDINGS, NOT_REACHED}
)

# A process to which one of these happens can set the clocks of no GPU, or does not see the one that is meant.
UNUSABLE = frozenset({NO_PERMISSION, NOT_FOUND, DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, NO_BINDINGS})

# Clock event reasons: an idle GPU, and one whose clocks somebody has limited (locked or application clocks).
REASON_IDLE = 0x1
REASON_CLOCKS_SETTING = 0x2

CLOCK_SM = 1
CLOCK_MEMORY = 2

_REMEDIES = {
    UNINITIALIZED: "the driver was reloaded or NVML was shut down",
    NOT_SUPPORTED: "this GPU or driver does not support it",
    NO_PERMISSION: "setting clocks needs root (in a container: CAP_SYS_ADMIN)",
    NOT_FOUND: "no GPU of that UUID is visible here",
    DRIVER_NOT_LOADED: "the NVIDIA kernel driver is not loaded",
    LIBRARY_NOT_FOUND: "no libnvidia-ml.so.1: there is no NVIDIA driver, or the container was started without it",
    FUNCTION_NOT_FOUND: "the NVIDIA driver is too old to have it",
    GPU_IS_LOST: "the GPU has fallen off the bus; it needs a reset or a reboot",
    NO_BINDINGS: "nvidia-ml-py is not installed; install perseus-dist[agent]",
}


class NvmlError(PerseusError):
    """A call that NVML refused, or somebody who was to make it for us.

    Attributes:
        code: nvmlReturn_t.
        is_explained: Whether the message says what the code means here, and what to do.
    """

    def __init__(self, function: str, code: int, name: str, *, explain: bool = True) -> None:
        self.code = code
        self.is_explained = explain and code in _REMEDIES
        super().__init__(f"{function}: {name}" + (f" ({_REMEDIES[code]})" if self.is_explained else ""))


class Nvml:
    """The library. Initialised by the first call, and again by the first call after the driver went away."""

    def __init__(self) -> None:
        self._ready = False
        self._starting = threading.Lock()

    def call(self, function: str, *args: Any) -> Any:
        """Call a function of nvidia-ml-py.

        Raises:
            NvmlError: The call failed, or library, driver, function or bindings are missing.
        """
        try:
            import pynvml
        except ImportError:
            raise NvmlError(function, NO_BINDINGS, "no bindings") from None
        try:
            with self._starting:
                if not self._ready:
                    pynvml.nvmlInit()
                    self._ready = True
            try:
                bound = getattr(pynvml, function)
            except AttributeError:  # older bindings than drivers
                raise NvmlError(function, FUNCTION_NOT_FOUND, "Function Not Found") from None
            return bound(*args)
        except pynvml.NVMLError as error:
            if error.value in (UNINITIALIZED, DRIVER_NOT_LOADED):
                self._ready = False
            raise NvmlError(function, error.value, str(error)) from None

    def gpu(self, uuid: str) -> "Gpu":
        """One GPU; nothing is called yet."""
        return Gpu(self, uuid)

    def uuids(self) -> list[str]:
        """All GPUs visible here that are not lost, in the order of NVML, which is that of the PCI bus.

        Raises:
            NvmlError: As ``call``.
        """
        return [uuid for uuid in self.numbered_uuids() if uuid is not None]

    def numbered_uuids(self) -> list[str | None]:
        """All GPUs visible here, each at its number in NVML and nvidia-smi; None for one that is lost.

        Raises:
            NvmlError: As ``call``.
        """
        found: list[str | None] = []
        for index in range(self.call("nvmlDeviceGetCount")):
            try:
                found.append(self.call("nvmlDeviceGetUUID", self.call("nvmlDeviceGetHandleByIndex", index)))
            except NvmlError as error:
                if error.code != GPU_IS_LOST:
                    raise
                found.append(None)
        return found


class Gpu:
    """One GPU. To be used from one thread."""

    def __init__(self, nvml: Nvml, uuid: str) -> None:
        self.uuid = uuid
        self._nvml = nvml
        self._handle: Any = None

    def call(self, function: str, *args: Any) -> Any:
        """Call a function that takes this GPU first.

        Raises:
            NvmlError: As ``Nvml.call``; NOT_FOUND if no such GPU is visible.
        """
        try:
            if self._handle is None:
                self._handle = self._nvml.call("nvmlDeviceGetHandleByUUID", self.uuid.encode())
            return self._nvml.call(function, self._handle, *args)
        except NvmlError as error:
            if error.code in (UNINITIALIZED, DRIVER_NOT_LOADED, GPU_IS_LOST):
                self._handle = None
            raise

    def call_first_known(self, functions: Sequence[str]) -> Any:
        """Call the first of several functions that the driver has: newest first."""
        for function in functions[:-1]:
            try:
                return self.call(function)
            except NvmlError as error:
                if error.code != FUNCTION_NOT_FOUND:
                    raise
        return self.call(functions[-1])

    def clocks_mhz(self) -> tuple[int, ...]:
        """Supported SM clocks at the memory clock at which the GPU computes, descending."""
        supported = self.call("nvmlDeviceGetSupportedMemoryClocks")
        memory_mhz = max(supported)
        if not self.event_reasons() & REASON_IDLE:  # an idle GPU may rest at a memory clock at which it never works
            current = self.call("nvmlDeviceGetClockInfo", CLOCK_MEMORY)
            memory_mhz = min(supported, key=lambda clock: abs(clock - current))  # the reading may be a few MHz off
        return tuple(sorted(set(self.call("nvmlDeviceGetSupportedGraphicsClocks", memory_mhz)), reverse=True))

    def sm_clock_mhz(self) -> int:
        """The SM clock now."""
        return int(self.call("nvmlDeviceGetClockInfo", CLOCK_SM))

    def event_reasons(self) -> int:
        """Why the clock is what it is, bits."""
        return int(
            self.call_first_known(
                ["nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"]
            )
        )
