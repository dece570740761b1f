"""Taking a lease process out of the reach of what ends its job: a killed process tree, and a killed control group.

    killed with the job                         out of its reach by
    the terminal's and the shell's group        a session of its own
    descendants of the trainer or the agent     a parent that ends at once: the process becomes one of init's
    members of the job's control group          a move into a group of its own, where that may be written
    members of the container's PID namespace    nothing: a process cannot leave it

What cannot be left is said in a sentence, since a SIGKILL of all of it leaves clocks locked.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

OWN_GROUP = "perseus-dist-leases"
_INITIAL_PID_NAMESPACE = 0xEFFFFFFC  # PROC_PID_INIT_INO of the kernel
_PROC_SELF = Path("/proc/self")
# Hierarchies by which a workload manager kills or freezes a job: the unified one, and these of version 1.
_KILLING_HIERARCHIES = ("", "freezer", "name=systemd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hierarchy:
    """One hierarchy of control groups, as this process sees it.

    Attributes:
        controllers: Empty for the unified one.
        group: Path of the group that this process is in.
        top: Where the hierarchy is mounted; None where it is not.
        shown: Path of the group that the mount shows as its top.
    """

    controllers: str
    group: str
    top: Path | None = None
    shown: str = "/"

    @property
    def is_whole(self) -> bool:
        """Whether the mount shows the machine's topmost group: no namespace's, and no container's part of it."""
        if self.top is None or self.shown != "/":
            return False
        is_below = (self.top / "cgroup.type").exists() if not self.controllers else self._lacks_release_agent
        return not is_below

    @property
    def _lacks_release_agent(self) -> bool:
        return self.top is not None and not (self.top / "release_agent").exists()


def detach() -> None:
    """Become a session of its own, whose parent is init. Only while the process has a single thread.

    The process that was started ends here; its child goes on.
    """
    if os.fork():
        os._exit(0)
    os.setsid()


def leave_job(proc: Path = _PROC_SELF) -> str:
    """Leave the job's control groups.

    Args:
        proc: This process's folder in ``/proc``.

    Returns:
        What still ends this process together with the job when it is killed, for a sentence; empty if nothing does.
    """
    groups = [hierarchy.group for hierarchy in read_hierarchies(proc) if not _leave(hierarchy)]
    with suppress(OSError):
        if (proc / "ns/pid").stat().st_ino != _INITIAL_PID_NAMESPACE:
            return "its container"
    return " and ".join(f"its control group {group}" for group in dict.fromkeys(groups))


def read_hierarchies(proc: Path = _PROC_SELF) -> list[Hierarchy]:
    """Those by which jobs are killed, as this process sees them; none where ``/proc`` does not tell."""
    try:
        groups = [line.split(":", 2) for line in (proc / "cgroup").read_text().splitlines()]
        mounts = [line.split() for line in (proc / "mountinfo").read_text().splitlines()]
    except OSError:
        return []
    return [
        next(_mounted(controllers, group, mounts), Hierarchy(controllers=controllers, group=group))
        for _, controllers, group in groups
        if controllers in _KILLING_HIERARCHIES
    ]


def _mounted(controllers: str, group: str, mounts: list[list[str]]) -> Iterator[Hierarchy]:
    """The hierarchy at each of its mounts: lines of ``mountinfo``, see proc(5)."""
    for fields in mounts:
        kind, options = fields[fields.index("-") + 1], fields[-1].split(",")
        if (kind == "cgroup" and controllers in options) or (kind == "cgroup2" and not controllers):
            yield Hierarchy(controllers=controllers, group=group, top=Path(fields[4]), shown=fields[3])


def _leave(hierarchy: Hierarchy) -> bool:
    """Move to a group of our own at the top; whether this process is then in no group of the job."""
    if hierarchy.group == "/" and (hierarchy.top is None or hierarchy.is_whole):
        return True  # the topmost group, which cannot be killed
    if hierarchy.top is None or not hierarchy.is_whole:
        return False  # all that can be seen is killed with the job
    own = hierarchy.top / OWN_GROUP
    try:
        own.mkdir(exist_ok=True)
        (own / "cgroup.procs").write_text(f"{os.getpid()}\n")
    except OSError:
        return False
    return True
