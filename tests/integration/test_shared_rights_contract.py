"""Named tokens and audit records that planners share: tables of PostgreSQL, also behind pgbouncer, and in memory."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from memory_leases import Database
from memory_rights import MemoryAuditTable, MemoryGrantTable

from perseus_dist.planner.access.access import Access
from perseus_dist.planner.access.audit import AuditRecord
from perseus_dist.planner.access.auth import Caller, hash_token
from perseus_dist.planner.access.grants import Grant, Role
from perseus_dist.planner.access.refusal import RefusalError
from perseus_dist.planner.runtime.shared.database_thread import DatabaseThread
from perseus_dist.planner.runtime.shared.shared_grants import SharedGrants
from perseus_dist.planner.store.shared_rights import AuditTable, GrantTable, SharedRightsError

OPERATOR = Caller(token_sha256="", is_operator=True)
GRANT = Grant(name="ci", role=Role.OPERATE, jobs=("a-*", "b"), token_sha256="1", created_s=1.5, created_by="operator")
NO_REFUSAL = {"peer": "", "action": "SetTarget", "before": "", "after": "", "outcome": "done", "identity": "operator"}


class Tables(NamedTuple):
    grants: GrantTable
    audit: AuditTable


@pytest.fixture(params=["memory", "postgres", "pgbouncer"])
def tables_of(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], Tables]]:
    """Makes the tables of one database that the planner of a name uses."""
    if request.param == "memory":
        database = Database()

        def in_memory(name: str) -> Tables:
            leases = database.register(name)
            return Tables(MemoryGrantTable(leases), MemoryAuditTable(leases, name))

        yield in_memory
        return
    server = request.getfixturevalue("pooled" if request.param == "pgbouncer" else "postgres")
    from perseus_dist.planner.store.postgres.address import PostgresAddress
    from perseus_dist.planner.store.postgres.audit_table import PostgresAuditTable
    from perseus_dist.planner.store.postgres.grant_table import PostgresGrantTable
    from perseus_dist.planner.store.postgres.postgres_facts import PostgresFacts

    address = PostgresAddress(server.url(server.fresh_database(), pooled=request.param == "pgbouncer"))
    PostgresFacts(address, state_id="here", aside=tmp_path, waits=False).close()
    with ExitStack() as cleanup:

        def in_postgres(name: str) -> Tables:
            tables = Tables(PostgresGrantTable(address), PostgresAuditTable(address, name, name))
            for table in tables:
                cleanup.callback(table.close)
            return tables

        yield in_postgres


def record(record_id: int, *, time_s: float = 1.0, job: str = "") -> AuditRecord:
    return AuditRecord(record_id=record_id, time_s=time_s, job=job, **NO_REFUSAL)


def test_a_name_is_the_first_grants_and_is_taken_back_once(tables_of: Callable[[str], Tables]) -> None:
    one, two = tables_of("one").grants, tables_of("two").grants
    assert one.read(0) == (0, [])
    one.put([GRANT])
    two.put([replace(GRANT, token_sha256="2"), replace(GRANT, name="other", jobs=())])
    (number, found) = two.read(0)
    assert found == [GRANT, replace(GRANT, name="other", jobs=())]
    assert two.read(number) == (number, [])
    assert two.read(number + 9) == (number, [])  # of a database that was restored to an earlier state since
    revoked = replace(GRANT, revoked_s=3.0, revoked_by="token admin")
    two.put([replace(revoked, token_sha256="2")])  # another grant of that name
    assert one.read(number) == (number, [])
    two.put([revoked])
    one.put([replace(revoked, revoked_s=4.0), GRANT])
    newest, found = one.read(number)
    assert newest > number
    assert found == [revoked]
    assert one.read(newest) == (newest, [])


def test_records_are_there_once_in_the_order_of_storing(tables_of: Callable[[str], Tables]) -> None:
    one, two = tables_of("one").audit, tables_of("two").audit
    assert list(one.newest()) == []
    one.append([record(1), record(2, job="a-1")])
    two.append([record(1, time_s=2.0, job="b")])
    one.append([record(2, job="a-1"), record(3, time_s=3.0, job="a-* c")])
    one.append([record(1, time_s=4.0)])  # its folder was restored, and counts again
    assert list(one.newest()) == [(1, 4.0), (3, 3.0), (2, 1.0), (1, 1.0)]
    assert list(two.newest()) == [(1, 2.0)]

    def read(after_id: int = 0, since_s: float = 0.0, job: str = "", limit: int = 9) -> list[tuple[int, float, str]]:
        found = two.read(after_id=after_id, since_s=since_s, job=job, limit=limit)
        return [(one.record_id, one.time_s, one.replica) for one in found]

    ids = [number for number, *_ in read()]
    assert ids == sorted(ids)
    assert [rest for _, *rest in read()] == [[1.0, "one"], [1.0, "one"], [2.0, "two"], [3.0, "one"], [4.0, "one"]]
    assert read(after_id=ids[1], limit=2) == read()[2:4]
    assert read(since_s=2.5) == read()[3:]
    assert read(job="a-1") == [read()[1], read()[3]]


@asynccontextmanager
async def planner(path: Path, table: GrantTable) -> AsyncIterator[tuple[Access, SharedGrants]]:
    """A planner's part, as the server makes it."""
    thread = DatabaseThread("named tokens")
    with closing(Access("an operator's", path)) as access:
        yield access, SharedGrants(access, table, thread)
    thread.close()


def draft(access: Access, name: str) -> tuple[Grant, str]:
    return access.draft(OPERATOR, name=name, role=Role.VIEW, jobs=(), certificate="", valid_for_s=None)


def test_a_name_that_two_planners_give_at_once_is_one_token_alone(
    tables_of: Callable[[str], Tables], tmp_path: Path
) -> None:
    async def play() -> None:
        async with (
            planner(tmp_path / "one.sqlite", tables_of("one").grants) as one,
            planner(tmp_path / "two.sqlite", tables_of("two").grants) as two,
        ):
            for number in range(8):
                drafts = [(*draft(access, f"ci-{number}"), access, shared) for access, shared in (one, two)]
                adding = (shared.add(OPERATOR, grant) for grant, _, _, shared in drafts)
                refusals = await asyncio.gather(*adding, return_exceptions=True)
                (winner,) = (place for place, refusal in enumerate(refusals) if refusal is None)
                (refused,) = (refusal for refusal in refusals if isinstance(refusal, RefusalError))
                assert "choose another name" in refused.reason
                tokens = [token for _, token, _, _ in drafts]
                for access, shared in (one, two):
                    await shared.exchange()
                    found = [access.caller_of_token(hash_token(token)).grants for token in tokens]
                    assert [[grant.name for grant in grants] for grants in found] == [
                        [f"ci-{number}"] if place == winner else [] for place in range(2)
                    ]

    asyncio.run(play())


class InterruptedByTestError(Exception):
    """The planner ends here."""


@contextmanager
def cut(table: GrantTable, monkeypatch: pytest.MonkeyPatch, *, behind: bool) -> Iterator[None]:
    """A planner ends before it puts a grant into the database, or behind that."""
    put = table.put

    def broken(grants: Any) -> None:
        if behind:
            put(grants)
        raise InterruptedByTestError

    with monkeypatch.context() as patched:
        patched.setattr(table, "put", broken)
        yield


@pytest.mark.parametrize("behind", [False, True])
def test_a_planner_that_ends_half_way_leaves_no_second_token_of_a_name(
    tables_of: Callable[[str], Tables], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, behind: bool
) -> None:
    async def play() -> None:
        table = tables_of("one").grants
        async with planner(tmp_path / "two.sqlite", tables_of("two").grants) as (two, of_two):
            async with planner(tmp_path / "one.sqlite", table) as (one, of_one):
                with cut(table, monkeypatch, behind=behind), pytest.raises(InterruptedByTestError):
                    await of_one.add(OPERATOR, draft(one, "ci")[0])
                ((action, outcome),) = (
                    (record.action, record.outcome)
                    for record in one.audit.read(after_id=0, since_s=0.0, job="", limit=9)
                )
                assert (action, outcome) == ("CreateToken", "done")
            grant, token = draft(two, "ci")
            if behind:
                with pytest.raises(RefusalError, match="choose another name"):
                    await of_two.add(OPERATOR, grant)
            else:
                await of_two.add(OPERATOR, grant)
            async with planner(tmp_path / "one.sqlite", table) as (again, of_again):
                await of_again.exchange()
                assert again.grants() == two.grants()
                assert bool(again.caller_of_token(hash_token(token)).grants) is not behind
                await of_two.revoke(OPERATOR, "ci")
                await of_again.exchange()
                assert [grant.revoked_s is None for grant in again.grants()] == [False]

    asyncio.run(play())


def test_planners_give_back_what_a_database_has_lost_by_a_restore(tmp_path: Path) -> None:
    database = Database()
    first, second = (MemoryGrantTable(database.register(name)) for name in ("one", "two"))

    async def play() -> None:
        async with (
            planner(tmp_path / "one.sqlite", first) as (here, one),
            planner(tmp_path / "two.sqlite", second) as (there, two),
        ):
            for name in ("kept", "lost"):
                await one.add(OPERATOR, draft(here, name)[0])
            earlier = dict(list(database.grants.items())[:1])
            await one.revoke(OPERATOR, "kept")
            await two.exchange()
            database.grants = earlier
            database.newest = next(number for number, _ in earlier.values())
            grant, token = draft(here, "new")
            await one.add(OPERATOR, grant)
            await two.exchange()
            assert set(database.grants) == {"kept", "lost", "new"}
            assert database.grants["kept"][1].revoked_s is not None
            for access in (here, there):
                assert [one.name for one in access.caller_of_token(hash_token(token)).grants] == ["new"]

    asyncio.run(play())


def test_a_caller_that_leaves_lets_no_second_call_onto_the_connection(tmp_path: Path) -> None:
    class Slow:
        """Says who uses it at once."""

        def __init__(self) -> None:
            self.num_inside, self.most = 0, 0
            self.go = asyncio.Event()

        def put(self, _: object) -> None:
            raise SharedRightsError("away")

        def read(self, after: int) -> tuple[int, list[Grant]]:
            self.num_inside += 1
            self.most = max(self.most, self.num_inside)
            asyncio.run_coroutine_threadsafe(self.go.wait(), loop).result()
            self.num_inside -= 1
            return after, []

        def close(self) -> None:
            """Nothing is open."""

    async def play() -> int:
        table = Slow()
        async with planner(tmp_path / "one.sqlite", table) as (_, shared):
            leaving = asyncio.create_task(shared.grants())
            while not table.num_inside:
                await asyncio.sleep(0.001)
            leaving.cancel()
            following = asyncio.create_task(shared.grants())
            await asyncio.sleep(0.05)
            table.go.set()
            await following
        return table.most

    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        assert runner.run(play()) == 1
