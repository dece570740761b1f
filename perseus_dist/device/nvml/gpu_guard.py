"""Whether a GPU's clocks may be touched: not under MIG, not beside another job, not over an operator's lock.

Each function returns a refusal in a sentence, or an empty one, and raises ``NvmlError`` if it cannot be found out.
"""

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from perseus_dist.device.nvml.nvml import FUNCTION_NOT_FOUND, NOT_SUPPORTED, REASON_CLOCKS_SETTING, Gpu, NvmlError

# A lock that was just lifted is seen for a moment still: it settles in some 6-20 ms.
LOCK_PATIENCE_S = 0.3
_LOCK_PATIENCE_STEP_S = 0.01
_INIT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimant:
    """Who wants to set a GPU's clocks.

    Attributes:
        pid, uid: As the kernel says who connected, never as the client says; pid 0 is a process that we cannot see.
        own_pids: What the client says runs on the GPU for it; believed for processes of the same user only.
    """

    pid: int
    uid: int
    own_pids: tuple[int, ...] = ()


def find_mig_refusal(gpu: Gpu) -> str:
    """A clock is the whole GPU's, not an instance's."""
    try:
        current, pending = gpu.call("nvmlDeviceGetMigMode")
    except NvmlError as error:
        if error.code in (NOT_SUPPORTED, FUNCTION_NOT_FOUND):
            return ""
        raise
    if not current and not pending:
        return ""
    return (
        f"{gpu.uuid} is in MIG mode, where instances share one clock and jobs may share the GPU; "
        "its clocks are left alone (nvidia-smi -mig 0 ends MIG mode)"
    )


def find_process_refusal(gpu: Gpu, claimant: Claimant) -> str:
    """Another job on the GPU would be slowed down by our clocks."""
    others = [pid for pid in running_pids(gpu) if not is_own(pid, claimant)]
    if not others:
        return ""
    unseen = ""
    if claimant.pid == 0:
        unseen = (
            " (the process that asks is not visible to clockd, which must run in the node's PID namespace: hostPID)"
        )
    return (
        f"{gpu.uuid} also runs {', '.join(describe_process(pid) for pid in others)}, not of this job{unseen}; "
        "clocks are set only where a job has the GPU for itself"
    )


def running_pids(gpu: Gpu) -> list[int]:
    """Processes that compute on the GPU."""
    processes = gpu.call_first_known(
        ["nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"]
    )
    return sorted({process.pid for process in processes})


def find_lock_refusal(gpu: Gpu) -> str:
    """An operator's lock, while we hold none. NVML tells no lock, but it says when one limits the clock.

    Of an idle GPU it says nothing, so this is asked again before the first clock is set.
    """
    if not shows_lock(gpu):
        return ""
    return (
        f"the clocks of {gpu.uuid} are locked already (clock event reason 0x2), and stay as they are; if a job that "
        f"was killed left them so, 'perseus-dist release {gpu.uuid}' on the node lifts the lock ('nvidia-smi -rac' "
        "lifts application clocks)"
    )


def shows_lock(gpu: Gpu) -> bool:
    """Whether locked or application clocks limit the GPU now, and not only because a lock was just lifted.

    Raises:
        NvmlError: The event reasons cannot be read.
    """
    until = time.monotonic() + LOCK_PATIENCE_S
    while gpu.event_reasons() & REASON_CLOCKS_SETTING:
        if time.monotonic() >= until:
            return True
        time.sleep(_LOCK_PATIENCE_STEP_S)
    return False


def is_own(pid: int, claimant: Claimant) -> bool:
    """Whether a process belongs to the claimant's job: of the same user, and related to it or to what it named.

    Related are ancestors and descendants, not siblings: ranks of one job are siblings, and each has a GPU of its own.
    Init is an ancestor of all, and counts only where it was named: as the trainer that is PID 1 of its container.
    """
    if _uid(pid) != claimant.uid:
        return False
    roots = {claimant.pid} | {own for own in claimant.own_pids if _uid(own) == claimant.uid}
    if roots.intersection(_lineage(pid)):
        return True
    return pid != _INIT and any(pid in _lineage(root) for root in roots)


def translate_pids(pids: Collection[int], peer_pid: int, proc: Path = Path("/proc")) -> tuple[int, ...]:
    """Process ids as we see them, of what a peer calls by the ids of its own PID namespace, as a container has one.

    Args:
        pids: As the peer says.
        peer_pid: As the kernel tells us.
        proc: Where the process file system is mounted.

    Returns:
        Those found; without a namespace of the peer's own, all of them; of a peer that we cannot see, or whose
        namespace we may not read (that takes CAP_SYS_PTRACE where it is another user's), none.
    """
    namespace = _pid_namespace(proc / str(peer_pid))
    if not peer_pid:
        return ()  # a process that we cannot see
    if namespace is None and _is_deeper(proc / str(peer_pid), proc / "self"):
        return ()  # its numbers would be taken for other processes'
    if namespace is None or namespace == _pid_namespace(proc / "self"):
        return tuple(pids)
    theirs = (folder for folder in proc.iterdir() if folder.name.isdecimal() and _pid_namespace(folder) == namespace)
    return tuple(sorted(int(folder.name) for folder in theirs if _innermost_pid(folder) in pids))


def _pid_namespace(folder: Path) -> int | None:
    try:
        return (folder / "ns/pid").stat().st_ino
    except OSError:
        return None


def _is_deeper(folder: Path, other: Path) -> bool:
    """Whether a process lives in a PID namespace further down than another."""
    return len(_pids(folder)) > len(_pids(other))


def _innermost_pid(folder: Path) -> int:
    """A process's id in its own PID namespace; 0 if it has ended."""
    return next(reversed(_pids(folder)), 0)


def _pids(folder: Path) -> list[int]:
    """A process's ids, from our PID namespace down to its own; none if it has ended."""
    try:
        lines = (folder / "status").read_text(errors="replace").splitlines()
    except OSError:
        return []
    return next(([int(pid) for pid in line.split()[1:]] for line in lines if line.startswith("NSpid:")), [])


def _lineage(pid: int) -> Iterator[int]:
    """A process, its parent, and so on, to init."""
    seen: Collection[int] = set()
    while pid > 0 and pid not in seen:
        yield pid
        seen = {*seen, pid}
        pid = _parent(pid)


def _parent(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[1])  # the name before may contain anything


def _uid(pid: int) -> int | None:
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return None


def describe_process(pid: int) -> str:
    """A process as a person knows it."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return f"process {pid} (not visible here: ended, or in a container of its own)"
    return f"process {pid} ({name}, user id {_uid(pid)})"
