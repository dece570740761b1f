"""Unlocking by hand what a crash left locked: what the lease files name, or GPUs that somebody names."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from perseus_dist.device.clock_setter import NvmlSetter
from perseus_dist.device.lease_file import LeaseFile, LeaseFileError, touched_gpus
from perseus_dist.device.nvml import Nvml, NvmlError
from perseus_dist.errors import PerseusError


class ReleaseError(PerseusError):
    """A GPU that is not here."""


class Result(StrEnum):
    """What became of a GPU."""

    RESTORED = "restored"
    HELD = "held"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """One GPU's outcome; ``detail`` says more where it was not restored."""

    gpu_uuid: str
    result: Result
    detail: str = ""


def release_touched(folder: Path) -> list[Released]:
    """Restore the clocks that holders that died left locked; those of living ones are left alone."""
    return [_release(Nvml(), folder, gpu_uuid, only_touched=True) for gpu_uuid in touched_gpus(folder)]


def release_named(folder: Path, names: Sequence[str] | None) -> list[Released]:
    """Lift the locks of GPUs, whoever set them, unless a living process holds their lease.

    Args:
        folder: Of the lease files.
        names: UUIDs, their beginnings, or numbers as nvidia-smi shows them; None for all GPUs.

    Raises:
        ReleaseError: A name fits no GPU, or several.
        NvmlError: The GPUs cannot be listed.
    """
    nvml = Nvml()
    uuids = nvml.uuids()
    chosen = uuids if names is None else [_resolve(name, uuids) for name in names]
    return [_release(nvml, folder, gpu_uuid, only_touched=False) for gpu_uuid in chosen]


def _release(nvml: Nvml, folder: Path, gpu_uuid: str, *, only_touched: bool) -> Released:
    lease_file = LeaseFile(folder, gpu_uuid)
    try:
        if lease_file.take("perseus-dist release") or not only_touched:
            NvmlSetter(nvml.gpu(gpu_uuid)).unlock()
            lease_file.clear()
        return Released(gpu_uuid=gpu_uuid, result=Result.RESTORED)
    except LeaseFileError as error:
        return Released(gpu_uuid=gpu_uuid, result=Result.HELD, detail=str(error))
    except NvmlError as error:
        return Released(gpu_uuid=gpu_uuid, result=Result.FAILED, detail=str(error))
    finally:
        lease_file.give_back()


def _resolve(name: str, uuids: Sequence[str]) -> str:
    if name.isdecimal() and int(name) < len(uuids):
        return uuids[int(name)]
    matches = [uuid for uuid in uuids if uuid.startswith(name)] if name.startswith("GPU-") else []
    if len(matches) == 1:
        return matches[0]
    raise ReleaseError(
        f"{name}: {len(matches)} GPUs fit, expected one; here are {', '.join(uuids) or 'none'}, numbered from 0"
    )
