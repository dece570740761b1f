"""Slurm's hooks where they are called without Slurm: by a link, and on a node without GPUs."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

LAUNCH = Path(__file__).parents[2] / "launch" / "slurm"


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """A folder with links to hooks that are installed elsewhere, whose command writes down how it was called."""
    installed, links = tmp_path / "installed", tmp_path / "prolog.d"
    shutil.copytree(LAUNCH, installed)
    command = tmp_path / "command"
    command.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/called\n')
    command.chmod(0o755)
    settings = {"DIST": command, "OPT_IN": tmp_path / "jobs", "LOG_FILE": tmp_path / "log", "RECORDS": ""}
    configure(tmp_path, "".join(f"PERSEUS_{name}={value}\n" for name, value in settings.items()))
    links.mkdir()
    for name in ("prolog", "epilog", "task-prolog", "task-epilog"):
        (links / f"50-{name}").symlink_to(f"../installed/{name}")
    return links


def configure(folder: Path, settings: str) -> None:
    with (folder / "installed" / "perseus.conf").open("a") as file:
        file.write(settings)


def call(links: Path, name: str) -> str:
    """What a hook says for a job that asks for Perseus."""
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_COMMENT": "perseus", "SLURM_JOB_WORK_DIR": "/work"}
    environment = {"PATH": os.environ["PATH"], **job}
    ran = subprocess.run([links / f"50-{name}"], env=environment, capture_output=True, text=True, check=True)
    assert ran.stderr == ""
    return ran.stdout


def test_hooks_find_their_settings_by_a_link(linked: Path, tmp_path: Path) -> None:
    assert call(linked, "prolog") == ""
    assert (tmp_path / "jobs" / "7").read_text() == "/work\n"
    assert "export PERSEUS=1\n" in call(linked, "task-prolog")
    assert call(linked, "task-epilog") == call(linked, "epilog") == ""
    assert (tmp_path / "called").read_text() == "doctor\nrelease --all --if-unleased\n"
    assert not (tmp_path / "jobs" / "7").exists()
    assert not (tmp_path / "log").exists()


def test_a_node_without_a_command_is_left_alone(linked: Path, tmp_path: Path) -> None:
    configure(tmp_path, "PERSEUS_DIST=\nPERSEUS_ON_FAILURE=fail\n")
    assert [call(linked, name) for name in ("prolog", "task-prolog", "task-epilog", "epilog")] == [""] * 4
    assert {path.name for path in tmp_path.iterdir()} == {"installed", "prolog.d", "command"}
