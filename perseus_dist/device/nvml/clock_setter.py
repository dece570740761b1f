"""Who writes a GPU's clocks. Reading needs no rights and stays with NVML; only the writer differs."""

from typing import Protocol

from perseus_dist.device.nvml.nvml import Gpu


class ClockSetter(Protocol):
    """Locks and unlocks the SM clock of one GPU. Both wait until it is done."""

    def prepare(self) -> None:
        """Find out, without changing anything, what can be found out about whether the others will work.

        Raises:
            NvmlError: They will not.
        """

    def lock(self, clock_mhz: int) -> None:
        """Lock the clock.

        Raises:
            NvmlError: It was refused; ``code`` says why.
        """

    def unlock(self) -> None:
        """Lift all locks of the SM clock.

        Raises:
            NvmlError: As above.
        """


class NvmlSetter:
    """Writes by itself: needs the rights that ``rights.find_missing_right`` knows of."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu

    def prepare(self) -> None:
        """Nothing: NVML tells rights only when they are used."""

    def lock(self, clock_mhz: int) -> None:
        """See ``ClockSetter``."""
        self._gpu.call("nvmlDeviceSetGpuLockedClocks", clock_mhz, clock_mhz)

    def unlock(self) -> None:
        """See ``ClockSetter``."""
        self._gpu.call("nvmlDeviceResetGpuLockedClocks")
