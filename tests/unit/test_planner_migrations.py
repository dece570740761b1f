"""Databases of every released schema version, made by the code of then, are taken over whole, or stay as they were."""

import errno
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from test_planner_store import OF_VERSION_1, OF_VERSION_3, OF_VERSION_4, OF_VERSION_6, OF_VERSION_7

from perseus_dist.planner.job.facts.fact import Fact
from perseus_dist.planner.job.facts.plans import TableMade
from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.planner.lifecycle.lifecycle import Phase, restore
from perseus_dist.planner.store.migrations import SCHEMA_VERSION
from perseus_dist.planner.store.store import Store

DATA = Path(__file__).parent / "data"
EXPECTED: dict[int, dict[str, tuple[Fact, ...]]] = {
    1: {"every-kind": OF_VERSION_1},
    2: {"first": OF_VERSION_3},  # 0.1.0's: by its first commit, in a database of version 1 that it took over
    3: {"third": OF_VERSION_3},  # in a database of version 2 that was taken over
    4: {"fourth": OF_VERSION_4},  # likewise, of version 3
    5: {"fifth": OF_VERSION_4},  # likewise, of version 4
    6: {"sixth": OF_VERSION_6},  # likewise, of version 5
    7: {"seventh": OF_VERSION_7},  # likewise, of version 6
    8: {"eighth": OF_VERSION_7},  # likewise, of version 7
    9: {"ninth": OF_VERSION_7},  # likewise, of version 8
}
"""Each version's jobs with a fact of every kind; all have one under its plan besides."""


def stored(version: int, path: Path) -> None:
    path.touch(mode=0o600)
    with closing(sqlite3.connect(path)) as database:
        database.executescript((DATA / f"planner_v{version}.sql").read_text())


def version_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as database:
        return int(database.execute("PRAGMA user_version").fetchone()[0])


def test_every_version_has_a_database() -> None:
    assert sorted(EXPECTED) == [*range(1, SCHEMA_VERSION)]


@pytest.mark.parametrize("version", EXPECTED)
def test_jobs_of_older_databases_are_there(version: int, tmp_path: Path) -> None:
    path = tmp_path / "planner.sqlite"
    stored(version, path)
    for _ in range(2):
        store = Store(path)
        loaded = store.load()
        for job_id, facts in EXPECTED[version].items():
            assert loaded[job_id] == list(facts)
        job = restore("job", loaded["job"], Policy())
        assert (job.phase, job.plan and job.plan.tables) == (Phase.ENFORCING, (b"table 0", b"table 1"))
        store.close()
    assert version_of(path) == SCHEMA_VERSION
    before = path.with_name(f"planner.sqlite.version-{version}")
    assert version_of(before) == version, "for the perseus-dist of before"
    assert before.stat().st_mode & 0o077 == 0


def test_a_table_of_0_1_0_has_its_transfers(tmp_path: Path) -> None:
    path = tmp_path / "planner.sqlite"
    stored(2, path)
    store = Store(path)
    (table,) = (fact for fact in store.load()["last"] if isinstance(fact, TableMade))
    store.close()
    assert (table.is_first, len(table.snapshots)) == (True, 2)


KILLED_IN_SQL = """
import os, sqlite3, sys
from pathlib import Path
from perseus_dist.planner.store import migrations
from perseus_dist.planner.store.store import Store

class Killing(sqlite3.Connection):
    num = 0
    def execute(self, *arguments):
        result = super().execute(*arguments)
        Killing.num += 1
        if Killing.num == int(sys.argv[2]):
            os.kill(os.getpid(), 9)
        return result

connect = sqlite3.connect
sqlite3.connect = lambda *arguments, **named: connect(*arguments, **{**named, "factory": Killing})
Store(Path(sys.argv[1])).close()
"""


@pytest.mark.stress
@pytest.mark.parametrize("version", EXPECTED)
def test_killed_after_any_statement_the_database_is_the_old_or_the_new_one(version: int, tmp_path: Path) -> None:
    returned = -9
    number = 0
    while returned == -9:
        number += 1
        path = tmp_path / str(number) / "planner.sqlite"
        path.parent.mkdir()
        stored(version, path)
        returned = subprocess.run([sys.executable, "-c", KILLED_IN_SQL, str(path), str(number)], check=False).returncode
        if returned == -9:
            assert version_of(path) in {version, SCHEMA_VERSION}
        store = Store(path)
        assert {name: store.load()[name] for name in EXPECTED[version]} == {
            name: list(facts) for name, facts in EXPECTED[version].items()
        }
        store.close()
        assert not list(path.parent.glob("*damaged*"))
    assert returned == 0
    assert number > 10


@pytest.mark.parametrize("fails_at", ["migrate", "copy"])
def test_a_migration_that_fails_leaves_the_old_database(
    fails_at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "planner.sqlite"
    stored(2, path)

    def killed(*_arguments: object) -> None:
        raise SystemExit

    def full(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        if fails_at == "migrate":
            patch.setattr("perseus_dist.planner.store.migrations._write_version", killed)
            with pytest.raises(SystemExit):
                Store(path)
            assert version_of(path) == 2
        else:
            patch.setattr("pathlib.Path.replace", full)
            Store(path).close()
            assert "no copy is kept of schema version 2" in caplog.text
    store = Store(path)
    assert store.load()["first"] == list(OF_VERSION_3)
    store.close()
    assert version_of(path) == SCHEMA_VERSION
