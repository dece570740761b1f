"""Backups of rights: beside a planner that runs, and back again."""

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from test_planner_store import FACTS
from waiting import PATIENCE_S

from perseus_dist.cli import main
from perseus_dist.planner.access.access import Access
from perseus_dist.planner.access.access_database import RightsDatabaseError
from perseus_dist.planner.access.auth import Caller
from perseus_dist.planner.access.grants import Role
from perseus_dist.planner.access.rights_backup import prepared_rights_backup, prepared_rights_restore
from perseus_dist.planner.store.state_dir import DATABASE, RIGHTS
from perseus_dist.planner.store.store import Store

OPERATOR = Caller(token_sha256="", is_operator=True)


def create(access: Access, name: str) -> None:
    grant, _ = access.draft(OPERATOR, name=name, role=Role.VIEW, jobs=(), certificate="", valid_for_s=None)
    access.add(OPERATOR, grant)


def names(path: Path) -> list[str]:
    with closing(Access("", path)) as access:
        return [grant.name for grant in access.grants()]


def back_up_rights(database: Path, backup: Path) -> Path | None:
    with prepared_rights_backup(database, backup) as (rights, put):
        put()
    return None if rights is None else rights.path


def restore_rights(backup: Path, database: Path) -> Path | None:
    with prepared_rights_restore(backup, database) as (rights, put):
        put()
    return None if rights is None else rights.path


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    """Jobs and rights of a planner that has ended."""
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    Store(folder / DATABASE).close()
    with closing(Access("", folder / RIGHTS)) as access:
        create(access, "first")
    return folder


def state(*words: str | Path, of: Path) -> int:
    return main(["state", *map(str, words), "--state-dir", str(of)])


def damage(database: Path) -> None:
    """Leave the first page, and make the others unreadable."""
    content = database.read_bytes()
    database.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))


def files(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_ino for path in folder.iterdir()}


def test_rights_of_a_running_planner_are_copied_and_come_back(tmp_path: Path) -> None:
    database, backup = tmp_path / "access.sqlite", tmp_path / "backup.sqlite"
    with closing(Access("", database)) as access:
        create(access, "first")
        copy = back_up_rights(database, backup)
        create(access, "second")
    assert copy == tmp_path / "backup.sqlite.access"
    assert copy.stat().st_mode & 0o777 == 0o600
    assert names(database) == ["first", "second"]
    assert restore_rights(backup, database) == copy
    assert names(database) == ["first"]
    (aside,) = tmp_path.glob("access.sqlite.replaced-*")
    assert names(aside) == ["first", "second"]
    assert back_up_rights(database, backup) == copy  # once more, in the place of the first
    assert not list(tmp_path.glob(".*.tmp"))


def test_without_rights_nothing_changes(tmp_path: Path) -> None:
    database, backup = tmp_path / "access.sqlite", tmp_path / "backup.sqlite"
    (tmp_path / "backup.sqlite.access").write_text("of an earlier backup")
    assert back_up_rights(database, backup) is None
    assert restore_rights(backup, database) is None
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_copy_is_refused_and_replaces_nothing(tmp_path: Path) -> None:
    database, backup = tmp_path / "access.sqlite", tmp_path / "backup.sqlite"
    with closing(Access("", database)) as access:
        create(access, "kept")
    for damage in (b"", b"no database" * 500, database.read_bytes()[:5000]):
        (tmp_path / "backup.sqlite.access").write_bytes(damage)
        with pytest.raises(RightsDatabaseError, match="cannot be copied"):
            restore_rights(backup, database)
        assert names(database) == ["kept"]
    assert not list(tmp_path.glob(".*.tmp"))


def test_a_restore_of_damaged_rights_leaves_the_jobs_as_well(
    state_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert state("backup", tmp_path / "x", of=state_dir) == 0
    damage(tmp_path / "x.access")
    before = files(state_dir)
    capsys.readouterr()
    assert state("restore", tmp_path / "x", of=state_dir) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert files(state_dir) == before


def test_a_backup_of_damaged_rights_leaves_the_backup_of_before(
    state_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert state("backup", tmp_path / "x", of=state_dir) == 0
    before = files(tmp_path)
    damage(state_dir / RIGHTS)
    capsys.readouterr()
    assert state("backup", tmp_path / "x", of=state_dir) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert files(tmp_path) == before


def test_a_restore_lasts_where_a_planner_was_killed_while_it_replaced_what_was_damaged(
    state_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The next planner ended that, and so had what was salvaged in the place of the backup."""
    backup = tmp_path / "b.sqlite"
    with closing(Store(state_dir / DATABASE)) as store:
        store.commit("first", FACTS).result(PATIENCE_S)
    assert state("backup", backup, of=state_dir) == 0
    for name in (DATABASE, RIGHTS):
        (state_dir / name).unlink()
    Store(state_dir / DATABASE).close()
    with closing(Access("", state_dir / RIGHTS)) as access:
        create(access, "salvaged")
    for name in (DATABASE, RIGHTS):
        (state_dir / name).rename(state_dir / f"{name}.whole")
        (state_dir / name).write_bytes(b"damaged" * 1024)
    assert state("restore", backup, of=state_dir) == 0
    assert capsys.readouterr().err == ""
    with closing(Store(state_dir / DATABASE)) as store:
        assert list(store.load()) == ["first"]
    assert names(state_dir / RIGHTS) == ["first"]
    (kept,) = state_dir.glob(f"{RIGHTS}.replaced-*")
    assert names(kept) == ["salvaged"]


def test_a_check_reads_the_rights_whole(state_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert state("backup", tmp_path / "x", of=state_dir) == 0
    for words, rights in (("check",), state_dir / RIGHTS), (("check", tmp_path / "x"), tmp_path / "x.access"):
        capsys.readouterr()
        assert state(*words, of=state_dir) == 0
        assert f"1 named token and 1 audit record, verified: {rights}" in capsys.readouterr().out
        damage(rights)
        assert state(*words, of=state_dir) == 2
        told = capsys.readouterr()
        assert not told.out
        assert told.err.count("\n") == 1
        assert str(rights) in told.err


def test_a_token_that_was_revoked_since_the_backup_stays_revoked(
    state_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(Access("", state_dir / RIGHTS)) as access:
        create(access, "second")
        create(access, "before")
        access.revoke(OPERATOR, "before")
    assert state("backup", tmp_path / "x", of=state_dir) == 0
    with closing(Access("", state_dir / RIGHTS)) as access:
        create(access, "young")
        create(access, "lost")
        access.revoke(OPERATOR, "first")
        access.revoke(OPERATOR, "young")
    capsys.readouterr()
    assert state("restore", tmp_path / "x", of=state_dir) == 0
    assert "of tokens revoked since the backup, 2 stay revoked" in capsys.readouterr().out
    with closing(Access("", state_dir / RIGHTS)) as access:
        revoked = {grant.name: grant.revoked_s is not None for grant in access.grants()}
    assert revoked == {"before": True, "first": True, "second": False, "young": True}


def test_a_token_of_the_same_name_and_another_creation_is_another(
    state_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert state("backup", tmp_path / "x", of=state_dir) == 0
    (state_dir / RIGHTS).unlink()
    with closing(Access("", state_dir / RIGHTS)) as access:
        create(access, "first")
        access.revoke(OPERATOR, "first")
    assert state("restore", tmp_path / "x", of=state_dir) == 0
    assert "revoked" not in capsys.readouterr().out
    with closing(Access("", state_dir / RIGHTS)) as access:
        assert [grant.revoked_s for grant in access.grants()] == [None]


@pytest.mark.parametrize("spoil", [damage, Path.unlink])
def test_a_restore_says_that_revocations_are_not_known(
    state_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], spoil: Callable[[Path], None]
) -> None:
    assert state("backup", tmp_path / "x", of=state_dir) == 0
    spoil(state_dir / RIGHTS)
    capsys.readouterr()
    assert state("restore", tmp_path / "x", of=state_dir) == 0
    assert "revocations since the backup are not known" in capsys.readouterr().out
    assert names(state_dir / RIGHTS) == ["first"]


def test_rights_of_a_planner_whose_jobs_are_elsewhere_are_backed_up_alone(
    state_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert state("backup", tmp_path / "with-jobs", of=state_dir) == 0
    (state_dir / DATABASE).unlink()
    assert state("backup", tmp_path / "x", of=state_dir) == 0
    assert not (tmp_path / "x").exists()
    assert names(tmp_path / "x.access") == ["first"]
    assert state("check", of=state_dir) == state("check", tmp_path / "x", of=state_dir) == 0
    assert "no jobs; 1 named token" in capsys.readouterr().out
    with closing(Access("", state_dir / RIGHTS)) as access:
        create(access, "second")
        access.revoke(OPERATOR, "first")
    assert state("restore", tmp_path / "x", "--json", of=state_dir) == 0
    assert json.loads(capsys.readouterr().out)["kept_revoked"] == 1
    assert names(state_dir / RIGHTS) == ["first"]
    assert not (state_dir / DATABASE).exists()
    before = files(tmp_path)
    assert state("backup", tmp_path / "with-jobs", of=state_dir) == 2  # older jobs beside new rights
    damage(tmp_path / "x.access")
    rights = files(state_dir)
    assert state("restore", tmp_path / "x", of=state_dir) == 2
    assert capsys.readouterr().err.count("\n") == 2
    assert (files(tmp_path), files(state_dir)) == (before, rights)


@pytest.mark.parametrize("command", ["backup", "restore", "check"])
def test_a_name_that_no_file_can_have_is_refused_in_one_line(
    command: str, state_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, folder in (("x" * 300, state_dir), ("x" * 250, state_dir), ("x", tmp_path / ("x" * 300))):
        before = files(state_dir)
        assert state(command, tmp_path / name, of=folder) == 2
        assert capsys.readouterr().err.count("\n") == 1
        assert files(state_dir) == before
