"""Who may set clocks, as far as that is known before trying: root, and on simulated GPUs also who started them."""

import os
from collections.abc import Mapping
from pathlib import Path

SIMULATED_GPUS = "PERSEUS_SIM_STATE"
"""Names the state file of simulated GPUs. The name is the simulator's, which device code does not import."""

_SYS_ADMIN = 1 << 21  # CAP_SYS_ADMIN, which the driver asks for


def may_set_clocks(environ: Mapping[str, str]) -> bool:
    """Whether this process may set clocks by itself. A driver can still refuse.

    Args:
        environ: The process's environment. Where it names simulated GPUs, their owner has the rights of root.
    """
    return find_missing_right(environ) == ""


def find_missing_right(environ: Mapping[str, str], status: Path = Path("/proc/self/status")) -> str:
    """Why this process may not set clocks, in a sentence; empty if nothing is known that forbids it.

    Args:
        environ: As above.
        status: The process's own in ``/proc``, for its capabilities.
    """
    if owns_simulated_gpus(environ):
        return ""
    if os.geteuid() != 0:
        return f"setting clocks needs root, and this process runs as user id {os.geteuid()}"
    capabilities = _effective_capabilities(status)
    if environ.get(SIMULATED_GPUS) or capabilities is None or capabilities & _SYS_ADMIN:
        return ""
    return "setting clocks needs CAP_SYS_ADMIN, which this container's root has not"


def owns_simulated_gpus(environ: Mapping[str, str]) -> bool:
    """Whether the GPUs are simulated ones that this user has started: no lock on them outlives the simulation."""
    return os.geteuid() == _owner(environ.get(SIMULATED_GPUS))


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
