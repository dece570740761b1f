"""Backups of rights: beside a planner that runs, and back again."""

from contextlib import closing
from pathlib import Path

import pytest

from perseus_dist.planner.access.access import Access
from perseus_dist.planner.access.access_database import RightsDatabaseError
from perseus_dist.planner.access.auth import Caller
from perseus_dist.planner.access.grants import Role
from perseus_dist.planner.access.rights_backup import back_up_rights, restore_rights

OPERATOR = Caller(token_sha256="", is_operator=True)


def create(access: Access, name: str) -> None:
    access.create(OPERATOR, name=name, role=Role.VIEW, jobs=(), certificate="", valid_for_s=None)


def names(path: Path) -> list[str]:
    with closing(Access("", path)) as access:
        return [grant.name for grant in access.grants()]


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
