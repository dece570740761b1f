"""Modules that Megatron, its Bridge and torchtitan import and dense models never call.

``typing.override``, triton, and of Bridge Transformer Engine and Hugging Face's ``datasets``.
"""

import importlib.machinery
import importlib.util
import re
import sys
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

_MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    "triton": ("triton", "triton.language", "triton.language.extra", "triton.runtime", "triton.runtime.jit"),
}
_MODULES_OF_BRIDGE: Final[Mapping[str, tuple[str, ...]]] = {
    "transformer_engine": ("transformer_engine", "transformer_engine.pytorch"),
    "datasets": ("datasets",),
}


def supply_what_is_missing(package: str) -> None:
    """For the whole of the process.

    Args:
        package: Whose modules import it.
    """
    if not hasattr(typing, "override"):
        typing.__dict__["override"] = lambda function: function
    _supply(package, _MODULES)


def supply_what_bridge_misses() -> None:
    """The same for converters of checkpoints and readers of datasets, which Megatron-Bridge has beside."""
    _supply("megatron.bridge", _MODULES_OF_BRIDGE)


def _supply(package: str, modules: Mapping[str, tuple[str, ...]]) -> None:
    missing = {top: names for top, names in modules.items() if importlib.util.find_spec(top) is None}
    if missing:
        sys.meta_path.insert(0, _ForAMoment(package, missing))


class _Anything(types.ModuleType):
    """Stands for a package, its modules and all that is in them; as a decorator it leaves functions as they are."""

    __version__ = "3.0.0"

    class Linear:
        """Of Transformer Engine; a base of classes."""

    def __getattr__(self, name: str) -> Self:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else self


class _ForAMoment:
    """Modules that exist while one that needs them is executed: torch takes a triton that stays for the real one."""

    def __init__(self, package: str, missing: Mapping[str, tuple[str, ...]]) -> None:
        """Args: package: whose modules they exist for; missing: by the package that these import, its modules."""
        self._prefix = f"{package}."
        self._missing = missing
        # Not indented: without asking if it is there.
        self._imports = re.compile(rf"^(?:import|from) ({'|'.join(missing)})\b", re.MULTILINE)

    def find_spec(self, name: str, path: Sequence[str] | None = None, _target: object = None) -> Any:
        if not name.startswith(self._prefix):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or not isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            return None
        imported = set(self._imports.findall(Path(spec.loader.path).read_text(errors="replace")))
        if not imported:
            return None
        execute = spec.loader.exec_module
        names = [name for top in sorted(imported) for name in self._missing[top]]

        def execute_with_them(module: types.ModuleType) -> None:
            added = [each for each in names if each not in sys.modules]  # one such module may import another
            sys.modules.update({each: _Anything(each) for each in added})
            try:
                execute(module)
            finally:
                for each in added:
                    del sys.modules[each]

        spec.loader.exec_module = execute_with_them  # type: ignore[method-assign]
        return spec
