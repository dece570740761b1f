"""Running the user's program as if Python had been started with it.

Read by its path where this package may not be importable, so it imports nothing of it.
"""

import builtins
import os
import sys
from importlib.machinery import SourceFileLoader
from types import ModuleType


def run_script(path: str) -> None:
    """As ``python PATH`` does, on the arguments in ``sys.argv``."""
    if not sys.flags.safe_path:
        sys.path.insert(0, os.path.dirname(os.path.realpath(path)))  # noqa: PTH120
    module = _fresh_main()
    module.__file__ = os.path.join(os.getcwd(), path)  # noqa: PTH109, PTH118 - not normalised
    module.__loader__ = SourceFileLoader("__main__", path)
    module.__dict__["__cached__"] = None
    with open(path, "rb") as file:  # noqa: PTH123
        code = compile(file.read(), module.__file__, "exec", dont_inherit=True)
    exec(code, module.__dict__)


def run_module(name: str) -> None:
    """As ``python -m NAME`` does, by the function that it calls itself."""
    if not sys.flags.safe_path:
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
    _fresh_main()
    import runpy

    runpy._run_module_as_main(name)  # type: ignore[attr-defined] # noqa: SLF001 - run_module's __main__ ends with it


def _fresh_main() -> ModuleType:
    """A ``__main__`` that stays: pickle, multiprocessing and functions at exit look into it long after."""
    module = ModuleType("__main__")
    module.__dict__.update(__annotations__={}, __builtins__=builtins)
    sys.modules["__main__"] = module
    return module
