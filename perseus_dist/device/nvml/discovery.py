"""Which GPU a rank uses: by UUID, from ``CUDA_VISIBLE_DEVICES`` as CUDA reads it.

CUDA numbers what it sees its own way, so a number never passes from one library to another. A trainer that asks CUDA
for its device's UUID needs nothing of this.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perseus_dist.device.nvml.nvml import Nvml, NvmlError


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibleGpu:
    """A GPU as NVML lists it, in the order of the PCI bus."""

    uuid: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundGpu:
    """The rank's GPU, or why it was not found.

    Attributes:
        uuid: None if it was not found, or if it is a MIG instance, which has no clock of its own.
        trouble: Empty if it was found.
    """

    uuid: str | None
    trouble: str = ""


def find_gpu(local_rank: int, environ: Mapping[str, str]) -> FoundGpu:
    """The GPU that CUDA device ``local_rank`` of a process with this environment is. Never raises."""
    nvml = Nvml()
    try:
        gpus = [_look_at(nvml, uuid) for uuid in nvml.numbered_uuids()]
    except NvmlError as error:
        return FoundGpu(uuid=None, trouble=str(error))
    return choose_gpu(
        local_rank, gpus, environ.get("CUDA_VISIBLE_DEVICES"), environ.get("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    )


def choose_gpu(local_rank: int, gpus: Sequence[VisibleGpu | None], visible: str | None, device_order: str) -> FoundGpu:
    """The same, from given lists.

    Args:
        local_rank: CUDA device number in the process.
        gpus: All that NVML lists; None for one that is lost.
        visible: ``CUDA_VISIBLE_DEVICES``; None if it is not set, which means all.
        device_order: ``CUDA_DEVICE_ORDER``.
    """
    if visible is None:
        entries = [str(index) for index in range(len(gpus))]
    else:
        entries = [entry.strip() for entry in visible.split(",")]
    found = [_resolve(entry, gpus, device_order) for entry in entries]
    # CUDA stops at the first entry that names nothing, and sees none at all if one is named twice.
    end = next(
        (index for index, gpu in enumerate(found) if gpu.uuid is None and not _is_mig(entries[index])), len(found)
    )
    seen = [gpu.uuid for gpu in found[:end] if gpu.uuid is not None]
    if len(set(seen)) < len(seen):
        return FoundGpu(uuid=None, trouble=f"CUDA_VISIBLE_DEVICES={visible} names a GPU twice; CUDA then sees none")
    if 0 <= local_rank < end:
        return found[local_rank]
    reason = found[end].trouble if end < len(found) else f"{len(gpus)} GPUs are there"
    given = "CUDA_VISIBLE_DEVICES is not set" if visible is None else f"CUDA_VISIBLE_DEVICES={visible}"
    return FoundGpu(uuid=None, trouble=f"no GPU for local rank {local_rank}: {given}, CUDA sees {end}: {reason}")


def _look_at(nvml: Nvml, uuid: str | None) -> VisibleGpu | None:
    return None if uuid is None else VisibleGpu(uuid=uuid, name=str(nvml.gpu(uuid).call("nvmlDeviceGetName")))


def _resolve(entry: str, gpus: Sequence[VisibleGpu | None], device_order: str) -> FoundGpu:
    if _is_mig(entry):
        return FoundGpu(uuid=None, trouble=f"{entry} is a MIG instance, which has no clock of its own")
    present = [gpu for gpu in gpus if gpu is not None]
    if entry.startswith("GPU-"):
        matches = [gpu for gpu in present if gpu.uuid.startswith(entry)]
        if len(matches) == 1:
            return FoundGpu(uuid=matches[0].uuid)
        return FoundGpu(uuid=None, trouble=f"{len(matches)} GPUs have a UUID that begins with {entry}, expected one")
    if not entry.isdecimal() or int(entry) >= len(gpus):
        return FoundGpu(uuid=None, trouble=f"{entry!r} is none of the {len(gpus)} GPUs")
    if device_order != "PCI_BUS_ID" and len({gpu.name for gpu in present}) > 1:
        return FoundGpu(
            uuid=None,
            trouble="GPUs of several models, which CUDA numbers in its own order; set CUDA_DEVICE_ORDER=PCI_BUS_ID",
        )
    gpu = gpus[int(entry)]
    if gpu is None or None in gpus[: int(entry)]:  # CUDA may leave out the one that is lost
        return FoundGpu(
            uuid=None,
            trouble=f"GPU {gpus.index(None)} is lost, so that {entry} may be another GPU to CUDA; name GPUs by UUID",
        )
    return FoundGpu(uuid=gpu.uuid)


def _is_mig(entry: str) -> bool:
    return entry.startswith("MIG-")
