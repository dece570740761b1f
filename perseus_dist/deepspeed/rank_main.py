"""Program of each rank under ``deepspeed --perseus``: activation, then the user's program as if run by itself.

    python -u rank_main.py [--local_rank=N] --perseus-options B64 {script|module|exec} TARGET ARGUMENT...

Run by its path and never imported. Whatever goes wrong with Perseus here, the program runs.
"""

import sys

if not sys.flags.safe_path:
    del sys.path[0]  # this folder: nothing in it may stand in for a module of the user's

import os
from contextlib import suppress
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType


def main(arguments: list[str]) -> None:
    """Remove our arguments, activate Perseus, and run the user's program.

    Args:
        arguments: As in the module's docstring, from ``--local_rank`` on.
    """
    start = arguments.index("--perseus-options")
    options_text, how, target, *rest = arguments[start + 1 :]
    arguments = arguments[:start] + rest  # --local_rank stands first, where the launcher puts it
    if how == "exec":
        _execute(options_text, target, arguments)
    _activate(options_text)
    sys.argv = [target, *arguments]
    run = _run_program()
    if how == "module":
        run.run_module(target)
    else:
        run.run_script(target)


def _activate(options_text: str) -> None:
    try:
        from perseus_dist.deepspeed.activation import activate

        activate(options_text)
    except Exception as error:
        with suppress(Exception):  # it is closed, or its disk is full
            sys.stderr.write(f"training runs without Perseus: {error}\n")


def _run_program() -> ModuleType:
    """``perseus_dist.training.run_program``, also where this node's environment lacks the package."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "training", "run_program.py")  # noqa: PTH100, PTH118, PTH120
    spec = spec_from_file_location("perseus_run_program", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _execute(options_text: str, target: str, arguments: list[str]) -> None:
    """Become the user's program; Python processes below it find the options in the environment."""
    environment = dict(os.environ)
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "launcher", "on_pythonpath")  # noqa: PTH100, PTH118, PTH120
    paths = [folder, environment["PYTHONPATH"]] if environment.get("PYTHONPATH") else [folder]
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    environment["PERSEUS_DEEPSPEED_OPTIONS"] = options_text
    os.execvpe(target, [target, *arguments], environment)


if __name__ == "__main__":
    main(sys.argv[1:])
