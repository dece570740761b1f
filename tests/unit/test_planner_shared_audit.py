"""Audit records on their way to the database of all planners, while a planner's own cannot be read."""

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest
from memory_leases import Database, MemoryLeases
from memory_rights import MemoryAuditTable

from perseus_dist.planner.access.access import Access
from perseus_dist.planner.runtime.shared import shared_audit
from perseus_dist.planner.runtime.shared.shared_audit import SharedAudit


async def call(function: Callable[..., Any], *arguments: object) -> Any:
    return function(*arguments)


def test_records_are_sent_once_the_planners_own_can_be_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_audit, "_PERIOD_S", 0.01)
    access = Access("")
    audit, read = access.audit, access.audit.read

    def unreadable(**_: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    async def play() -> None:
        database = Database()
        shared = SharedAudit(audit, MemoryAuditTable(MemoryLeases(database, 1, "a"), "a"), call)
        audit.done("operator", "ipv4:127.0.0.1:1", "SetTarget", job="llama")
        monkeypatch.setattr(audit, "read", unreadable)
        await shared.leave()
        keeping = asyncio.create_task(shared.keep())
        await asyncio.sleep(0.1)
        monkeypatch.setattr(audit, "read", read)
        async with asyncio.timeout(10):
            while not database.audit:
                await asyncio.sleep(0.01)
        keeping.cancel()

    asyncio.run(play())
    access.close()


def test_records_that_a_database_has_lost_by_a_restore_are_sent_with_the_next_one() -> None:
    access = Access("")

    async def play() -> list[str]:
        database = Database()
        shared = SharedAudit(access.audit, MemoryAuditTable(MemoryLeases(database, 1, "a"), "a"), call)
        for job in ("kept", "lost", "newest"):
            if job == "newest":
                del database.audit[1:]
            access.audit.done("operator", "", "SetTarget", job=job)
            await shared.leave()
        return [record.job for _, record in database.audit]

    assert asyncio.run(play()) == ["kept", "lost", "newest"]
    access.close()
