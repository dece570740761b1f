import importlib
import importlib.util
import inspect
import itertools
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from perseus_dist.training import post_import
from perseus_dist.training.post_import import when_imported

_numbers = itertools.count()


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module that counts how often it runs, and that nobody has imported."""
    module_name = f"post_import_subject_{next(_numbers)}"
    (tmp_path / f"{module_name}.py").write_text('"""Documented."""\nruns = globals().get("runs", 0) + 1\n')
    monkeypatch.syspath_prepend(tmp_path)
    yield module_name
    sys.modules.pop(module_name, None)
    post_import._callbacks.pop(module_name, None)


def test_it_is_called_after_the_import(name: str) -> None:
    seen: list[int] = []
    when_imported(name, lambda module: seen.append(module.runs))
    assert name not in sys.modules
    importlib.import_module(name)
    importlib.import_module(name)
    assert seen == [1]


def test_it_is_called_at_once_where_that_is_over(name: str) -> None:
    module = importlib.import_module(name)
    seen: list[ModuleType] = []
    when_imported(name, seen.append)
    assert seen == [module]


def test_it_is_called_after_reloads_and_new_imports(name: str) -> None:
    seen: list[int] = []
    when_imported(name, lambda module: seen.append(module.runs))
    importlib.reload(importlib.import_module(name))
    del sys.modules[name]
    importlib.import_module(name)
    assert seen == [1, 2, 1]


def test_all_are_called_and_what_one_raises_stays_here(name: str, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[str] = []

    def fail(_: ModuleType) -> None:
        raise RuntimeError("on purpose")

    when_imported(name, fail)
    when_imported(name, lambda module: seen.append(module.__name__))
    importlib.import_module(name)
    assert seen == [name]
    (record,) = caplog.records
    assert record.getMessage() == f"{name} was imported, but Perseus could not hook into it"


def test_the_module_looks_as_if_nobody_had_watched(name: str) -> None:
    plain = importlib.import_module(name)
    del sys.modules[name]
    when_imported(name, lambda _: None)
    watched = importlib.import_module(name)
    assert watched.__spec__ is not None
    assert type(watched.__loader__) is type(watched.__spec__.loader) is type(plain.__loader__)
    assert watched.__file__ == plain.__file__
    assert inspect.getsource(watched).startswith('"""Documented."""')


def test_looking_for_the_module_imports_nothing_and_spends_nothing(name: str) -> None:
    seen: list[ModuleType] = []
    when_imported(name, seen.append)
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.loader is not None
    assert spec.origin is not None
    assert spec.origin.endswith(f"{name}.py")
    assert "Documented" in spec.loader.get_source(name)  # type: ignore[attr-defined]
    assert not seen
    importlib.import_module(name)
    assert len(seen) == 1


def test_a_module_that_is_not_there_is_still_not_there() -> None:
    when_imported("post_import_nowhere", lambda _: None)
    assert importlib.util.find_spec("post_import_nowhere") is None
    with pytest.raises(ModuleNotFoundError, match="post_import_nowhere"):
        importlib.import_module("post_import_nowhere")


def test_an_import_that_fails_calls_nobody(name: str, tmp_path: Path) -> None:
    seen: list[ModuleType] = []
    (tmp_path / f"{name}.py").write_text("raise ValueError('on purpose')")
    when_imported(name, seen.append)
    for _ in range(2):
        with pytest.raises(ValueError, match="on purpose"):
            importlib.import_module(name)
    assert not seen


def test_submodules_and_folders_without_code(name: str, tmp_path: Path) -> None:
    package = tmp_path / f"{name}_package"
    (package / "inner").mkdir(parents=True)
    (package / "inner" / "leaf.py").write_text("value = 3")
    seen: list[str] = []
    for module_name in (package.name, f"{package.name}.inner", f"{package.name}.inner.leaf"):
        when_imported(module_name, lambda module: seen.append(module.__name__))
    leaf = importlib.import_module(f"{package.name}.inner.leaf")
    assert leaf.value == 3
    assert seen == [f"{package.name}.inner.leaf"]
    for module_name in [key for key in sys.modules if key.startswith(package.name)]:
        del sys.modules[module_name]


def test_another_finder_of_this_sort(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as wrapt's, which asks all finders, ours included, while ours asks it."""

    class Other:
        is_asking = False

        def find_spec(self, asked: str, *_: object) -> object:
            if asked != name or self.is_asking:
                return None
            self.is_asking = True
            try:
                return importlib.util.find_spec(asked)
            finally:
                self.is_asking = False

    seen: list[ModuleType] = []
    when_imported(name, seen.append)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path[:1], Other(), *sys.meta_path[1:]])
    importlib.import_module(name)
    assert len(seen) == 1


def test_many_threads_import_once(name: str) -> None:
    seen: list[ModuleType] = []
    when_imported(name, seen.append)
    threads = [threading.Thread(target=importlib.import_module, args=(name,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 1
