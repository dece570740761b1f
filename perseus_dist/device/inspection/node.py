"""A node as a whole, for ``perseus-dist doctor``; and as far as one rank's agent may look without disturbing others."""

from collections.abc import Iterator, Mapping, Sequence

from perseus_dist.device.inspection.control import inspect_control
from perseus_dist.device.inspection.gpus import inspect_gpu, patiently
from perseus_dist.device.inspection.slurm import inspect_slurm
from perseus_dist.device.lease.file import LeaseFile, LeaseFileError, lease_folder, touched_gpus
from perseus_dist.device.nvml.discovery import find_gpu
from perseus_dist.device.nvml.nvml import Nvml, NvmlError
from perseus_dist.messages.finding import Finding, Level


def inspect_device(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Look at driver, GPUs, clock control and visible devices."""
    nvml = Nvml()
    try:
        version = nvml.call("nvmlSystemGetDriverVersion")
        numbered = nvml.numbered_uuids()
    except NvmlError as error:
        yield Finding(
            level=Level.FAIL,
            subject="driver",
            what=str(error),
            remedy="make nvidia-smi work here first (in a container: driver capability 'utility')",
        )
        return
    uuids = [uuid for uuid in numbered if uuid is not None]
    yield Finding(level=Level.OK, subject="driver", what=f"{version}, {len(uuids)} GPUs")
    folder = lease_folder(environ)
    for index, uuid in enumerate(numbered):
        if uuid is None:
            yield Finding(
                level=Level.FAIL, subject=f"GPU {index}", what="it is lost", remedy="reset the GPU, or reboot the node"
            )
            continue
        yield from patiently(f"GPU {index}", lambda uuid=uuid: inspect_gpu(nvml.gpu(uuid), folder))  # type: ignore[misc]
    yield from inspect_control(environ, uuids)
    yield from _inspect_leases(environ)
    yield _inspect_visible_devices(environ)
    yield from inspect_slurm(environ)


def inspect_rank(
    environ: Mapping[str, str], gpu_uuid: str, own_pids: Sequence[int], *, misses_control: bool
) -> list[Finding]:
    """Troubles that the agent of a rank finds as it starts: reads alone, and takes no lease, also not for a moment.

    Args:
        environ: The trainer's environment.
        gpu_uuid: The rank's GPU; empty where none was found.
        own_pids: Processes that may run on it.
        misses_control: Whether its clocks were to be set, and cannot be: then daemons and rights are looked at.

    Returns:
        What is no ``OK``.
    """
    nvml, folder = Nvml(), lease_folder(environ)
    found: list[Finding] = []
    if gpu_uuid:
        found += patiently(gpu_uuid, lambda: inspect_gpu(nvml.gpu(gpu_uuid), folder, own_pids))
    else:
        found.append(_inspect_visible_devices(environ))
    if misses_control:
        found += inspect_control(environ, ())
    found += inspect_slurm(environ)
    return [finding for finding in found if finding.level is not Level.OK]


def _inspect_leases(environ: Mapping[str, str]) -> Iterator[Finding]:
    folder = lease_folder(environ)
    for gpu_uuid in touched_gpus(folder):
        lease_file = LeaseFile(folder, gpu_uuid)
        try:
            was_left = lease_file.take("perseus-dist doctor")
        except LeaseFileError:
            continue  # its holder lives
        finally:
            lease_file.give_back()
        if was_left:
            yield Finding(
                level=Level.WARN,
                subject=gpu_uuid,
                what="a process that died may have left its clocks locked",
                remedy="perseus-dist release",
            )


def _inspect_visible_devices(environ: Mapping[str, str]) -> Finding:
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    said = "not set" if visible is None else visible
    found = find_gpu(0, environ)
    if found.uuid is not None:
        return Finding(level=Level.OK, subject="CUDA_VISIBLE_DEVICES", what=f"{said}; the first is {found.uuid}")
    return Finding(
        level=Level.WARN,
        subject="CUDA_VISIBLE_DEVICES",
        what=f"{said}; {found.trouble}",
        remedy="name whole GPUs by number or UUID",
    )
