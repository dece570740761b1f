"""Who may set clocks, as far as that is known before trying: root, and on simulated GPUs also who started them."""

import os
from collections.abc import Mapping
from pathlib import Path

SIMULATED_GPUS = "PERSEUS_SIM_STATE"
"""Names the state file of simulated GPUs. The name is the simulator's, which device code does not import."""

_SYS_ADMIN = 1 << 21  # CAP_SYS_ADMIN, which the driver asks for

_ALL_USERS = "4294967295"


def find_missing_right(environ: Mapping[str, str], proc: Path = Path("/proc/self")) -> str:
    """Why this process may not set clocks, in a sentence; empty if nothing is known that forbids it.

    Args:
        environ: Of this process. Where it names simulated GPUs, their owner has the rights of root.
        proc: This process's folder in ``/proc``, for its capabilities and user namespace.
    """
    if owns_simulated_gpus(environ):
        return ""
    if os.geteuid() != 0:
        return f"setting clocks needs root, and this process runs as user id {os.geteuid()}"
    if environ.get(SIMULATED_GPUS):
        return ""
    capabilities = _effective_capabilities(proc / "status")
    if capabilities is not None and not capabilities & _SYS_ADMIN:
        return "setting clocks needs CAP_SYS_ADMIN, which this container's root has not"
    if not _is_initial_user_namespace(proc / "uid_map"):
        return "setting clocks needs the node's root, and this one is root of a user namespace only"
    return ""


def owns_simulated_gpus(environ: Mapping[str, str]) -> bool:
    """Whether the GPUs are simulated ones that this user has started: no lock on them outlives the simulation."""
    return os.geteuid() == _owner(environ.get(SIMULATED_GPUS))


def _is_initial_user_namespace(uid_map: Path) -> bool:
    """Or unknown."""
    try:
        return uid_map.read_text().split() == ["0", "0", _ALL_USERS]
    except OSError:
        return True


def _effective_capabilities(status: Path) -> int | None:
    try:
        lines = status.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1], 16) for line in lines if line.startswith("CapEff:")), None)


def _owner(path: str | None) -> int | None:
    """User id of the owner of a file; None where there is no such file."""
    try:
        return Path(path).stat().st_uid if path else None
    except OSError:
        return None
