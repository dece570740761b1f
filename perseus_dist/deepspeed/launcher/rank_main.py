"""What each rank runs under ``deepspeed --perseus``: activation, then the user's program as if nothing had happened.

    python -u rank_main.py [--local_rank=N] --perseus-options B64 {script|module|exec} TARGET ARGUMENT...

Run by its path and never imported. Whatever goes wrong with Perseus here, the program runs.
"""

import sys

if not sys.flags.safe_path:
    del sys.path[0]  # this folder: nothing in it may stand in for a module of the user's

import builtins
import os
from importlib.machinery import SourceFileLoader
from types import ModuleType


def main(arguments: list[str]) -> None:
    """Take our arguments away and run the rest.

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
    if how == "module":
        _run_module(target)
    else:
        _run_script(target)


def _activate(options_text: str) -> None:
    try:
        from perseus_dist.deepspeed.activation import activate

        activate(options_text)
    except Exception as error:
        sys.stderr.write(f"training runs without Perseus: {error}\n")


def _run_script(path: str) -> None:
    """As ``python PATH`` does."""
    if not sys.flags.safe_path:
        sys.path.insert(0, os.path.dirname(os.path.realpath(path)))  # noqa: PTH120
    module = _fresh_main()
    module.__file__ = os.path.join(os.getcwd(), path)  # noqa: PTH109, PTH118 - not normalised
    module.__loader__ = SourceFileLoader("__main__", path)
    module.__dict__["__cached__"] = None
    with open(path, "rb") as file:  # noqa: PTH123
        code = compile(file.read(), module.__file__, "exec", dont_inherit=True)
    exec(code, module.__dict__)


def _run_module(name: str) -> None:
    """As ``python -m NAME`` does, by the function that it calls itself."""
    if not sys.flags.safe_path:
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
    _fresh_main()
    import runpy

    runpy._run_module_as_main(name)  # type: ignore[attr-defined] # noqa: SLF001 - run_module's __main__ ends with it


def _execute(options_text: str, target: str, arguments: list[str]) -> None:
    """Become the user's program; Python processes below it find the options in the environment."""
    environment = dict(os.environ)
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "on_pythonpath")  # noqa: PTH100, PTH118, PTH120
    paths = [folder, environment["PYTHONPATH"]] if environment.get("PYTHONPATH") else [folder]
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    environment["PERSEUS_DEEPSPEED_OPTIONS"] = options_text
    os.execvpe(target, [target, *arguments], environment)


def _fresh_main() -> ModuleType:
    """A ``__main__`` that stays: pickle, multiprocessing and functions at exit look into it long after."""
    module = ModuleType("__main__")
    module.__dict__.update(__annotations__={}, __builtins__=builtins)
    sys.modules["__main__"] = module
    return module


if __name__ == "__main__":
    main(sys.argv[1:])
