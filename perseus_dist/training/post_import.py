"""Something to do right after a module is imported, without importing it.

Runs before the user's program does and is sparing with imports: logging, typing and importlib.abc would cost it 10 ms.
"""

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from threading import Lock, local
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.abc import Loader

Callback = Callable[[ModuleType], None]


def when_imported(name: str, callback: Callback) -> None:
    """Call ``callback(module)`` each time that module ``name`` has been executed: after its import and every reload.

    Where it is imported already, that is at once. What the callback raises is logged and never reaches the import. It
    may be called twice where two threads race, and should not mind. A namespace package has no code and calls nothing.
    """
    with _lock:
        _callbacks.setdefault(name, []).append(callback)
        if _finder not in sys.meta_path:
            sys.meta_path.insert(0, _finder)
    module = sys.modules.get(name)
    if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
        _call(callback, module)


class _Finder:
    """Has the other finders find the module, and wraps its loader."""

    def __init__(self) -> None:
        self._asking = local()  # names that this thread is asking the other finders for

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _callbacks:
            return None
        asking: set[str] = self._asking.__dict__.setdefault("names", set())
        if name in asking:  # another finder of this sort asks everybody in turn
            return None
        asking.add(name)
        try:
            spec = self._ask_others(name, path, target)
        finally:
            asking.discard(name)
        if spec is not None and spec.loader is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Loader(spec.loader)  # type: ignore[assignment] # it quacks
        return spec

    def _ask_others(self, name: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        for finder in list(sys.meta_path):
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    return spec
        return None


class _Loader:
    """The module's own loader, and then the callbacks."""

    def __init__(self, loader: "Loader") -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # From here on nothing shows that somebody watched: inspect, pickle and resources see the loader they know.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        for callback in list(_callbacks.get(module.__name__, ())):
            _call(callback, module)

    def __getattr__(self, name: str) -> object:  # what find_spec's callers ask of a loader: get_code, get_filename, ...
        return getattr(self._loader, name)


def _call(callback: Callback, module: ModuleType) -> None:
    try:
        callback(module)
    except Exception:
        import logging

        logging.getLogger(__name__).warning(
            "%s was imported, but Perseus could not hook into it", module.__name__, exc_info=True
        )


_lock = Lock()
_callbacks: dict[str, list[Callback]] = {}
_finder = _Finder()
