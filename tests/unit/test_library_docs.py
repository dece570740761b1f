"""The examples in the docstrings of the library's face do what they show."""

import doctest
import importlib
import pkgutil
import shutil
from pathlib import Path
from types import ModuleType

import pytest

import perseus_dist
import perseus_dist.library

PROFILE = Path(__file__).resolve().parents[2] / "examples" / "profiles" / "gpu_model_pp4.csv"
MODULES = [f"perseus_dist.library.{found.name}" for found in pkgutil.iter_modules(perseus_dist.library.__path__)]


@pytest.mark.parametrize("module", [perseus_dist, *map(importlib.import_module, MODULES)], ids=lambda it: it.__name__)
def test_examples(module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(PROFILE, "profile.csv")
    schedule = perseus_dist.Schedule.one_f_one_b(pp=4, microbatches=8)
    names = {
        "perseus_dist": perseus_dist,
        "profile": perseus_dist.read_profile("profile.csv"),
        "schedule": schedule,
        "frontier": perseus_dist.plan("profile.csv", schedule, blocking_power_w=80),
    }
    failed, _ = doctest.testmod(module, extraglobs=names, optionflags=doctest.ELLIPSIS)
    assert failed == 0


@pytest.mark.parametrize("name", [name for name in perseus_dist.__all__ if name != "__version__"])
def test_every_public_name_has_a_docstring_and_a_call_an_example(name: str) -> None:
    value = getattr(perseus_dist, name)
    if issubclass(type(value), type) and issubclass(value, (tuple, Exception)):
        assert value.__doc__  # a record or an error: its fields or its cause
        return
    public = [value, *(each for key, each in vars(value).items() if not key.startswith("_") and callable(each))]
    for each in public:
        assert ">>>" in (getattr(each, "__doc__", "") or ""), each
