"""The commands of docs/operations.md on backup, restore and upgrade, in the page's order, beside a real planner."""

import os
import re
import sqlite3
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from older_database import write_older_database
from planner_process import planner

from perseus_dist.planner.store.migrations import SCHEMA_VERSION
from perseus_dist.planner.store.state_dir import DATABASE

ROOT = Path(__file__).resolve().parents[2]


SERVICES_FOLDER = "/var/lib/perseus-dist"


def commands(folder: Path) -> list[str]:
    """Those of the page; the service's state is in ``folder``."""
    page = (ROOT / "docs/operations.md").read_text()
    sections = re.search(r"^## Back up and restore\n(.*?)^## (?!Upgrade)", page, flags=re.DOTALL | re.MULTILINE)
    assert sections
    blocks = re.findall(r"^```sh\n(.*?)^```", sections[1], flags=re.DOTALL | re.MULTILINE)
    return [line.replace(SERVICES_FOLDER, str(folder)) for block in blocks for line in block.splitlines()]


@pytest.mark.stress
def test_the_pages_commands_back_up_restore_and_go_back(tmp_path: Path) -> None:
    """A planner of now takes over a database of 0.1.0, which the last command brings back."""
    folder = tmp_path / ".local/state/perseus-dist"
    folder.mkdir(parents=True, mode=0o700)
    write_older_database(folder / DATABASE)
    (tmp_path / "state").symlink_to(folder)  # where the planner of the tests looks
    environ = {name: value for name, value in os.environ.items() if name != "XDG_STATE_HOME"}
    environ |= {"HOME": str(tmp_path), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    told: dict[str, str] = {}
    with ExitStack() as running:
        current = running.enter_context(planner(tmp_path))
        for command in commands(folder):
            if command == "systemctl start perseus-planner":
                current = running.enter_context(planner(tmp_path))
            elif command == "systemctl stop perseus-planner":
                assert current.end() == 0
            else:
                if "version-2" in command:
                    assert current.end() == 0
                ran = subprocess.run(
                    ["bash", "-c", command], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
                )
                assert ran.returncode == 0, ran.stderr
                told[command] = ran.stdout
    assert len(told) == 4
    *_, checked, restored, went_back = told.values()
    assert "3 jobs" in checked
    assert f"schema version {SCHEMA_VERSION} of perseus-dist" in checked
    assert "is kept as" in restored
    assert "schema version 2" in went_back
    with closing(sqlite3.connect(folder / DATABASE)) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (2,)
