"""Runs a command under a unit's filter of system calls, its capabilities and its ban on memory to write and execute.

    python unit_sandbox.py UNIT COMMAND...

As systemd would, where no systemd runs. The folders and namespaces of the unit are not made.
"""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pyseccomp as seccomp  # type: ignore[import-untyped]

_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_MDWE = 65
_NUM_CAPABILITIES = 64
_NUMBERS = {"CAP_CHOWN": 0, "CAP_SYS_PTRACE": 19, "CAP_SYS_ADMIN": 21}


def service_settings(unit: Path) -> dict[str, list[str]]:
    """The values of ``[Service]``, by their names; some are given several times."""
    found: dict[str, list[str]] = {}
    section = ""
    for line in unit.read_text().splitlines():
        if line.startswith("["):
            section = line
        elif section == "[Service]" and "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def syscalls(name: str) -> set[str]:
    """Those of a set of systemd's, such as ``@system-service``, or the one that is named."""
    if not name.startswith("@"):
        return {name}
    listed = subprocess.run(
        ["systemd-analyze", "--no-pager", "syscall-filter", name], capture_output=True, text=True, check=True
    )
    words = [line.strip() for line in listed.stdout.splitlines()[1:] if line.startswith(" ") and "#" not in line]
    return set().union(*map(syscalls, words))


def allowed(filters: list[str]) -> set[str]:
    """What lines of ``SystemCallFilter=`` allow, of which the first is a list of what is allowed."""
    found: set[str] = set()
    for line in filters:
        for name in line.removeprefix("~").split():
            found = found - syscalls(name) if line.startswith("~") else found | syscalls(name)
    return found | syscalls("@default")


def enter(unit: Path) -> None:
    """Confine this process, and those that it starts."""
    settings = service_settings(unit)
    libc = ctypes.CDLL(None, use_errno=True)
    kept = {_NUMBERS[name] for name in settings["CapabilityBoundingSet"][0].split()}
    for number in range(_NUM_CAPABILITIES):
        if number not in kept:
            libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)
    if settings["MemoryDenyWriteExecute"] == ["yes"]:
        libc.prctl(_PR_SET_MDWE, 1, 0, 0, 0)  # Linux 6.3
    assert libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    rules = seccomp.SyscallFilter(seccomp.ERRNO(1))
    for name in sorted(allowed(settings["SystemCallFilter"])):
        try:
            rules.add_rule(seccomp.ALLOW, name)
        except (OSError, ValueError):  # of another architecture, or newer than the library
            continue
    rules.load()


if __name__ == "__main__":
    enter(Path(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
