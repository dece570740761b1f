"""A real systemd, as a user's manager in namespaces of its own, on a machine that systemd has not booted.

It is given units with what its rights are enough for: how a service is started and started again, not how it is
confined. Needs root, namespaces and a control group that may be made.
"""

import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from waiting import wait_until

_MANAGER = Path("/lib/systemd/systemd")
_CGROUP = Path("/sys/fs/cgroup")
_HIERARCHIES = [path for path in (_CGROUP / "systemd", _CGROUP / "unified") if path.is_dir()] or [_CGROUP]
_KEPT = {"Type", "EnvironmentFile", "ExecStart", "StateDirectory"} | {
    f"Restart{ending}" for ending in ("", "Sec", "PreventExitStatus")
}
_PREPARE = """
mount -t tmpfs t /run
mkdir -p /run/systemd/system /run/user/systemd
for group in $GROUPS_OF_TEST; do echo $$ >"$group/cgroup.procs"; done
export XDG_RUNTIME_DIR=/run/user HOME=$FOLDER XDG_CONFIG_HOME=$FOLDER/.config
echo ready
exec bash -s
"""


class SystemdManager:
    """Commands are run where the manager is."""

    def __init__(self, shell: "subprocess.Popen[str]") -> None:
        self._shell = shell

    def run(self, command: str) -> str:
        """What a command of the shell prints, both ways."""
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(f"{{ {command}\n}} 2>&1 </dev/null; echo; echo __over__\n")
        self._shell.stdin.flush()
        lines = []
        while (line := self._shell.stdout.readline()) not in ("__over__\n", ""):
            lines.append(line)
        return "".join(lines).strip()

    def show(self, unit: str) -> dict[str, str]:
        """How a unit is."""
        names = "ActiveState,SubState,Result,NRestarts,ExecMainStatus"
        told = self.run(f"systemctl --user show {unit} -p {names}")
        return dict(line.split("=", 1) for line in told.splitlines())


def write_unit(unit: Path, folder: Path, program: list[str], **changed: str) -> None:
    """Give the manager of a folder a unit of ours.

    Args:
        unit: Its file.
        folder: Of the manager.
        program: In place of ``perseus-dist``.
        changed: Settings that are replaced by others.
    """
    lines = []
    for line in unit.read_text().splitlines():
        name, _, value = line.partition("=")
        if name in changed:
            lines.append(f"{name}={changed[name]}")
        elif line in ("[Unit]", "[Service]") or name.startswith("StartLimit"):
            lines.append(line)
        elif name in _KEPT:
            lines.append(f"{name}={value.replace('perseus-dist ', f'{shlex.join(program)} ', 1)}")
    place = folder / ".config/systemd/user"
    place.mkdir(parents=True, exist_ok=True)
    (place / unit.name).write_text("\n".join(lines) + "\n")


def find_obstacle() -> str:
    """Why no manager can be started here, or empty."""
    if os.geteuid() != 0 or not _MANAGER.exists():
        return "needs root and the package systemd"
    probe = subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True, check=False)
    if probe.returncode or not all(os.access(path, os.W_OK) for path in _HIERARCHIES):
        return "needs namespaces and control groups"
    return ""


@contextmanager
def systemd_manager(folder: Path) -> Iterator[SystemdManager]:
    """Start one that reads units below a folder, and end it with all that it has started."""
    groups = [path / f"perseus-test-{os.getpid()}" for path in _HIERARCHIES]
    for group in groups:
        group.mkdir()
    environ = {**os.environ, "GROUPS_OF_TEST": " ".join(map(str, groups)), "FOLDER": str(folder)}
    command = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "bash", "-euc", _PREPARE]
    shell = subprocess.Popen(
        command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert shell.stdout is not None
        assert shell.stdout.readline() == "ready\n"
        manager = SystemdManager(shell)
        manager.run(f"{_MANAGER} --user --log-target=null &")
        told = manager.run("for i in $(seq 600); do systemctl --user is-active init.scope && break; sleep 0.1; done")
        assert told.splitlines()[-1:] == ["active"], told
        yield manager
    finally:
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
        shell.communicate()
        wait_until(lambda: all(map(_is_removed, groups)))


def _is_removed(group: Path) -> bool:
    """Remove what is empty, which is all of it once the kernel has ended the processes."""
    for path in (*sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True), group):
        with suppress(OSError):
            path.rmdir()
    return not group.exists()
