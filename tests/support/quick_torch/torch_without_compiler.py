"""What ``sitecustomize`` has torch imported by: it starts and ends in half the time.

Each optimizer asks ``torch._dynamo`` to leave its functions alone, and frameworks ask ``torch.compile`` for theirs as
they are imported. All are left as they are, but the compiler has been imported by then: as long as torch itself takes.
Shapes of operations on the device ``meta`` are a third of torch's import, and wait for the first module that asks for
them. Looking for garbage takes a sixth of torch's import.
"""

import gc
import sys
import types
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

COMPILER = "torch._dynamo"
SHAPES = ("torch._meta_registrations", "torch.distributed._meta_registrations")
ASK_FOR_SHAPES = {"torch.distributed.tensor", "torch.distributed.fsdp", "torch.fx.experimental.symbolic_shapes"}
ASK_FOR_SHAPES |= {"torch.distributed.pipelining", "torch.export._trace", "transformers", "accelerate"}


def leave(function: Any = None, **_options: Any) -> Any:
    """``torch.compile`` where it is disabled; also as a decorator."""
    return leave if function is None else function


class Stand(types.ModuleType):
    """In the place of the compiler until more is asked of it than to do nothing."""

    class OptimizedModule:
        """What is compiled; nothing is."""

    trace_rules = types.SimpleNamespace(clear_lru_cache=lambda: None)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(load(), name)

    @staticmethod
    def disable(function: Any = None, *_args: Any, **_options: Any) -> Any:
        return leave(function)

    @staticmethod
    def graph_break(*_: Any) -> None: ...


class Shapes(types.ModuleType):
    """In the place of a module with shapes until a name of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        load_shapes()
        return getattr(sys.modules[self.__name__], name)


class Finder:
    """Finds the stand for ``torch._dynamo``; whoever imports a module of it gets the real one."""

    has_shapes = False

    def find_spec(self, name: str, path: Sequence[str] | None = None, _target: object = None) -> ModuleSpec | None:
        if name == "torch":
            return self.find_torch(path)
        if name in ASK_FOR_SHAPES:
            load_shapes()
        if name in SHAPES and not self.has_shapes:
            return ModuleSpec(name, self)  # type: ignore[arg-type]
        if name == COMPILER:
            return ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]
        if not name.startswith(f"{COMPILER}."):
            return None
        load()
        return ModuleSpec(name, self) if name in sys.modules else None  # type: ignore[arg-type]

    def find_torch(self, path: Sequence[str] | None) -> ModuleSpec | None:
        spec = PathFinder.find_spec("torch", path)
        if spec is None or spec.loader is None:
            return None
        gc.set_threshold(50_000, 20, 50)
        execute = spec.loader.exec_module

        def execute_and_change(module: types.ModuleType) -> None:
            execute(module)
            module.__dict__["compile"] = leave

        spec.loader.exec_module = execute_and_change  # type: ignore[method-assign]
        return spec

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        if spec.name in SHAPES:
            return Shapes(spec.name)
        return sys.modules.get(spec.name) or Stand(spec.name)

    def exec_module(self, module: types.ModuleType) -> None: ...


FINDER = Finder()


def load() -> types.ModuleType:
    """The compiler itself."""
    load_shapes()
    if FINDER in sys.meta_path:
        sys.meta_path.remove(FINDER)
        sys.modules.pop(COMPILER, None)
    return import_module(COMPILER)


def load_shapes() -> None:
    """Shapes on the device ``meta``, where torch is there without them."""
    if FINDER.has_shapes:
        return
    FINDER.has_shapes = True
    for name in SHAPES:
        if sys.modules.pop(name, None) is not None:
            import_module(name)
