"""One GPU: its energy counter, what limits it, who has its clocks, who runs on it."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from perseus_dist.device.lease.file import LeaseFile
from perseus_dist.device.nvml import gpu_guard
from perseus_dist.device.nvml.nvml import FUNCTION_NOT_FOUND, GPU_IS_LOST, NOT_SUPPORTED, Gpu, NvmlError
from perseus_dist.device.nvml.power_limit import read_power_limit
from perseus_dist.device.nvml.power_profiles import read_power_profiles
from perseus_dist.messages.finding import Finding, Level

# A GPU that does not answer for so long is called hung.
_PATIENCE_S = 5.0


def inspect_gpu(gpu: Gpu, folder: Path, own_pids: Sequence[int] = ()) -> Iterator[Finding]:
    """Look at a GPU.

    Args:
        gpu: The GPU.
        folder: Of the node's lease files.
        own_pids: Processes that may run on it.

    Raises:
        NvmlError: It does not answer.
    """
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
    limit = read_power_limit(gpu)
    if limit is not None and limit.is_capped:
        yield Finding(
            level=Level.WARN,
            subject=subject,
            what=f"power cap {limit.enforced_mw / 1000:.0f} W, below the default of {limit.default_mw / 1000:.0f} W",
            remedy="it is left as it is; profiles measured under another cap do not fit",
        )
    yield from _inspect_power_profiles(gpu)
    if pids := [pid for pid in gpu_guard.running_pids(gpu) if pid not in own_pids]:
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


def patiently(subject: str, inspect: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """Findings of checks that run in a thread, because a sick GPU may never answer; ``subject`` names it then.

    What was found before a check fails, or hangs, stays.
    """
    findings: list[Finding] = []

    def run() -> None:
        try:
            for finding in inspect():
                findings.append(finding)  # noqa: PERF402 - extend() may drop what came before an error
        except NvmlError as error:
            has_xid = error.code == GPU_IS_LOST or not error.is_explained
            remedy = "look at dmesg for its last error (Xid)" if has_xid else ""
            findings.append(Finding(level=Level.FAIL, subject=subject, what=str(error), remedy=remedy))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(_PATIENCE_S)
    if thread.is_alive():
        what = f"the driver has not answered for {_PATIENCE_S:.0f} s"
        hung = Finding(level=Level.FAIL, subject=subject, what=what, remedy="look at dmesg; reset the GPU or reboot")
        return [*findings, hung]
    return findings
