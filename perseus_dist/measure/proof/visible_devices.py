"""Whether NVML's GPU is CUDA's: the same ``CUDA_VISIBLE_DEVICES`` read by CUDA itself and by ``discovery``."""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from perseus_dist.device.nvml.discovery import find_gpu
from perseus_dist.device.nvml.nvml import Nvml, NvmlError

_TIMEOUT_S = 30.0  # a driver without its persistence daemon takes seconds to start
_PREFIX = len("GPU-") + 8


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibleCase:
    """One way to choose the GPU.

    Attributes:
        setting: ``CUDA_VISIBLE_DEVICES``; None where it is not set.
        by_cuda: What CUDA says device 0 is; empty where it says nothing.
        by_nvml: What perseus-dist takes it for.
        trouble: Why one of them is missing.
    """

    setting: str | None
    by_cuda: str
    by_nvml: str
    trouble: str

    @property
    def agrees(self) -> bool | None:
        """Whether both are the same; None where CUDA was not asked."""
        return self.by_cuda == self.by_nvml if self.by_cuda else None


def check_visible_devices(gpu_uuid: str, environ: Mapping[str, str]) -> list[VisibleCase]:
    """Every way to name a GPU: as it is set here, by its index, by its UUID and by the beginning of it."""
    try:
        index = str(Nvml().numbered_uuids().index(gpu_uuid))
    except (NvmlError, ValueError):
        index = "0"
    settings = dict.fromkeys((environ.get("CUDA_VISIBLE_DEVICES"), None, index, gpu_uuid, gpu_uuid[:_PREFIX]))
    return [_check(setting, environ) for setting in settings]


def _check(setting: str | None, environ: Mapping[str, str]) -> VisibleCase:
    chosen = {name: value for name, value in environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    if setting is not None:
        chosen["CUDA_VISIBLE_DEVICES"] = setting
    found = find_gpu(0, chosen)
    try:
        asked = subprocess.run(
            [sys.executable, "-P", "-m", "perseus_dist.measure.proof.cuda_device"],
            env=chosen,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        by_cuda = asked.stdout.strip() if asked.returncode == 0 else ""
        trouble = "" if by_cuda else " ".join(asked.stderr.split()[-40:])
    except subprocess.TimeoutExpired:
        by_cuda, trouble = "", f"CUDA has not answered for {_TIMEOUT_S:g} s"
    return VisibleCase(setting=setting, by_cuda=by_cuda, by_nvml=found.uuid or "", trouble=trouble or found.trouble)
