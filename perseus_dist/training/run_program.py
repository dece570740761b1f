"""Running the user's program as if Python had been started with it.

Read by its path where this package may not be importable, so it imports nothing of it.
"""

import builtins
import os
import sys
from importlib.machinery import SourceFileLoader, SourcelessFileLoader
from types import CodeType, ModuleType


def run_script(path: str) -> None:
    """As ``python PATH`` does, on the arguments in ``sys.argv``: a script, compiled or not, or a folder or ZIP file.

    In a folder or ZIP file, its module ``__main__`` is run.
    """
    full_path = os.path.join(os.getcwd(), path)  # noqa: PTH109, PTH118 - not normalised
    if _holds_modules(full_path):
        sys.path.insert(0, full_path)  # with -P too
        _run_as_main("__main__", alter_argv=False)
        return
    if not sys.flags.safe_path:
        sys.path.insert(0, os.path.dirname(os.path.realpath(path)))  # noqa: PTH120
    module = _fresh_main()
    module.__file__ = full_path
    module.__dict__["__cached__"] = None
    loader: SourceFileLoader | SourcelessFileLoader
    code: CodeType | None
    if path.endswith(".pyc"):
        module.__loader__ = loader = SourcelessFileLoader("__main__", path)
        code = loader.get_code("__main__")
        assert code is not None
    else:
        module.__loader__ = SourceFileLoader("__main__", path)
        with open(path, "rb") as file:  # noqa: PTH123
            code = compile(file.read(), full_path, "exec", dont_inherit=True)
    exec(code, module.__dict__)


def run_module(name: str) -> None:
    """As ``python -m NAME`` does, by the function that it calls itself."""
    if not sys.flags.safe_path:
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
    _run_as_main(name, alter_argv=True)


def _run_as_main(name: str, *, alter_argv: bool) -> None:
    _fresh_main()
    import runpy

    # Not run_module or run_path, whose __main__ ends with them.
    runpy._run_module_as_main(name, alter_argv)  # type: ignore[attr-defined] # noqa: SLF001


def _holds_modules(path: str) -> bool:
    """Whether modules can be imported from there; Python's own test of what it is started with."""
    for hook in sys.path_hooks:
        try:
            hook(path)
        except ImportError:
            continue
        return True
    return False


def _fresh_main() -> ModuleType:
    """A ``__main__`` that stays: pickle, multiprocessing and functions at exit look into it long after."""
    module = ModuleType("__main__")
    module.__dict__.update(__annotations__={}, __builtins__=builtins)
    sys.modules["__main__"] = module
    return module
