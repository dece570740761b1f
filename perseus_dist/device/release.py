"""Unlocking what a crash left locked: what lease files name, what the hardware shows, or what an operator names."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from perseus_dist.device.lease.file import LeaseFile, LeaseFileError, touched_gpus
from perseus_dist.device.nvml import gpu_guard
from perseus_dist.device.nvml.clock_setter import NvmlSetter
from perseus_dist.device.nvml.nvml import Gpu, Nvml, NvmlError
from perseus_dist.errors import PerseusError


class ReleaseError(PerseusError):
    """A GPU that is not here."""


class Result(StrEnum):
    """The result of releasing a GPU."""

    RESTORED = "restored"
    HELD = "held"
    IN_USE = "in use"
    LOCKED = "locked"
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


def find_stray_locks(folder: Path) -> list[Released]:
    """GPUs that the hardware shows as locked and no living lease explains. Nothing is changed.

    The lease file of a job in a container ends with the container, and of an operator's lock there never was one.

    Raises:
        NvmlError: The GPUs cannot be listed.
    """
    nvml = Nvml()
    found = (_find_stray_lock(nvml.gpu(gpu_uuid), folder) for gpu_uuid in nvml.uuids())
    return [stray for stray in found if stray is not None]


def _find_stray_lock(gpu: Gpu, folder: Path) -> Released | None:
    try:
        if not gpu_guard.shows_lock(gpu) or LeaseFile(folder, gpu.uuid).is_held():
            return None
        use = _describe_use(gpu)
    except NvmlError as error:
        return Released(gpu_uuid=gpu.uuid, result=Result.FAILED, detail=str(error))
    who = "an operator, or a job that was killed with its container"
    detail = (
        "its clocks are locked (clock event reason 0x2) and no lease on this node accounts for it: "
        f"{f'{who}, or one in a container that runs now: {use}' if use else who}; "
        f"'perseus-dist release {gpu.uuid}' lifts it"
    )
    return Released(gpu_uuid=gpu.uuid, result=Result.LOCKED, detail=detail)


def release_named(folder: Path, names: Sequence[str] | None, *, if_unleased: bool = False) -> list[Released]:
    """Lift the locks of GPUs, also an operator's, unless a living process holds their lease.

    Args:
        folder: Of the lease files.
        names: UUIDs, their beginnings, or numbers as nvidia-smi shows them; None for all GPUs.
        if_unleased: Leave GPUs alone that a process computes on, or that are in MIG mode: a job in a container has its
            lease files there. A lock that a lease file of this node names is lifted all the same.

    Raises:
        ReleaseError: A name fits no GPU, or several.
        NvmlError: The GPUs cannot be listed.
    """
    nvml = Nvml()
    numbered = nvml.numbered_uuids()
    uuids = [uuid for uuid in numbered if uuid is not None]
    chosen = uuids if names is None else [_resolve(name, numbered, uuids) for name in names]
    return [_release(nvml, folder, gpu_uuid, if_unleased=if_unleased) for gpu_uuid in chosen]


def _release(
    nvml: Nvml, folder: Path, gpu_uuid: str, *, only_touched: bool = False, if_unleased: bool = False
) -> Released:
    lease_file = LeaseFile(folder, gpu_uuid)
    gpu = nvml.gpu(gpu_uuid)
    try:
        was_touched = lease_file.take("perseus-dist release")
        if not was_touched and if_unleased and (use := _describe_use(gpu)):
            return Released(gpu_uuid=gpu_uuid, result=Result.IN_USE, detail=use)
        if was_touched or not only_touched:
            NvmlSetter(gpu).unlock()
            lease_file.clear()
        return Released(gpu_uuid=gpu_uuid, result=Result.RESTORED)
    except LeaseFileError as error:
        return Released(gpu_uuid=gpu_uuid, result=Result.HELD, detail=str(error))
    except NvmlError as error:
        return Released(gpu_uuid=gpu_uuid, result=Result.FAILED, detail=str(error))
    finally:
        lease_file.give_back()


def _describe_use(gpu: Gpu) -> str:
    """Why the GPU may be another's to set; empty if it is idle."""
    if refusal := gpu_guard.find_mig_refusal(gpu):
        return refusal
    return ", ".join(gpu_guard.describe_process(pid) for pid in gpu_guard.running_pids(gpu))


def _resolve(name: str, numbered: Sequence[str | None], uuids: Sequence[str]) -> str:
    if name.isdecimal() and int(name) < len(numbered):
        uuid = numbered[int(name)]
        if uuid is None:
            raise ReleaseError(f"{name}: this GPU is lost; it needs a reset or a reboot, which also ends its lock")
        return uuid
    matches = [uuid for uuid in uuids if uuid.startswith(name)] if name.startswith("GPU-") else []
    if len(matches) == 1:
        return matches[0]
    raise ReleaseError(
        f"{name}: {len(matches)} GPUs fit, expected one; here are {', '.join(uuids) or 'none'}, numbered from 0"
    )
