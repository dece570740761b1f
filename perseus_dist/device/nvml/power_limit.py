"""A GPU's power limit, as it is enforced now, and by default."""

from typing import NamedTuple

from perseus_dist.device.nvml.nvml import FUNCTION_NOT_FOUND, NOT_SUPPORTED, Gpu, NvmlError


class PowerLimit(NamedTuple):
    """[mW] that are enforced, and by default."""

    enforced_mw: int
    default_mw: int

    @property
    def is_capped(self) -> bool:
        """Whether the limit is below the default."""
        return self.enforced_mw < self.default_mw


def read_power_limit(gpu: Gpu) -> PowerLimit | None:
    """The limit of a GPU; None where it has none, as a board without power management or a vGPU.

    Raises:
        NvmlError: The GPU does not answer.
    """
    try:
        enforced_mw = gpu.call("nvmlDeviceGetEnforcedPowerLimit")
        return PowerLimit(enforced_mw, gpu.call("nvmlDeviceGetPowerManagementDefaultLimit"))
    except NvmlError as error:
        if error.code not in (NOT_SUPPORTED, FUNCTION_NOT_FOUND):
            raise
        return None
