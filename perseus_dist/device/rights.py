"""Who may set clocks, as far as that is known before trying: root, and on simulated GPUs also who started them."""

import os
from collections.abc import Mapping
from pathlib import Path

SIMULATED_GPUS = "PERSEUS_SIM_STATE"
"""Names the state file of simulated GPUs. The name is the simulator's, which device code does not import."""


def may_set_clocks(environ: Mapping[str, str]) -> bool:
    """Whether this process may set clocks by itself. A driver can still refuse: in containers root lacks rights, too.

    Args:
        environ: The process's environment. Where it names simulated GPUs, their owner has the rights of root.
    """
    user = os.geteuid()
    return user == 0 or user == _owner(environ.get(SIMULATED_GPUS))


def _owner(path: str | None) -> int | None:
    """User id of the owner of a file; None where there is no such file."""
    try:
        return Path(path).stat().st_uid if path else None
    except OSError:
        return None
