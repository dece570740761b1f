"""Who a caller is, and the rights that administrators give."""

import hmac
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from perseus_dist.planner.access.access_database import open_access_database
from perseus_dist.planner.access.audit import Audit
from perseus_dist.planner.access.auth import Caller, hash_token, new_token, token_hash_in
from perseus_dist.planner.access.grants import Grant, Role
from perseus_dist.planner.access.refusal import already_exists, not_found, not_now, unauthenticated
from perseus_dist.planner.access.rights_rows import CREATE, REVOKE, read_grants, write_grant
from perseus_dist.planner.sqlite_files.placed_file import PlacedFile

MAX_GRANTS = 10_000


class Access:
    """Knows the operator's token and all grants. Methods run in the planner's loop; each takes about a millisecond.

    Attributes:
        num_changes: Counts changes of grants.
    """

    def __init__(self, operator_token: str, path: Path | None = None, clock: Callable[[], float] = time.time) -> None:
        """Read what was granted.

        Args:
            operator_token: Opens everything; empty where there is none.
            path: Of the database; None is one in memory.
            clock: Unix time in seconds.

        Raises:
            RightsDatabaseError: The database cannot be used.
        """
        self._operator_sha256 = hash_token(operator_token) if operator_token else ""
        self._database = open_access_database(path)
        (_, _, opened) = self._database.execute("PRAGMA database_list").fetchone()
        self._file = PlacedFile(Path(opened) if opened else None)
        self._clock = clock
        self._grants = {grant.name: grant for grant in read_grants(self._database)}
        self._by_token: dict[str, Grant] = {}
        self._unstored: dict[str, Grant] = {}  # as they were before they were revoked, which could not be stored
        self.num_changes = 0
        self._index()
        self.audit = Audit(self._database, clock, self._check_place)

    def close(self) -> None:
        """Close the database of grants and audit records."""
        self._database.close()

    def caller(
        self, metadata: Iterable[tuple[str, str | bytes]], certificate_names: Iterable[str] = (), peer: str = ""
    ) -> Caller:
        """Who sent a call.

        Args:
            metadata: Of the call.
            certificate_names: Names in the certificate that the client has shown and an authority has signed.
            peer: Address of the other end, as gRPC writes it.

        Raises:
            RefusalError: The token was revoked, or has expired.
        """
        return self.caller_of_token(token_hash_in(metadata), certificate_names, peer)

    def caller_of_token(self, token_sha256: str, certificate_names: Iterable[str] = (), peer: str = "") -> Caller:
        """The same for a token whose hash is known; empty for none.

        Raises:
            RefusalError: The token was revoked, or has expired.
        """
        now_s = self._clock()
        is_operator = bool(self._operator_sha256) and hmac.compare_digest(token_sha256, self._operator_sha256)
        grants: list[Grant] = []
        if (grant := self._by_token.get(token_sha256)) is not None:
            if why_not := grant.why_not(now_s):
                raise unauthenticated(f"token {grant.name} {why_not}; ask an administrator of the planner for another")
            grants.append(grant)
        names = set(certificate_names)
        if names:
            grants += [
                grant for grant in self._grants.values() if grant.certificate in names and not grant.why_not(now_s)
            ]
        return Caller(token_sha256=token_sha256, is_operator=is_operator, grants=tuple(grants), peer=peer)

    def draft(
        self,
        caller: Caller,
        *,
        name: str,
        role: Role,
        jobs: tuple[str, ...],
        certificate: str,
        valid_for_s: float | None,
    ) -> tuple[Grant, str]:
        """A right for a new token or for a certificate, which does not count yet.

        Args:
            caller: An administrator.
            name: New.
            role: Administrators' is for all jobs.
            jobs: Patterns; empty for all.
            certificate: Name in clients' certificates; empty for a token.
            valid_for_s: Seconds from now; None for ever.

        Returns:
            The grant, and the token that only the caller gets to know; empty for a certificate.

        Raises:
            RefusalError: There was such a name, or there are too many grants.
        """
        if (there := self._grants.get(name)) is not None:
            state = there.why_not(self._clock()) or "is in use"
            raise already_exists(f"{name} {state}; choose another name, since the audit record speaks of that one")
        if len(self._grants) >= MAX_GRANTS:
            raise not_now(f"there are {MAX_GRANTS} named tokens already, revoked ones included")
        token = "" if certificate else new_token()
        now_s = self._clock()
        grant = Grant(
            name=name,
            role=role,
            jobs=jobs,
            token_sha256=hash_token(token) if token else "",
            certificate=certificate,
            created_s=now_s,
            created_by=caller.identity,
            expires_s=None if valid_for_s is None else now_s + valid_for_s,
        )
        return grant, token

    def add(self, caller: Caller, grant: Grant) -> None:
        """Give a right that was drafted.

        Raises:
            RefusalError: It cannot be stored.
        """
        try:
            self._store(caller, grant, CREATE, after=grant.text)
        except sqlite3.Error as error:
            raise not_now(f"{grant.name} is not made, since it cannot be stored: {error}") from error

    def record_added(self, caller: Caller, grant: Grant) -> None:
        """Record that a right is given, which counts here once ``merge`` has taken it over.

        Raises:
            RefusalError: That cannot be stored.
        """
        try:
            with self._flushed():
                self.audit.done(caller.identity, caller.peer, CREATE, after=grant.text)
        except sqlite3.Error as error:
            raise not_now(f"{grant.name} is not made, since it cannot be recorded: {error}") from error

    def revoke(self, caller: Caller, name: str) -> Grant:
        """Take a right back; at once, and for ever.

        Raises:
            RefusalError: There is no such name, or it cannot be stored: then it counts no more until a restart, and
                a later call stores it.
        """
        grant = self._grants.get(name)
        if grant is None:
            raise not_found(f"there is no token {name}; 'perseus-dist token list' lists those there are")
        if grant.revoked_s is not None and name not in self._unstored:
            return grant
        before = self._unstored.pop(name, grant)
        revoked = replace(before, revoked_s=self._clock(), revoked_by=caller.identity)
        try:
            self._store(caller, revoked, REVOKE, before=before.text)
        except sqlite3.Error as error:
            self._unstored[name] = before
            self._grants[name] = revoked
            self._index()
            raise not_now(
                f"{name} counts no more until the planner restarts, and this cannot be stored: {error}"
            ) from error
        return revoked

    def merge(self, found: Iterable[Grant]) -> list[Grant]:
        """Take over grants that another planner has given or taken back, and recorded.

        Returns:
            Those whose name is another grant's here, which counts on.

        Raises:
            sqlite3.Error: They cannot be stored, and count until a restart all the same.
        """
        fresh, others = [], []
        for grant in found:
            there = self._grants.get(grant.name)
            if there is not None and (there.token_sha256, there.created_s) != (grant.token_sha256, grant.created_s):
                others += [grant] if there.revoked_s is None else []
            elif there is None or (grant.revoked_s is not None and there.revoked_s is None):
                fresh.append(grant)
        if fresh:
            self._grants.update((grant.name, grant) for grant in fresh)
            self._index()
            self._check_place()
            self._database.execute("BEGIN IMMEDIATE")
            try:
                for grant in fresh:
                    write_grant(self._database, grant)
                self._database.execute("COMMIT")
            except sqlite3.Error:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise
        return others

    def grants(self) -> list[Grant]:
        """All that were ever given, in the order of their names."""
        return sorted(self._grants.values(), key=lambda grant: grant.name)

    def _check_place(self) -> None:
        if trouble := self._file.trouble():
            raise sqlite3.OperationalError(trouble)

    def _store(self, caller: Caller, grant: Grant, action: str, *, before: str = "", after: str = "") -> None:
        """A grant and its record, both or neither."""
        with self._flushed():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                write_grant(self._database, grant)
                self.audit.done(caller.identity, caller.peer, action, before=before, after=after)
                self._database.execute("COMMIT")
            except sqlite3.Error:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise
        self._grants[grant.name] = grant
        self._index()

    @contextmanager
    def _flushed(self) -> Iterator[None]:
        """A transaction within is on the disk before it is acknowledged, while others read the database, too."""
        self._database.execute("PRAGMA synchronous = FULL")
        try:
            yield
        finally:
            self._database.execute("PRAGMA synchronous = NORMAL")

    def _index(self) -> None:
        self.num_changes += 1
        self._by_token = {grant.token_sha256: grant for grant in self._grants.values() if grant.token_sha256}
