"""Named tokens, roles and the audit record: what counts when, what is kept, and what cannot be changed."""

import asyncio
import os
import shutil
import sqlite3
import stat
from collections.abc import Coroutine, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perseus_dist.planner.access.access import Access
from perseus_dist.planner.access.access_database import RightsDatabaseError
from perseus_dist.planner.access.audit import AuditRecord, patterns_text
from perseus_dist.planner.access.auth import Caller
from perseus_dist.planner.access.grants import Role
from perseus_dist.planner.access.refusal import RefusalError, not_covered
from perseus_dist.planner.access.rights_rows import DONE, SCHEMA_VERSION, salvage_rights, write_grant
from perseus_dist.planner.runtime.policy_calls import check_rights
from perseus_dist.rpc.connection import authorization

OPERATOR = Caller(token_sha256="", is_operator=True, peer="ipv4:127.0.0.1:1")
SOMEONE = "0" * 64
OTHERS_JOB = "other"


@dataclass
class Clock:
    now_s: float = 1e9

    def __call__(self) -> float:
        return self.now_s


@contextmanager
def opened(path: Path | None = None, clock: Clock | None = None) -> Iterator[Access]:
    with closing(Access("operator", path, clock or Clock())) as access:
        yield access


def create(
    access: Access,
    name: str,
    role: Role,
    *,
    jobs: tuple[str, ...] = (),
    certificate: str = "",
    valid_for_s: float | None = None,
) -> str:
    grant, token = access.draft(
        OPERATOR, name=name, role=role, jobs=jobs, certificate=certificate, valid_for_s=valid_for_s
    )
    access.add(OPERATOR, grant)
    return token


def records(access: Access, after_id: int = 0, since_s: float = 0.0, job: str = "") -> list[AuditRecord]:
    return access.audit.read(after_id=after_id, since_s=since_s, job=job, limit=1000)


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("needed", Role)
def test_a_role_includes_those_before_it_on_the_jobs_it_names(role: Role, needed: Role) -> None:
    with opened() as access:
        token = create(access, "t", role, jobs=("llama-*", "gpt?"))
        caller = access.caller(authorization(token))
        for job, is_named in (("llama-7b", True), ("gpt2", True), ("gpt", False), ("my-llama-7b", False)):
            assert caller.may(needed, job, SOMEONE) == (is_named and role >= needed)
        assert caller.identity == "token t"
        assert not caller.is_operator


def test_a_policy_that_is_refused_says_for_which_jobs_the_caller_may_set_one() -> None:
    with opened() as access:
        team = access.caller(authorization(create(access, "team", Role.OPERATE, jobs=("llama-*", "gpt"))))
        viewer = access.caller(authorization(create(access, "viewer", Role.VIEW)))
        check_rights(team, ("llama-*",))
        with pytest.raises(RefusalError) as refused:
            check_rights(team, ())
        needed = "a policy for all jobs takes the role operate for each"
        assert refused.value.reason == (
            f"token team may not do this: {needed}, and it has that for gpt, llama-*; "
            "name jobs among those, or ask an administrator"
        )
        assert refused.value.job_id == "*"
        with pytest.raises(RefusalError, match="a policy for bloom, gpt takes the role operate for each, and it"):
            check_rights(team, ("bloom", "gpt"))
        with pytest.raises(RefusalError, match=f"token viewer may not do this: {needed}; ask an administrator$"):
            check_rights(viewer, ())


def test_jobs_are_started_with_operate_and_with_tokens_of_ones_own() -> None:
    with opened() as access:
        view = access.caller(authorization(create(access, "v", Role.VIEW)))
        operate = access.caller(authorization(create(access, "o", Role.OPERATE, jobs=("llama*",))))
        assert not view.may_start("llama")
        assert operate.may_start("llama")
        assert not operate.may_start("gpt")
        assert access.caller(authorization("one of my own")).may_start("gpt")
        assert access.caller(()).may_start("gpt")


def test_a_token_ends_when_it_expires_or_is_revoked() -> None:
    clock = Clock()
    with opened(clock=clock) as access:
        token = create(access, "t", Role.VIEW, valid_for_s=60.0)
        clock.now_s += 59.9
        assert access.caller(authorization(token)).may(Role.VIEW, OTHERS_JOB, SOMEONE)
        clock.now_s += 0.1
        with pytest.raises(RefusalError, match="token t has expired"):
            access.caller(authorization(token))
        other = create(access, "u", Role.ADMIN)
        access.revoke(OPERATOR, "u")
        with pytest.raises(RefusalError, match="token u was revoked"):
            access.caller(authorization(other))


def test_a_certificates_right_needs_no_token_and_adds_to_one() -> None:
    with opened() as access:
        create(access, "login", Role.VIEW, certificate="login1.example")
        caller = access.caller((), ["node", "login1.example"])
        assert (caller.identity, caller.may(Role.VIEW, OTHERS_JOB, SOMEONE)) == ("certificate login1.example", True)
        assert not caller.may(Role.OPERATE, OTHERS_JOB, SOMEONE)
        assert access.caller((), ["login2.example"]).grants == ()
        token = create(access, "t", Role.OPERATE)
        assert access.caller(authorization(token), ["login1.example"]).may(Role.OPERATE, OTHERS_JOB, SOMEONE)
        access.revoke(OPERATOR, "login")
        assert access.caller((), ["login1.example"]).grants == ()


def test_rights_outlive_the_planner_and_their_secrets_are_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "access.sqlite"
    with opened(path) as access:
        token = create(access, "t", Role.OPERATE, jobs=("a", "b*"), valid_for_s=9.0)
        create(access, "u", Role.VIEW)
        access.revoke(OPERATOR, "u")
        kept = access.grants()
    assert path.stat().st_mode & 0o777 == 0o600
    assert all(token.encode() not in file.read_bytes() for file in tmp_path.iterdir())
    with opened(path) as access:
        assert access.grants() == kept
        assert access.caller(authorization(token)).may(Role.OPERATE, "b2", SOMEONE)
        assert [record.action for record in records(access)] == ["CreateToken", "CreateToken", "RevokeToken"]


def test_a_name_is_given_once(tmp_path: Path) -> None:
    with opened(tmp_path / "access.sqlite") as access:
        create(access, "t", Role.VIEW)
        with pytest.raises(RefusalError, match="t is in use"):
            create(access, "t", Role.ADMIN)
        first = access.revoke(OPERATOR, "t")
        assert access.revoke(OPERATOR, "t") == first  # once more changes and records nothing
        with pytest.raises(RefusalError, match="t was revoked; choose another name"):
            create(access, "t", Role.VIEW)
        with pytest.raises(RefusalError, match="no token u"):
            access.revoke(OPERATOR, "u")
        assert len(records(access)) == 2


def test_the_record_says_who_what_and_from_where(tmp_path: Path) -> None:
    clock = Clock()
    with opened(tmp_path / "access.sqlite", clock) as access:
        access.audit.done("token ci", "ipv4:10.0.0.1:9", "SetTarget", job="llama", before="t_min", after="slowdown=1.1")
        clock.now_s += 5.0
        access.audit.refused("user 7", "ipv4:127.0.0.1:9", "SetTarget", job="gpt", reason="another user's")
        first, second = records(access)
        assert first == AuditRecord(
            record_id=1,
            time_s=1e9,
            identity="token ci",
            peer="ipv4:10.0.0.1:9",
            action="SetTarget",
            job="llama",
            before="t_min",
            after="slowdown=1.1",
            outcome=DONE,
        )
        assert (second.record_id, second.outcome) == (2, "refused: another user's")
        assert records(access, after_id=1) == records(access, since_s=1e9 + 1) == records(access, job="gpt") == [second]


def test_the_record_can_only_grow(tmp_path: Path) -> None:
    path = tmp_path / "access.sqlite"
    with opened(path) as access:
        create(access, "t", Role.VIEW)
    with closing(sqlite3.connect(path)) as database:
        for change in ("DELETE FROM audit", "UPDATE audit SET identity = 'another'"):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                database.execute(change)


@pytest.mark.parametrize("is_of_before", [False, True])
def test_no_record_is_replaced(tmp_path: Path, *, is_of_before: bool) -> None:
    path = tmp_path / "access.sqlite"
    with opened(path) as access:
        create(access, "t", Role.VIEW)
    with closing(sqlite3.connect(path)) as database:
        if is_of_before:
            database.execute("DROP TRIGGER audit_is_not_replaced")
            with opened(path) as access:
                create(access, "u", Role.VIEW)
        for change in ("REPLACE INTO", "INSERT OR REPLACE INTO", "INSERT INTO"):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                database.execute(f"{change} audit VALUES (1, 0.0, 'another', '', '', '', '', '', 'done')")
    with opened(path) as access:
        create(access, "v", Role.VIEW)
        assert records(access)[0].identity == "operator"


def test_refusals_without_end_do_not_fill_the_disk() -> None:
    clock = Clock()
    with opened(clock=clock) as access:
        for _ in range(1000):
            access.audit.refused("unknown", "peer", "ListJobs", job="", reason="x" * 10_000)
        assert len(records(access)) == 60
        access.audit.done("operator", "peer", "SetTarget", job="a")  # changes are recorded all the same
        clock.now_s += 3.0
        access.audit.refused("unknown", "peer", "ListJobs", job="", reason="again")
        assert records(access)[-1].after == "940 refusals before this one are not recorded"
        assert max(len(record.outcome) for record in records(access)) <= 500
        clock.now_s -= 100.0  # a clock that goes back allows nothing more
        for _ in range(10):
            access.audit.refused("unknown", "peer", "ListJobs", job="", reason="back")
        assert len(records(access)) == 64


@pytest.mark.parametrize(
    ("identity", "peer", "num_more"),
    [
        ("unknown", "ipv4:10.0.0.2:9", 1),
        ("job token 12345678", "ipv4:10.0.0.2:9", 1),
        ("job token 12345678", "ipv4:10.0.0.1:9", 0),  # of the host that makes tokens up
        ("token ci", "ipv4:10.0.0.1:9", 1),
        ("user 1000", "ipv4:10.0.0.1:9", 1),
    ],
)
def test_refusals_of_one_caller_hide_no_others(identity: str, peer: str, num_more: int) -> None:
    with opened(clock=Clock()) as access:
        for number in range(1000):
            access.audit.refused(f"job token {number:08x}", f"ipv4:10.0.0.1:{number}", "ListJobs", job="", reason="no")
        assert len(records(access)) == 70  # ten tokens, and sixty of all others
        access.audit.refused(identity, peer, "SetTarget", job="gpt", reason="another user's")
        assert len(records(access)) == 70 + num_more


def test_refusals_of_one_token_hide_no_others_of_the_host() -> None:
    with opened(clock=Clock()) as access:
        for number in range(1000):
            access.audit.refused("job token 00000000", f"ipv4:10.0.0.1:{number}", "ListJobs", job="", reason="no")
        access.audit.refused("job token 12345678", "ipv4:10.0.0.1:9", "SetTarget", job="gpt", reason="another user's")
        assert len(records(access)) == 61


def test_refusals_of_callers_from_everywhere_are_bounded_too() -> None:
    clock = Clock()
    with opened(clock=clock) as access:
        for number in range(3000):
            host = f"ipv6:%5B2001:db8::{number:x}%5D:9" if number < 1000 else f"ipv4:10.0.{number % 256}.{number}:9"
            access.audit.refused("unknown", host, "ListJobs", job="", reason="no")
        assert 200 <= len(records(access)) <= 400
        clock.now_s += 100.0
        access.audit.refused("unknown", "ipv4:10.1.0.0:9", "SetTarget", job="gpt", reason="no")
        assert len(records(access, job="gpt")) == 1


def test_what_callers_send_reaches_no_terminal_as_it_is() -> None:
    with opened() as access:
        access.audit.refused("unknown", "peer", "SetTarget", job="\x1b]0;x\x1b\\\nforged", reason="\x1b[2J")
        (record,) = records(access)
        assert (record.job + record.outcome).isprintable()


def test_a_revocation_that_cannot_be_stored_counts_at_once(tmp_path: Path) -> None:
    path = tmp_path / "access.sqlite"
    with opened(path) as access:
        token = create(access, "t", Role.ADMIN)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(RefusalError, match="counts no more until the planner restarts"):
                access.revoke(OPERATOR, "t")
        with pytest.raises(RefusalError, match="was revoked"):
            access.caller(authorization(token))


def test_a_database_that_was_moved_away_takes_nothing_until_it_is_back(tmp_path: Path) -> None:
    path, aside = tmp_path / "access.sqlite", tmp_path / "aside"
    with opened(path) as access:
        create(access, "before", Role.VIEW)
        num_records = len(records(access))
        path.rename(aside)
        with pytest.raises(RefusalError, match=r"lost is not made.*was replaced or deleted"):
            create(access, "lost", Role.VIEW)
        with pytest.raises(RefusalError, match=r"counts no more until the planner restarts.*was replaced or deleted"):
            access.revoke(OPERATOR, "before")
        with pytest.raises(sqlite3.Error, match="was replaced or deleted"):
            access.audit.done("somebody", "", "SetTarget", job="llama")
        assert len(records(access)) == num_records
        aside.rename(path)
        create(access, "lost", Role.VIEW)
        assert len(records(access)) == num_records + 1


def test_a_revocation_that_could_not_be_stored_is_stored_by_the_next_call(tmp_path: Path) -> None:
    path, aside = tmp_path / "access.sqlite", tmp_path / "aside"
    with opened(path) as access:
        token = create(access, "t", Role.ADMIN)
        path.rename(aside)
        for _ in range(2):
            with pytest.raises(RefusalError, match="counts no more until the planner restarts"):
                access.revoke(OPERATOR, "t")
        aside.rename(path)
        access.revoke(OPERATOR, "t")
        (_, revoked) = records(access)
        assert revoked.before
        access.revoke(OPERATOR, "t")
        assert len(records(access)) == 2
    with opened(path) as access, pytest.raises(RefusalError, match="was revoked"):
        access.caller(authorization(token))


@pytest.mark.parametrize("damage", [b"", b"SQLite format 3\0", b"\0" * 5000])
def test_a_damaged_database_is_copied_and_its_rows_go_on(
    tmp_path: Path, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "access.sqlite"
    with opened(path) as access:
        token = create(access, "t", Role.ADMIN)
    content = path.read_bytes()
    path.write_bytes(damage + content[len(damage) :] if damage else content[:300])
    with opened(path) as access:
        caller = access.caller(authorization(token))
        if not access.grants():
            assert not caller.is_admin
            assert "make them again" in caplog.text
            assert len(list(tmp_path.glob("access.sqlite.damaged-*"))) == 1
        create(access, "again", Role.VIEW)
    with opened(path) as access:
        assert "again" in {grant.name for grant in access.grants()}


NUM_TOKENS = 60


def damaged(path: Path, page: int) -> int:
    """Overwrite a page, and return the number of pages."""
    content = bytearray(path.read_bytes())
    content[page * 4096 : (page + 1) * 4096] = b"\xff" * 4096
    path.write_bytes(content)
    return len(content) // 4096


def test_a_damaged_page_costs_its_own_rows_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Of every page in turn: no token that was revoked counts again, and records keep their numbers."""
    whole = tmp_path / "whole.sqlite"
    with opened(whole) as access:
        tokens = {f"t{number}": create(access, f"t{number}", Role.VIEW) for number in range(NUM_TOKENS)}
        for number in range(0, NUM_TOKENS, 3):
            access.revoke(OPERATOR, f"t{number}")
        all_records = records(access)
    num_pages, page = 2, 0
    num_lost_tokens = num_lost_records = 0
    while page < num_pages:
        path = tmp_path / f"access-{page}.sqlite"
        path.write_bytes(whole.read_bytes())
        num_pages = damaged(path, page)
        caplog.clear()
        with opened(path) as access:
            for name, token in tokens.items():
                with suppress(RefusalError):
                    caller = access.caller(authorization(token))
                    assert not caller.grants or int(name[1:]) % 3
            found, grants = records(access), access.grants()
            assert set(found) <= set(all_records)
            num_lost_tokens += NUM_TOKENS - len(grants)
            num_lost_records += len(all_records) - len(found)
            if caplog.text:
                assert f"{len(grants)} named tokens and {len(found)} audit records were saved" in caplog.text
                assert len(list(tmp_path.glob(f"{path.name}.damaged-*"))) == 1
                assert path.stat().st_mode & 0o777 == 0o600
            create(access, "new", Role.VIEW)
            assert records(access)[-1].record_id > max((record.record_id for record in found), default=0)
        caplog.clear()
        with opened(path) as access:
            assert len(access.grants()) == len(grants) + 1
        assert not caplog.text
        page += 1
    assert num_pages > 6
    assert 0 < num_lost_tokens <= 1.5 * NUM_TOKENS  # of pages that tokens were on before, also
    assert num_lost_records == len(all_records)  # those of each page, once


def test_a_damaged_database_that_cannot_be_copied_ends_no_planner(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "access.sqlite"
    with opened(path) as access:
        create(access, "t", Role.VIEW)
    damaged(path, 1)
    content = path.read_bytes()
    with monkeypatch.context() as patched:

        def full(*_: Path) -> None:
            raise OSError(28, "No space left on device")

        patched.setattr(shutil, "copy2", full)
        with opened(path) as access:
            assert access.grants() == []
            assert access.caller(authorization("operator")).is_operator
    assert "No space left" in caplog.text
    assert path.read_bytes() == content


def test_what_a_full_disk_leaves_of_a_damaged_databases_copy_is_its_owners_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "access.sqlite"
    with opened(path) as access:
        create(access, "t", Role.VIEW)
    damaged(path, 1)

    def full(*_: object, **_named: object) -> None:
        raise OSError(28, "No space left on device")

    before = os.umask(0o022)
    try:
        monkeypatch.setattr(shutil, "copystat", full)  # the last step of a copy
        with opened(path):
            pass
    finally:
        os.umask(before)
    (copy,) = tmp_path.glob("access.sqlite.damaged-*")
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600


@pytest.mark.parametrize("what", ["create", "revoke", "record"])
def test_rights_are_on_the_disk_before_they_are_acknowledged_and_records_need_not_be(tmp_path: Path, what: str) -> None:
    """A commit is, where SQLite is told so, whoever reads; a checkpoint of its journal waits for nobody who reads."""
    with opened(tmp_path / "rights.sqlite3") as access:
        create(access, "someone", Role.VIEW)
        grant, _ = access.draft(OPERATOR, name="llama", role=Role.VIEW, jobs=(), certificate="", valid_for_s=None)
        statements: list[str] = []
        access._database.set_trace_callback(statements.append)
        match what:
            case "create":
                access.add(OPERATOR, grant)
            case "revoke":
                access.revoke(OPERATOR, "someone")
            case "record":
                access.record_added(OPERATOR, grant)
        assert (statements[0], statements[-1]) == ("PRAGMA synchronous = FULL", "PRAGMA synchronous = NORMAL")
        assert len(statements) > 2
        assert access._database.execute("PRAGMA synchronous").fetchone() == (1,)


def test_a_right_that_cannot_be_stored_leaves_commits_as_quick_as_before(tmp_path: Path) -> None:
    with opened(tmp_path / "rights.sqlite3") as access:
        access._database.execute("CREATE TRIGGER full BEFORE INSERT ON grants BEGIN SELECT RAISE(ABORT, 'full'); END")
        with pytest.raises(RefusalError, match="cannot be stored: full"):
            create(access, "someone", Role.VIEW)
        assert not access._database.in_transaction
        assert access._database.execute("PRAGMA synchronous").fetchone() == (1,)
        assert access.grants() == []


def test_a_revocation_is_known_by_its_record_too(tmp_path: Path) -> None:
    path = tmp_path / "access.sqlite"
    with opened(path) as access:
        create(access, "t", Role.VIEW)
        before = access.grants()[0]
        access.revoke(OPERATOR, "t")
    with closing(sqlite3.connect(path)) as database, database:
        write_grant(database, before)
    assert [grant.revoked_s for grant in salvage_rights(path).grants] != [None]


def test_a_disk_that_does_not_let_it_be_opened_ends_no_planner(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path / "missing" / "access.sqlite") as access:
        assert "named tokens do not count" in caplog.text
        assert access.caller(authorization("operator")).is_operator
        token = create(access, "t", Role.VIEW)
        assert access.caller(authorization(token)).may(Role.VIEW, OTHERS_JOB, SOMEONE)


@pytest.mark.parametrize("pragma", [f"user_version = {SCHEMA_VERSION + 1}", "application_id = 7"])
def test_another_databases_are_left_alone(tmp_path: Path, pragma: str) -> None:
    path = tmp_path / "access.sqlite"
    with opened(path):
        pass
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA {pragma}")
    with pytest.raises(RightsDatabaseError, match=r"perseus-dist that wrote it"):
        Access("operator", path)


def test_a_grant_without_its_record_is_none(tmp_path: Path) -> None:
    path = tmp_path / "access.sqlite"
    with opened(path) as access:
        with closing(sqlite3.connect(path)) as other:
            other.execute("DROP TABLE audit")
        with pytest.raises(RefusalError, match="t is not made"):
            create(access, "t", Role.ADMIN)
        assert access.grants() == []


def test_the_record_of_a_job_has_changes_of_policies_that_cover_it() -> None:
    with opened() as access:
        for number, job in enumerate(
            ("llama-7b", "llama-*", "gpt llama-?b", "*", "", "gpt", "llama", "llama-7b-old x")
        ):
            access.audit.done("operator", "", f"Set{number}", job=job)
        assert [record.action for record in records(access, job="llama-7b")] == ["Set0", "Set1", "Set2", "Set3"]
        assert [record.action for record in records(access, job="gpt")] == ["Set2", "Set3", "Set5"]
        assert len(records(access)) == 8


def test_a_search_of_very_many_records_lets_the_loop_go_on(tmp_path: Path) -> None:
    """Years of them, of which the last moment's, or no job's, are asked for."""

    async def turns_of(search: Coroutine[Any, Any, list[AuditRecord]]) -> tuple[list[int], int]:
        searching, turns = asyncio.create_task(search), 0
        while not searching.done():
            turns += 1
            await asyncio.sleep(0)
        return [record.record_id for record in searching.result()], turns

    clock = Clock()
    with opened(tmp_path / "access.sqlite", clock) as access:
        for number in range(20_001):
            clock.now_s += 1
            access.audit.done("operator", "", "SetTarget", job=f"gpt{number % 7}")
        audit, now_s = access.audit, clock.now_s
        found = [
            asyncio.run(turns_of(audit.search(after_id=after_id, since_s=since_s, job=job, limit=limit)))
            for after_id, since_s, job, limit in (
                (0, now_s - 1, "", 1000),
                (0, 0.0, "llama", 1000),
                (0, now_s - 7, "gpt0", 1000),
                (3, 0.0, "", 2),
                (20_001, 0.0, "", 5),
            )
        ]
        everything = asyncio.run(audit.search(after_id=0, since_s=0.0, job="gpt1", limit=1 << 30))
        assert everything == audit.read(after_id=0, since_s=0.0, job="gpt1", limit=1 << 30)
    assert [ids for ids, _ in found] == [[20_000, 20_001], [], [20_000], [4, 5], []]
    assert [turns >= 6 for _, turns in found] == [True, True, True, False, False]


def test_the_record_of_a_job_has_refused_policies_that_name_it_among_others() -> None:
    with opened() as access:
        caller = access.caller(authorization(create(access, "team", Role.VIEW)))
        for jobs in (("gpt", "bert"), (), [f"{number:0>128}" for number in range(4)]):
            refusal = not_covered(caller, jobs)
            access.audit.refused(caller.identity, caller.peer, "SetBudget", job=refusal.job_id, reason=refusal.reason)
        found = {
            job: len([one for one in records(access, job=job) if one.action == "SetBudget"])
            for job in ("gpt", "bert", "other", f"{3:0>128}")
        }
    assert found == {"gpt": 3, "bert": 3, "other": 2, f"{3:0>128}": 2}


def test_patterns_of_a_policy_are_all_jobs_where_a_group_is_empty_or_they_are_too_many() -> None:
    assert patterns_text(("a*", "b"), ("b", "c")) == "a* b c"
    assert patterns_text(("a",), ()) == "*"
    assert patterns_text([f"{number:0>128}" for number in range(4)]) == "*"
