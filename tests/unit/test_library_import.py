"""What ``import perseus_dist`` imports, and that its names are those of the type stub."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import perseus_dist

HEAVY = {"numpy", "networkx", "matplotlib", "rich", "scipy", "grpc", "torch"}


def imported_by(code: str) -> set[str]:
    """The modules that a fresh interpreter has after the code and not before."""
    script = f"import sys; before = set(sys.modules)\n{code}\nprint(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return set(done.stdout.split())


def test_importing_the_package_imports_nothing_but_itself() -> None:
    modules = imported_by("import perseus_dist")
    installed = {name for name in modules if name.split(".")[0] not in sys.stdlib_module_names}
    assert {name for name in installed if not name.startswith("_editable")} == {"perseus_dist"}
    assert "importlib.metadata" not in modules  # 40 ms, for `__version__` alone


def test_the_hook_of_trainers_needs_nothing_of_the_face() -> None:
    modules = imported_by("import perseus_dist, perseus_dist.hooks; dir(perseus_dist); perseus_dist.__all__")
    assert "perseus_dist.hooks" in modules
    assert not {name for name in modules if name.split(".")[0] in HEAVY or name.startswith("perseus_dist.library")}


def test_an_agent_needs_no_numpy() -> None:
    """It would be 9 MB of each rank, and 0.1 s of its start."""
    modules = imported_by(
        "import perseus_dist.agent.process.process, perseus_dist.agent.link.link, perseus_dist.agent.link.job_watch, "
        "perseus_dist.agent.process.job_record"
    )
    assert "perseus_dist.agent.link.job_watch" in modules
    assert not modules & {"numpy", "networkx", "rich"}


@pytest.mark.parametrize("line", [["target", "gpt", "--t-min"], ["jobs"], ["watch", "gpt"], ["doctor", "--json"]])
def test_commands_that_ask_a_planner_need_no_numpy(line: list[str]) -> None:
    """It would be half of their processor time."""
    run = f"from contextlib import redirect_stdout\nwith redirect_stdout(sys.stderr): code = main({line!r})"
    modules = imported_by(f"from perseus_dist.cli import main\n{run}")
    assert "perseus_dist.cli.jobs.planner_client" in modules
    assert not modules & {"numpy", "networkx"}


@pytest.mark.parametrize(
    ("use", "wanted", "unwanted"),
    [
        ("perseus_dist.PerseusError", set(), HEAVY),
        ("perseus_dist.__version__", set(), HEAVY),
        ("perseus_dist.Schedule", {"numpy"}, {"matplotlib", "networkx"}),
        ("perseus_dist.plan", {"numpy"}, {"matplotlib", "networkx"}),
    ],
)
def test_a_name_imports_what_it_needs(use: str, wanted: set[str], unwanted: set[str]) -> None:
    packages = {name.split(".")[0] for name in imported_by(f"import perseus_dist; {use}")}
    assert wanted <= packages
    assert not unwanted & packages


def test_the_stub_has_the_same_names_from_the_same_modules() -> None:
    stub = ast.parse((Path(perseus_dist.__file__).parent / "__init__.pyi").read_text())
    names = {
        alias.name: f"{line.module}.{alias.name}"
        for line in stub.body
        if isinstance(line, ast.ImportFrom)
        for alias in line.names
    }
    assert set(names) | {"__version__"} == set(perseus_dist.__all__)
    for name, place in names.items():
        value = getattr(perseus_dist, name)
        assert f"{value.__module__}.{value.__name__}" == place


def test_names_are_listed_and_unknown_ones_refused() -> None:
    assert set(perseus_dist.__all__) <= set(dir(perseus_dist))
    assert perseus_dist.plan is perseus_dist.plan
    with pytest.raises(AttributeError, match="module 'perseus_dist' has no attribute 'frontier_of'"):
        perseus_dist.frontier_of  # type: ignore[attr-defined]  # noqa: B018
