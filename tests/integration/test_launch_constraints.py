"""``launch/constraints``: every package that is asked for is pinned at its version, and nothing else is."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As much of a checkout as the script reads, with this environment's packages and the constraints of them."""
    folder = tmp_path_factory.mktemp("made") / "a checkout"
    (folder / "launch").mkdir(parents=True)
    shutil.copy(ROOT / "launch" / "constraints", folder / "launch")
    shutil.copy(ROOT / "pyproject.toml", folder)
    (folder / ".venv" / "bin").mkdir(parents=True)
    python = folder / ".venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    constraints(folder)
    return folder


@pytest.fixture
def checkout(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "a checkout"))


def constraints(checkout: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [checkout / "launch" / "constraints", *options], capture_output=True, text=True, timeout=120, check=False
    )


def test_the_projects_pins_are_all_asked_for() -> None:
    """Of another environment than ``.venv`` the versions may be others."""
    if Path(sys.prefix).resolve() != (ROOT / ".venv").resolve():
        pytest.skip("runs in another environment than .venv")
    ran = constraints(ROOT, "--check")
    assert (ran.returncode, ran.stderr) == (0, "")


def test_what_is_written_passes_the_check(checkout: Path) -> None:
    pins = (checkout / "constraints.txt").read_text().splitlines()
    assert {"numpy", "rich", "pytest", "hypothesis"} <= {pin.partition("==")[0] for pin in pins}
    assert not any(pin.startswith(("pip==", "perseus")) for pin in pins)
    assert constraints(checkout, "--check").returncode == 0


@pytest.mark.parametrize(
    ("edit", "refusal"),
    [
        (lambda text: text + "no-such-package==1.0\n", "pins what nothing asks for: no-such-package==1.0;"),
        (lambda text: text.replace("rich==", "rich==0."), "does not say rich=="),
        (lambda text: "".join(x for x in text.splitlines(keepends=True) if "numpy==" not in x), "does not say numpy=="),
    ],
)
def test_a_pin_that_is_stale_or_missing_is_named(checkout: Path, edit: object, refusal: str) -> None:
    assert callable(edit)
    file = checkout / "constraints.txt"
    file.write_text(edit(file.read_text()))
    ran = constraints(checkout, "--check")
    assert ran.returncode == 1
    (line,) = ran.stderr.splitlines()
    assert line.startswith(f"constraints.txt {refusal}")
    assert line.endswith("run launch/constraints and commit the result")


def test_a_package_that_is_asked_for_no_more_is_named_though_installed(checkout: Path) -> None:
    project = checkout / "pyproject.toml"
    text = project.read_text()
    assert '  "trustme>=1.1",\n' in text
    project.write_text(text.replace('  "trustme>=1.1",\n', ""))
    ran = constraints(checkout, "--check")
    assert ran.returncode == 1
    assert ran.stderr.startswith("constraints.txt pins what nothing asks for: trustme==")
    constraints(checkout)
    assert "trustme==" not in (checkout / "constraints.txt").read_text()
