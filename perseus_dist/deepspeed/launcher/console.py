"""Commands that stand for ``deepspeed``."""

import importlib
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from perseus_dist.deepspeed.launcher.runner_patch import LauncherError, patch_runner


def main() -> Any:
    """``perseus-deepspeed``: DeepSpeed's launcher with ``--perseus`` implied, in an environment that is not enabled.

    Returns:
        For ``sys.exit``: what DeepSpeed's own ``main`` returns.
    """
    return _run(is_always_on=True)


def run_as_deepspeed() -> Any:
    """Run DeepSpeed's launcher with our options, for the wrapper of ``perseus-dist enable deepspeed --shim``."""
    sys.argv[0] = "deepspeed"
    return _run(is_always_on=False)


def _run(*, is_always_on: bool) -> Any:
    if find_spec("deepspeed") is None:
        sys.stderr.write(
            f"{Path(sys.argv[0]).name}: there is no DeepSpeed; install it: {sys.executable} -m pip install deepspeed\n"
        )
        return 2
    runner = importlib.import_module("deepspeed.launcher.runner")
    try:
        patch_runner(runner, is_always_on=is_always_on)
    except LauncherError as error:
        sys.stderr.write(f"{Path(sys.argv[0]).name}: {error}\n")
        return 2
    return runner.main()


if __name__ == "__main__":
    sys.exit(run_as_deepspeed())
