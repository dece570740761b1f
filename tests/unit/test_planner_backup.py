"""Backups: of a store that is written to meanwhile, verified, private, and put back where no planner is in the way."""

import json
import os
import random
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from planner_process import planner
from test_planner_store import FACTS, OWN_FACTS
from waiting import PATIENCE_S

from perseus_dist.cli import main
from perseus_dist.cli.node.doctor.backup import inspect_backup
from perseus_dist.cli.settings.effective import Setting
from perseus_dist.messages.finding import Level
from perseus_dist.messages.from_agent import ProfileSamples
from perseus_dist.planner.job.facts.decisions import SwitchDecided
from perseus_dist.planner.job.facts.sweeps import SamplesReceived
from perseus_dist.planner.store.backup import BackupError, back_up, inspect, restore_backup
from perseus_dist.planner.store.database import StoreError
from perseus_dist.planner.store.last_backup import last_backup
from perseus_dist.planner.store.sqlite_facts import SqliteFacts
from perseus_dist.planner.store.state_dir import DATABASE
from perseus_dist.planner.store.store import NO_JOB, Store

JOBS = {"a": list(FACTS), "b": list(FACTS)}


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    store = Store(folder / DATABASE)
    for job_id, facts in JOBS.items():
        store.commit(job_id, facts).result(PATIENCE_S)
    store.close()
    return folder


def loaded(folder: Path) -> dict[str, list[object]]:
    store = Store(folder / DATABASE)
    store.close()
    return {job_id: list(facts) for job_id, facts in store.load().items()}


def test_what_a_killed_backup_has_left_is_in_no_ones_way(state_dir: Path, tmp_path: Path) -> None:
    """Also of a process of the same number, as each backup in a container may have."""
    left = tmp_path / f".b.sqlite.{os.getpid()}.tmp"
    left.write_bytes(b"half of it")
    back_up(state_dir, tmp_path / "b.sqlite")
    assert inspect(tmp_path / "b.sqlite").jobs == JOBS
    assert not left.exists()


def test_a_backup_replaces_backups_alone(state_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither devices and pipes, nor the file beside it that would hold the rights; a link's target is replaced."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "null").symlink_to("/dev/null")
    (tmp_path / "letter.access").write_text("Dear Ada")
    (tmp_path / "linked.access").symlink_to("letter.access")
    (tmp_path / "piped.access").symlink_to("pipe")
    before = sorted(path.name for path in tmp_path.iterdir())
    for name in ("pipe", "null", "letter", "linked", "piped"):
        assert main(["state", "backup", str(tmp_path / name), "--state-dir", str(state_dir)]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert (tmp_path / "letter.access").read_text() == "Dear Ada"
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    (tmp_path / "link").symlink_to("backup.sqlite")
    for _ in range(2):
        assert main(["state", "backup", str(tmp_path / "link"), "--state-dir", str(state_dir)]) == 0
        assert (tmp_path / "link").is_symlink()
    assert inspect(tmp_path / "backup.sqlite").jobs == JOBS


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["backup", "file/b.sqlite"], "cannot be looked at (Not a directory); name a file in a folder of yours"),
        (["check", "none.sqlite"], "cannot be read (No such file or directory); name a backup that you may read"),
        (["restore", "none.sqlite"], "cannot be read (No such file or directory); name a backup that you may read"),
    ],
)
def test_a_file_that_cannot_be_reached_is_told_with_a_remedy(
    words: list[str], remedy: str, state_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert main(["state", words[0], str(tmp_path / words[1]), "--state-dir", str(state_dir)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert remedy in line


def test_what_killed_backups_have_left_goes_with_the_next_one(state_dir: Path, tmp_path: Path) -> None:
    left = [tmp_path / f".backup{suffix}.4194999.tmp{more}" for suffix in ("", ".access") for more in ("", "-journal")]
    others = [tmp_path / name for name in (f".backup.{os.getppid()}.tmp", ".backup.x.tmp", ".other.4194999.tmp")]
    for path in (*left, *others):
        path.write_text("half")
    assert main(["state", "backup", str(tmp_path / "backup"), "--state-dir", str(state_dir)]) == 0
    assert [path for path in left if path.exists()] == []
    assert [path.read_text() for path in others] == ["half"] * 3


def test_the_age_of_the_newest_backup_is_known(
    state_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it cannot be written down: the backup stands."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    monkeypatch.setattr("perseus_dist.cli.node.doctor.backup._OF_THE_UNIT", tmp_path / "service")
    settings = [Setting(section="planner", key="state-dir", dest="state_dir", value=state_dir)]
    assert list(inspect_backup([])) == []
    assert [finding.level for finding in inspect_backup(settings)] == [Level.WARN]
    command = ["state", "backup", str(tmp_path / "backup"), "--state-dir", str(state_dir)]
    assert main(command) == 0
    found = last_backup(state_dir)
    assert found is not None
    assert (found.file, abs(found.time_s - time.time()) < 60) == (str(tmp_path / "backup"), True)
    assert [finding.level for finding in inspect_backup(settings)] == [Level.OK]
    note = state_dir / "last-backup"
    assert stat.S_IMODE(note.stat().st_mode) == 0o644
    for text in ("", "{}", "[]", '{"time_s": NaN, "file": "x"}', '{"time_s": 1, "file": "x"}'):
        note.write_text(text)
        assert [finding.level for finding in inspect_backup(settings)] == [Level.WARN]
    note.unlink()
    note.mkdir()
    capsys.readouterr()
    assert main(command) == 0
    assert "metrics and 'doctor' do not know of this backup" in capsys.readouterr().err
    assert inspect(tmp_path / "backup").jobs == JOBS


def test_a_backup_comes_back_as_it_was_and_what_was_there_is_kept(state_dir: Path, tmp_path: Path) -> None:
    backup = tmp_path / "backup.sqlite"
    assert back_up(state_dir, backup).jobs == JOBS
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["state", "backup.sqlite"] or len(
        list(tmp_path.iterdir())
    ) == 2
    store = Store(state_dir / DATABASE)
    store.commit("later", FACTS).result(PATIENCE_S)
    store.close()
    contents, aside = restore_backup(backup, state_dir)
    assert contents.jobs == JOBS == loaded(state_dir)
    assert aside is not None
    assert list(inspect(aside).jobs) == ["a", "b", "later"]
    assert {path.stat().st_mode & 0o077 for path in state_dir.iterdir()} == {0}
    _, again = restore_backup(aside, state_dir)
    assert again not in {None, aside}, "in the same second"
    assert list(loaded(state_dir)) == ["a", "b", "later"]


def test_a_backup_of_a_store_in_use_is_the_newest_commit(state_dir: Path, tmp_path: Path) -> None:
    store = Store(state_dir / DATABASE)
    for number in range(3):
        store.commit(f"job {number}", FACTS).result(PATIENCE_S)
        assert list(back_up(state_dir, tmp_path / "backup").jobs) == [
            "a",
            "b",
            *(f"job {one}" for one in range(number + 1)),
        ]
    with pytest.raises(BackupError, match="a planner uses it; end that one first"):
        restore_backup(tmp_path / "backup", state_dir)
    store.close()
    restore_backup(tmp_path / "backup", state_dir)


def test_a_planner_without_a_lock_of_the_folder_is_seen_too(state_dir: Path, tmp_path: Path) -> None:
    """Such as one of 0.1.0, or on a file system that locks no folders."""
    back_up(state_dir, tmp_path / "backup")
    with closing(sqlite3.connect(state_dir / DATABASE, isolation_level=None)) as database:
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
        database.execute("BEGIN EXCLUSIVE")
        database.execute("COMMIT")
        with pytest.raises(BackupError, match="a planner uses it"):
            restore_backup(tmp_path / "backup", state_dir)
        assert list(back_up(state_dir, tmp_path / "backup").jobs) == ["a", "b"]


def test_what_a_killed_planner_left_in_its_journal_is_backed_up(state_dir: Path, tmp_path: Path) -> None:
    store = Store(state_dir / DATABASE)
    store.commit("last", FACTS).result(PATIENCE_S)
    killed = tmp_path / "killed"
    killed.mkdir()
    for suffix in ("", "-wal"):
        (killed / f"{DATABASE}{suffix}").write_bytes((state_dir / f"{DATABASE}{suffix}").read_bytes())
    store.close()
    before = {path.name: path.read_bytes() for path in killed.iterdir()}
    assert list(back_up(killed, tmp_path / "backup").jobs) == ["a", "b", "last"]
    assert {path.name: path.read_bytes() for path in killed.iterdir()} == before
    _, aside = restore_backup(tmp_path / "backup", killed)
    assert aside is not None
    assert list(inspect(aside).jobs) == ["a", "b", "last"] == list(loaded(killed))


def test_backups_while_a_store_writes_are_whole_commits_in_order(tmp_path: Path) -> None:
    """With journals that begin anew all the time, which is where a copy of files could be of two states."""
    folder = tmp_path / "state"
    folder.mkdir()
    store = Store(folder / DATABASE)
    assert isinstance(store._database, SqliteFacts)
    store._database.connection.execute("PRAGMA wal_autocheckpoint = 20")
    store.commit("job", FACTS).result(PATIENCE_S)
    ending = threading.Event()
    chance = random.Random(1)

    def write() -> None:
        number = 0
        while not ending.is_set():
            number += 1
            samples = SamplesReceived(
                rank=0,
                pp_rank=0,
                dp_rank=0,
                tp_rank=0,
                incarnation=1,
                series=1,
                clock_mhz=1400,
                samples=ProfileSamples(sequence=number, sweep_id=1, step=0, samples=()),
            )
            reason = "x" * chance.randrange(20_000)
            switch = SwitchDecided(
                table_revision=1, switch_revision=number, effective_iteration=number, points=(0,), reason=reason
            )
            store.commit("writing", [samples, switch]).result(PATIENCE_S)

    writer = threading.Thread(target=write)
    writer.start()
    seen = 0
    try:
        for _ in range(15):
            contents = back_up(folder, tmp_path / "backup")
            facts = contents.jobs.get("writing", [])
            samples = [fact.samples.sequence for fact in facts if isinstance(fact, SamplesReceived)]
            assert samples == list(range(1, len(samples) + 1))
            assert [fact.switch_revision for fact in facts if isinstance(fact, SwitchDecided)] == samples[-1:]
            assert len(samples) >= seen
            seen = len(samples)
    finally:
        ending.set()
        writer.join()
        store.close()
    assert seen > 0


@pytest.mark.parametrize("at", [0, 40, 4096, -300])
def test_a_damaged_backup_replaces_nothing(at: int, state_dir: Path, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    back_up(state_dir, backup)
    data = bytearray(backup.read_bytes())
    at %= len(data)
    data[at : at + 200] = bytes(200)
    backup.write_bytes(data)
    before = (state_dir / DATABASE).read_bytes()
    with pytest.raises((BackupError, StoreError)) as refused:
        restore_backup(backup, state_dir)
    assert str(backup) in str(refused.value)
    assert (state_dir / DATABASE).read_bytes() == before
    assert [path.name for path in state_dir.iterdir()] == [DATABASE]


def test_a_damaged_database_is_not_backed_up_and_can_be_replaced(state_dir: Path, tmp_path: Path) -> None:
    backup, other = tmp_path / "backup", tmp_path / "other"
    back_up(state_dir, backup)
    damaged = b"\xa5" * 20_000
    (state_dir / DATABASE).write_bytes(damaged)
    with pytest.raises(BackupError, match="rescues what can be read"):
        back_up(state_dir, other)
    assert not other.exists()
    _, aside = restore_backup(backup, state_dir)
    assert aside is not None
    assert aside.read_bytes() == damaged
    assert loaded(state_dir) == JOBS


def test_restored_on_a_new_machine(state_dir: Path, tmp_path: Path) -> None:
    back_up(state_dir, tmp_path / "backup")
    fresh = tmp_path / "deep" / "state"
    assert restore_backup(tmp_path / "backup", fresh)[1] is None
    assert stat.S_IMODE(fresh.stat().st_mode) == 0o700
    assert loaded(fresh) == JOBS


def other_file(folder: Path) -> Path:
    (folder / "thesis.txt").write_text("years of work")
    return folder / "thesis.txt"


@pytest.mark.parametrize(
    ("name_target", "message"),
    [
        (other_file, "is there and is no backup"),
        (lambda folder: folder / "state" / DATABASE, "is there and is no backup"),
        (lambda folder: folder, "is a folder"),
        (lambda folder: folder / "none" / "backup", "its folder is missing"),
        (lambda _: Path("/proc/backup"), "No such file|Permission|no backup was written"),
    ],
)
def test_no_other_file_is_written(
    name_target: Callable[[Path], Path], message: str, state_dir: Path, tmp_path: Path
) -> None:
    before = (state_dir / DATABASE).read_bytes()
    with pytest.raises(BackupError, match=message):
        back_up(state_dir, name_target(tmp_path))
    assert (state_dir / DATABASE).read_bytes() == before
    assert not list(tmp_path.glob("thesis.txt")) or (tmp_path / "thesis.txt").read_text() == "years of work"


def test_the_command_tells_in_one_line_and_in_json(
    state_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--state-dir", str(state_dir)]
    backup = str(tmp_path / "backup")
    assert main(["state", "backup", backup, *words]) == 0
    assert f"backup of 2 jobs, {2 * len(FACTS)} facts" in capsys.readouterr().out
    assert main(["state", "check", "--json", *words]) == 0
    assert json.loads(capsys.readouterr().out)["jobs"] == {"a": len(FACTS), "b": len(FACTS)}
    assert main(["state", "check", backup]) == 0
    store = Store(state_dir / DATABASE)
    store.commit(NO_JOB, OWN_FACTS).result(PATIENCE_S)
    store.close()
    capsys.readouterr()
    assert main(["state", "check", *words]) == 0
    assert f"2 jobs, {2 * len(FACTS) + len(OWN_FACTS)} facts" in capsys.readouterr().out
    assert main(["state", "restore", backup, *words, "--json"]) == 0
    assert Path(json.loads(capsys.readouterr().out.splitlines()[-1])["kept"]).exists()
    assert main(["state", "check", str(tmp_path / "missing")]) == 2
    assert main(["state", "backup", backup, "--state-dir", str(tmp_path / "missing")]) == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 2
    assert "name a planner's state folder with --state-dir" in told[1]


@pytest.mark.stress
def test_a_planner_that_runs_is_backed_up_and_not_restored_over(tmp_path: Path) -> None:
    with planner(tmp_path) as running:
        for words, code in ((("backup", "backup"), 0), (("check",), 0), (("restore", "backup"), 2)):
            command = [sys.executable, "-m", "perseus_dist", "state", *words, "--state-dir", str(tmp_path / "state")]
            ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
            assert ran.returncode == code, ran.stderr
        assert "a planner uses it" in ran.stderr
        assert running.end() == 0
    assert main(["state", "restore", str(tmp_path / "backup"), "--state-dir", str(tmp_path / "state")]) == 0
    with planner(tmp_path) as running:
        assert running.end() == 0


@pytest.mark.stress
@pytest.mark.skipif(os.geteuid() != 0, reason="restores for another user")
def test_root_restores_for_the_planners_user(state_dir: Path, tmp_path: Path) -> None:
    back_up(state_dir, tmp_path / "backup")
    os.chown(state_dir, 65_534, 65_534)
    restore_backup(tmp_path / "backup", state_dir)
    found = (state_dir / DATABASE).stat()
    assert (found.st_uid, found.st_gid) == (65_534, 65_534)
