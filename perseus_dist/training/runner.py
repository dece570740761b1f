"""``python -m``: a training script or module run as Python would, with an adapter activated before."""

import os
import sys
from collections.abc import Callable
from contextlib import suppress

from perseus_dist.training.run_program import run_module, run_script

TARGET = "{SCRIPT | -m MODULE} [ARGUMENT ...]"
"""The part of a runner's usage that names the program."""


def run_program(arguments: list[str], *, runner: str, usage: str, activate: Callable[[], None]) -> int:
    """Activate, and run a training script or module. Whatever goes wrong with Perseus here, the script runs.

    Args:
        arguments: A path of a script, or of a folder or ZIP file with a ``__main__``, or ``-m`` and a module's name;
            then its own arguments.
        runner: The module that Python was started with.
        usage: One line.
        activate: The adapter's; may raise anything.

    Returns:
        0 when the program has come to its end; 2, after a line, where there is nothing to run.
    """
    is_module = arguments[:1] == ["-m"]
    target, *rest = arguments[is_module:] or [""]
    if target in ("-h", "--help") and not is_module:
        sys.stdout.write(f"{usage}\n")
        return 0
    if not target or target.startswith("-"):
        sys.stderr.write(f"{usage}\n")
        return 2
    if not is_module and not os.path.exists(target):  # noqa: PTH110 - pathlib would be imported for this alone
        sys.stderr.write(f"python -m {runner}: no script at {target}; {usage}\n")
        return 2
    try:
        activate()
    except Exception as error:
        with suppress(Exception):  # it is closed, or its disk is full
            sys.stderr.write(f"training runs without Perseus: {error}\n")
    if not sys.flags.safe_path:
        del sys.path[0]  # where -m looked for the runner
    sys.argv = [target, *rest]
    (run_module if is_module else run_script)(target)
    return 0
