"""Workload power profiles: what an operator's tool has chosen for a GPU's power and clocks. Read, never set.

NVIDIA's Domain Power Service, Mission Control and ``nvidia-smi power-profiles`` set them, on Blackwell and newer.
Several can be requested at a time; the driver enforces those that do not conflict.
"""

from collections.abc import Iterable, Iterator
from ctypes import Structure, byref, c_uint, sizeof
from typing import NamedTuple

from perseus_dist.device.nvml.nvml import Gpu

# By number: NVML_POWER_PROFILE_* of nvml.h (CUDA 13), as nvidia-smi writes them but for case.
NAMES = (
    "max-p",
    "max-q",
    "compute",
    "memory-bound",
    "network",
    "balanced",
    "llm-inference",
    "llm-training",
    "rbm",
    "dcpcie",
    "hmma-sparse",
    "hmma-dense",
    "sync-balanced",
    "hpc",
    "mig",
    "max-q-1",
    "network-bound",
    "high-throughput-inference",
    "medium-throughput-inference",
    "low-latency-inference",
    "training",
    "inference",
    "max-q-2",
    "max-q-3",
    "low-priority-background",
)
_BITS_PER_WORD = 32
_Mask = c_uint * 8


class _CurrentProfiles(Structure):
    """``nvmlWorkloadPowerProfileCurrentProfiles_v1_t``."""

    _fields_ = (("version", c_uint), ("supported", _Mask), ("requested", _Mask), ("enforced", _Mask))


class PowerProfiles(NamedTuple):
    """Names of a GPU's profiles, ascending by NVML's number."""

    requested: tuple[str, ...]
    enforced: tuple[str, ...]

    def __str__(self) -> str:
        """Those that are enforced, as ``max-q + training``; ``none`` where none is."""
        return " + ".join(self.enforced) or "none"


def read_power_profiles(gpu: Gpu) -> PowerProfiles:
    """The profiles of a GPU now.

    Raises:
        NvmlError: NOT_SUPPORTED before Blackwell, FUNCTION_NOT_FOUND with an older driver or older bindings.
    """
    told = _CurrentProfiles(version=sizeof(_CurrentProfiles) | 1 << 24)
    gpu.call("nvmlDeviceWorkloadPowerProfileGetCurrentProfiles", byref(told))
    return PowerProfiles(tuple(_named(told.requested)), tuple(_named(told.enforced)))


def _named(words: Iterable[int]) -> Iterator[str]:
    for word_number, word in enumerate(words):
        for bit in range(_BITS_PER_WORD):
            if word >> bit & 1:
                number = word_number * _BITS_PER_WORD + bit
                yield NAMES[number] if number < len(NAMES) else f"profile {number}"
