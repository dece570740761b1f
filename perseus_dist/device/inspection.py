"""Checks of a node for setting clocks and reading energy: findings for ``perseus-dist doctor``."""

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from perseus_dist.device.lease.client import LeaseClient
from perseus_dist.device.lease.connectors import SocketConnector, clockd_socket, zeusd_socket
from perseus_dist.device.lease.file import LeaseFile, LeaseFileError, lease_folder, touched_gpus
from perseus_dist.device.nvml import gpu_guard
from perseus_dist.device.nvml.discovery import find_gpu
from perseus_dist.device.nvml.nvml import FUNCTION_NOT_FOUND, NOT_SUPPORTED, Gpu, Nvml, NvmlError
from perseus_dist.device.nvml.power_profiles import read_power_profiles
from perseus_dist.device.rights import find_missing_right, owns_simulated_gpus

# A GPU that does not answer for so long is called hung.
_PATIENCE_S = 5.0
_LEASE_PATIENCE_S = 3.0


class Level(StrEnum):
    """How bad it is: ``fail`` keeps perseus-dist from working, ``warn`` from working fully."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing looked at.

    Attributes:
        level: How bad it is.
        subject: What was looked at.
        what: What was seen.
        remedy: What to do; empty if nothing.
    """

    level: Level
    subject: str
    what: str
    remedy: str = ""


def inspect_device(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Look at driver, GPUs, clock control and visible devices."""
    nvml = Nvml()
    try:
        version = nvml.call("nvmlSystemGetDriverVersion")
        uuids = nvml.uuids()
    except NvmlError as error:
        yield Finding(
            level=Level.FAIL,
            subject="driver",
            what=str(error),
            remedy="make nvidia-smi work here first (in a container: driver capability 'utility')",
        )
        return
    yield Finding(level=Level.OK, subject="driver", what=f"{version}, {len(uuids)} GPUs")
    folder = lease_folder(environ)
    for index, uuid in enumerate(uuids):
        yield from _patiently(f"GPU {index}", lambda uuid=uuid: list(_inspect_gpu(nvml.gpu(uuid), folder)))  # type: ignore[misc]
    yield from _inspect_control(environ, uuids)
    yield from _inspect_leases(environ)
    yield _inspect_visible_devices(environ)
    yield from _inspect_slurm(environ)


def _inspect_gpu(gpu: Gpu, folder: Path) -> Iterator[Finding]:
    subject = gpu.uuid
    name = gpu.call("nvmlDeviceGetName")
    clocks_mhz = gpu.clocks_mhz()
    yield Finding(level=Level.OK, subject=subject, what=f"{name}, {clocks_mhz[-1]} to {clocks_mhz[0]} MHz")
    try:
        gpu.call("nvmlDeviceGetTotalEnergyConsumption")
    except NvmlError as error:
        remedy = "energy counters need Volta or newer" if error.code == NOT_SUPPORTED else "look at dmesg"
        yield Finding(level=Level.WARN, subject=subject, what=f"no energy counter: {error}", remedy=remedy)
    if refusal := gpu_guard.find_mig_refusal(gpu):
        yield Finding(level=Level.WARN, subject=subject, what=refusal, remedy="nvidia-smi -mig 0, or leave it observed")
    if LeaseFile(folder, gpu.uuid).is_held():
        yield Finding(level=Level.OK, subject=subject, what="its clocks are leased")
    elif gpu_guard.shows_lock(gpu):
        yield Finding(
            level=Level.WARN,
            subject=subject,
            what="its clocks are locked (clock event reason 0x2), and no lease on this node accounts for it: a job "
            "that was killed with its container, or an operator",
            remedy=f"'perseus-dist release {gpu.uuid}' if no operator wants that (application clocks: nvidia-smi -rac)",
        )
    limit_mw = gpu.call("nvmlDeviceGetEnforcedPowerLimit")
    default_mw = gpu.call("nvmlDeviceGetPowerManagementDefaultLimit")
    if limit_mw < default_mw:
        yield Finding(
            level=Level.WARN,
            subject=subject,
            what=f"power cap {limit_mw / 1000:.0f} W, below the default of {default_mw / 1000:.0f} W",
            remedy="it is left as it is; profiles measured under another cap do not fit",
        )
    yield from _inspect_power_profiles(gpu)
    if pids := gpu_guard.running_pids(gpu):
        yield Finding(
            level=Level.WARN,
            subject=subject,
            what="in use by " + ", ".join(gpu_guard.describe_process(pid) for pid in pids),
            remedy="clocks are set only where a job has the GPU for itself",
        )


def _inspect_power_profiles(gpu: Gpu) -> Iterator[Finding]:
    try:
        profiles = read_power_profiles(gpu)
    except NvmlError as error:
        if error.code not in (NOT_SUPPORTED, FUNCTION_NOT_FOUND):
            raise
        return
    if profiles.requested or profiles.enforced:
        waiting = [name for name in profiles.requested if name not in profiles.enforced]
        yield Finding(
            level=Level.WARN,
            subject=gpu.uuid,
            what=f"workload power profile {profiles}, set by an operator's tool (DPS, Mission Control, nvidia-smi)"
            + (f"; requested and not enforced: {' + '.join(waiting)}" if waiting else ""),
            remedy="it is left as it is; profiles measured under another one do not fit",
        )


def _inspect_control(environ: Mapping[str, str], uuids: list[str]) -> Iterator[Finding]:
    answers = False
    for name, path in (("clockd", clockd_socket(environ)), ("zeusd", zeusd_socket(environ))):
        if not Path(path).exists():
            yield Finding(level=Level.OK, subject=name, what=f"not running (no {path})")
            continue
        try:
            SocketConnector(path).connect().close()
        except PermissionError:
            remedy = f"become a member of the group of {path}, or start {name} with a group that you are in"
            yield Finding(level=Level.WARN, subject=name, what=f"{path} may not be used by you", remedy=remedy)
        except OSError as error:
            what = f"{path} does not answer ({error.strerror or error})"
            yield Finding(level=Level.WARN, subject=name, what=what, remedy=f"restart {name}")
        else:
            found = (
                _ask_for_leases(path, uuids, lease_folder(environ))
                if name == "clockd"
                else [_answers(name, f"answers on {path}")]
            )
            answers = answers or any(finding.level is Level.OK for finding in found)
            yield from found
    if owns_simulated_gpus(environ):
        yield Finding(
            level=Level.OK, subject="rights", what="these simulated GPUs are yours: clocks can be set directly"
        )
    elif not answers:
        missing = find_missing_right(environ)
        what = missing or "root could set clocks directly, and jobs do so only where control 'direct' is asked for"
        yield Finding(
            level=Level.WARN,
            subject="rights",
            what=f"{what}; no daemon sets them: jobs are observed only",
            remedy="start 'perseus-dist clockd' as root on this node",
        )


def _answers(name: str, what: str) -> Finding:
    return Finding(level=Level.OK, subject=name, what=what)


def _ask_for_leases(path: str, uuids: list[str], folder: Path) -> list[Finding]:
    """Ask clockd for a lease of each GPU that no job holds, and give it back: it sets nothing meanwhile."""
    free = [uuid for uuid in uuids if not LeaseFile(folder, uuid).is_held()]
    findings, num_granted = [], 0
    for uuid in free:
        client = LeaseClient("clockd", SocketConnector(path), uuid, own_pids=(os.getpid(),))
        try:
            is_granted = client.open(_LEASE_PATIENCE_S, is_patient=False)
        except OSError as error:
            client.refusal, is_granted = f"{path}: {error.strerror or error}", False
        refusal = client.refusal
        client.close()
        if is_granted:
            num_granted += 1
            continue
        remedy = "see to what it says; jobs on this GPU are observed only"
        findings.append(Finding(level=Level.WARN, subject="clockd", what=f"{uuid}: {refusal}", remedy=remedy))
        if client.is_unusable or not client.was_refused:  # the answer would be the same for the others
            break
    if num_granted or not findings:
        what = (
            f"answers on {path}; of {len(uuids)} GPUs {len(uuids) - len(free)} are leased, and it grants {num_granted}"
        )
        findings.insert(0, _answers("clockd", what))
    return findings


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


def _inspect_slurm(environ: Mapping[str, str]) -> Iterator[Finding]:
    """A clock that the job has asked Slurm for: it is locked as the step begins, and reset as it ends."""
    asked = [environ.get("SLURM_GPU_FREQ", ""), environ.get("SLURMD_TRES_FREQ", "").partition("gpu:")[2]]
    for clock in filter(None, asked[:1] if asked[0] else asked):
        yield Finding(
            level=Level.WARN,
            subject="Slurm",
            what=f"this job has asked Slurm for GPU frequency {clock!r}: slurmstepd locks clocks as a step begins, and "
            "resets them as it ends, which undoes what Perseus sets",
            remedy="leave out --gpu-freq (SLURM_GPU_FREQ, SBATCH_GPU_FREQ) where a job runs under Perseus",
        )


def _patiently(subject: str, inspect: Callable[[], list[Finding]]) -> list[Finding]:
    """Run in a thread, because a sick GPU may never answer."""
    findings: list[Finding] = []

    def run() -> None:
        try:
            findings.extend(inspect())
        except NvmlError as error:
            remedy = "look at dmesg for its last error (Xid)"
            findings.append(Finding(level=Level.FAIL, subject=subject, what=str(error), remedy=remedy))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(_PATIENCE_S)
    if thread.is_alive():
        what = f"the driver has not answered for {_PATIENCE_S:.0f} s"
        return [Finding(level=Level.FAIL, subject=subject, what=what, remedy="look at dmesg; reset the GPU or reboot")]
    return findings
