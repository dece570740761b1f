"""``launch/setup`` where it cannot go on: one line, exit code 2, nothing left behind."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """As much of one as set-up reads before it installs."""
    folder = tmp_path / "ein Ordner äöü"
    shutil.copytree(CHECKOUT / "launch", folder / "launch")
    shutil.copy(CHECKOUT / "constraints.txt", folder)
    (folder / "perseus_dist").mkdir()
    (folder / "perseus_dist" / "__init__.py").touch()
    return folder


def setup(checkout: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["bash", "-c", '. "$1"/launch/setup report; command -v python', "launch", str(checkout)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def interpreter(folder: Path, name: str, script: str) -> str:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_a_python_that_is_too_old(checkout: Path, tmp_path: Path) -> None:
    ran = setup(checkout, PYTHON=interpreter(tmp_path, "python old", "exit 1"))
    assert ran.returncode == 2
    (line,) = ran.stderr.splitlines()
    assert line.startswith("launch: no Python 3.11 or newer with venv and headers found; install one")
    assert not (checkout / ".venv").exists()


def test_a_checkout_that_may_not_be_written(checkout: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    checkout.chmod(0o555)
    ran = setup(checkout)
    checkout.chmod(0o755)
    assert ran.returncode == 2
    (line,) = ran.stderr.splitlines()
    assert line.endswith("cannot be written to, and .venv belongs there; clone it to a folder of your own")


@pytest.mark.parametrize(
    ("broken", "is_new"),
    [
        pytest.param("", False, marks=pytest.mark.stress),
        pytest.param(
            "sed -i 's| -m venv | -m venv --system-site-packages --prompt mine |' .venv/pyvenv.cfg",
            False,
            marks=pytest.mark.stress,
        ),
        pytest.param(
            "ln -s . link; sed -i '/^command/s|/.venv$|/link/.venv|' .venv/pyvenv.cfg", False, marks=pytest.mark.soak
        ),
        pytest.param("rm .venv/bin/python", True, marks=pytest.mark.soak),
        pytest.param("rm -r .venv/lib/python3*/site-packages/pip", True, marks=pytest.mark.soak),
        pytest.param(
            "sed -i 's| -m venv .*| -m venv /elsewhere/.venv|' .venv/pyvenv.cfg", True, marks=pytest.mark.stress
        ),
    ],
)
def test_an_environment_is_made_anew_where_it_cannot_be_used(broken: str, is_new: bool, checkout: Path) -> None:  # noqa: FBT001
    """What comes after, the installation, is stopped: there is no package in this checkout."""
    assert setup(checkout).returncode == 2
    (checkout / ".venv" / "kept").touch()
    if broken:
        subprocess.run(["bash", "-c", broken], cwd=checkout, check=True)
    ran = setup(checkout)
    assert ran.returncode == 2
    assert ran.stderr.splitlines()[-1] == "launch: the installation failed; the reason stands above"
    assert ("making .venv anew: it is incomplete, or was moved here" in ran.stderr) is is_new
    assert (checkout / ".venv" / "kept").exists() is not is_new
