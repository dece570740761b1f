"""Named tokens and audit records of all planners in memory: PostgreSQL's contract, by the same tests."""

from collections.abc import Sequence

from memory_leases import MemoryLeases

from perseus_dist.planner.access.audit import AuditRecord, concerns
from perseus_dist.planner.access.grants import Grant
from perseus_dist.planner.store.shared_rights import SharedRightsError


class MemoryGrantTable:
    """A ``GrantTable``.

    Args:
        leases: Of the planner: both reach the database, or neither does.
    """

    def __init__(self, leases: MemoryLeases) -> None:
        self._leases = leases

    def put(self, grants: Sequence[Grant]) -> None:
        _check_reachable(self._leases)
        database = self._leases.database
        for grant in grants:
            _, there = database.grants.get(grant.name, (0, None))
            is_same = there is not None and (there.token_sha256, there.created_s) == (
                grant.token_sha256,
                grant.created_s,
            )
            if there is None or (is_same and there.revoked_s is None and grant.revoked_s is not None):
                database.grants[grant.name] = (database.next(), grant)
        _lose_answer(self._leases)

    def read(self, after: int) -> tuple[int, list[Grant]]:
        _check_reachable(self._leases)
        found = sorted((one for one in self._leases.database.grants.values() if one[0] > after), key=lambda one: one[0])
        newest = max((number for number, _ in self._leases.database.grants.values()), default=0)
        return (found[-1][0] if found else min(after, newest)), [grant for _, grant in found]

    def close(self) -> None:
        """Nothing is open."""


class MemoryAuditTable:
    """An ``AuditTable``.

    Args:
        leases: As above.
        state_id: Of the planner's state folder.
    """

    def __init__(self, leases: MemoryLeases, state_id: str) -> None:
        self._leases = leases
        self._state_id = state_id

    def newest(self) -> Sequence[tuple[int, float]]:
        _check_reachable(self._leases)
        own = (record for state_id, record in self._leases.database.audit if state_id == self._state_id)
        return [(record.record_id, record.time_s) for record in own][::-1]

    def append(self, records: Sequence[AuditRecord]) -> None:
        _check_reachable(self._leases)
        there = set(self.newest())
        self._leases.database.audit += [
            (self._state_id, one) for one in records if (one.record_id, one.time_s) not in there
        ]
        _lose_answer(self._leases)

    def read(self, *, after_id: int, since_s: float, job: str, limit: int) -> list[AuditRecord]:
        _check_reachable(self._leases)
        found = []
        for number, (state_id, one) in enumerate(self._leases.database.audit, 1):
            if number > after_id and one.time_s >= since_s and (job in ("", one.job) or concerns(one.job, job)):
                fields = {name: getattr(one, name) for name in AuditRecord.__slots__}
                found.append(AuditRecord(**{**fields, "record_id": number, "replica": state_id}))
        return found[:limit]

    def close(self) -> None:
        """Nothing is open."""


def _check_reachable(leases: MemoryLeases) -> None:
    if leases.is_away:
        raise SharedRightsError("the database cannot be reached")


def _lose_answer(leases: MemoryLeases) -> None:
    if leases.loses_answer():
        raise SharedRightsError("the connection broke behind the commit")
