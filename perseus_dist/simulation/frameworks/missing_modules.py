"""Modules that Megatron and torchtitan import and dense models never call: ``typing.override``, and triton."""

import importlib.machinery
import importlib.util
import re
import sys
import types
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

_IMPORTS_TRITON = re.compile(r"^(import|from) triton\b", re.MULTILINE)  # not indented: without asking if it is there


def supply_what_is_missing(package: str) -> None:
    """For the whole of the process.

    Args:
        package: Whose modules import it.
    """
    if not hasattr(typing, "override"):
        typing.__dict__["override"] = lambda function: function
    if importlib.util.find_spec("triton") is None:
        sys.meta_path.insert(0, _TritonForAMoment(package))


class _Anything(types.ModuleType):
    """Stands for triton, its modules and all that is in them; as a decorator it leaves functions as they are."""

    __version__ = "3.0.0"

    def __getattr__(self, name: str) -> Self:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else self


class _TritonForAMoment:
    """A triton that exists while a module that needs it is executed: torch takes one that stays for the real one."""

    def __init__(self, package: str) -> None:
        self._prefix = f"{package}."

    def find_spec(self, name: str, path: Sequence[str] | None = None, _target: object = None) -> Any:
        if not name.startswith(self._prefix):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or not isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            return None
        if not _IMPORTS_TRITON.search(Path(spec.loader.path).read_text(errors="replace")):
            return None
        execute = spec.loader.exec_module

        def execute_with_triton(module: types.ModuleType) -> None:
            names = ("triton", "triton.language", "triton.language.extra", "triton.runtime", "triton.runtime.jit")
            added = [each for each in names if each not in sys.modules]  # one such module may import another
            sys.modules.update({each: _Anything(each) for each in added})
            try:
                execute(module)
            finally:
                for each in added:
                    del sys.modules[each]

        spec.loader.exec_module = execute_with_triton  # type: ignore[method-assign]
        return spec
