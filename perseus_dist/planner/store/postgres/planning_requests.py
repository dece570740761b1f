"""The queue of planning requests in PostgreSQL: rows that are taken by ``FOR UPDATE SKIP LOCKED``.

All times are the database's. Nothing here has to survive a crash of the database, so commits are not waited for: what
is lost is asked again.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import psycopg
from psycopg import errors

from perseus_dist.messages.planning_queue import PlanningQueue
from perseus_dist.planner.store.migrations import POSTGRES_SCHEMA, program_version
from perseus_dist.planner.store.postgres.address import PostgresAddress
from perseus_dist.planner.store.postgres.connection import Connection, FailedError, Opened, UnreachableError
from perseus_dist.planner.store.request_queue import (
    PATIENT,
    QueuedRequest,
    QueueError,
    RequestState,
    TakenRequest,
)

CHANNEL = "perseus_dist_planning_requests"
"""Notified with a digest when its request is done, and with nothing when one may be taken."""
LEASE_S = 5.0
"""How long a request belongs to a worker that is silent."""
WISH_S = 10.0
"""How long a request is wanted by a planner that is silent."""
SEEN_S = 15.0
"""How long a worker that is silent is taken for one that lives."""
MAX_TRIES = 3
KEPT_S = 600.0

_TIMEOUT_S = 5.0
_SLOWEST_BYTES_PER_S = 1e6
_TABLE = f"{POSTGRES_SCHEMA}.planning_requests"
_WORKERS = f"{POSTGRES_SCHEMA}.planning_workers"
_LIMITS = "SELECT set_config('synchronous_commit', 'off', true), set_config('lock_timeout', '2s', true)"
_NOTIFY = "SELECT pg_notify(%(channel)s, %(payload)s)"
_IS_FREE = "done_at = 'infinity' AND taken_until < now()"
_IS_GIVEN_UP = f"({_IS_FREE} AND num_tries >= {MAX_TRIES})"
_GIVEN_UP = (
    f"planning workers have ended over the request {MAX_TRIES} times, or were silent for {LEASE_S:g} s; "
    "look for a lack of memory"
)
_FORGET_FAILED = f"""
DELETE FROM {_TABLE} WHERE program = %(program)s AND digest = %(digest)s AND (error <> '' OR {_IS_GIVEN_UP})
"""
_ASK = f"""
INSERT INTO {_TABLE} (program, digest, urgency, body, wanted_until)
VALUES (%(program)s, %(digest)s, %(urgency)s, %(body)s, now() + make_interval(secs => {WISH_S}))
ON CONFLICT (program, digest) DO UPDATE
SET wanted_until = excluded.wanted_until, urgency = least(planning_requests.urgency, excluded.urgency)
"""
_LOOK = f"""
UPDATE {_TABLE} SET wanted_until = now() + make_interval(secs => {WISH_S})
WHERE program = %(program)s AND digest = ANY(%(digests)b::text[])
RETURNING digest, {_IS_FREE}, done_at <> 'infinity', {_IS_GIVEN_UP}, error,
    CASE WHEN ends_at <> 'infinity' AND taken_until >= now() AND done_at = 'infinity'
        THEN greatest(extract(epoch FROM ends_at - now()), 0)::float8 END
"""
_READ = f"SELECT answer, blob FROM {_TABLE} WHERE program = %(program)s AND digest = %(digest)s AND answer <> ''"
_TAKE = f"""
UPDATE {_TABLE} SET token = nextval('{POSTGRES_SCHEMA}.epochs'), num_tries = num_tries + 1, ends_at = 'infinity',
    taken_until = now() + make_interval(secs => {LEASE_S})
FROM (
    SELECT id FROM {_TABLE}
    WHERE program = %(program)s AND {_IS_FREE} AND wanted_until > now()
        AND num_tries < {MAX_TRIES} AND urgency <= %(urgency)s AND (%(digest)s::text = '' OR digest = %(digest)s)
    ORDER BY urgency, id LIMIT 1 FOR UPDATE SKIP LOCKED
) AS next
WHERE planning_requests.id = next.id
RETURNING digest, body, token
"""
_MINE = "program = %(program)s AND digest = %(digest)s AND token = %(token)s AND done_at = 'infinity'"
_RENEW = f"""
UPDATE {_TABLE} SET taken_until = now() + make_interval(secs => {LEASE_S}),
    ends_at = CASE WHEN %(left_s)s::float8 IS NULL THEN ends_at ELSE now() + make_interval(secs => %(left_s)s) END
WHERE {_MINE} RETURNING wanted_until > now()
"""
_ANSWER = f"""
UPDATE {_TABLE} SET answer = %(answer)s, blob = %(blob)b, done_at = now(), error = ''
WHERE program = %(program)s AND digest = %(digest)s AND answer = ''
"""
_FAIL = f"UPDATE {_TABLE} SET error = %(error)s, done_at = now() WHERE {_MINE}"
_GIVE_BACK = (
    f"UPDATE {_TABLE} SET taken_until = '-infinity', token = 0, num_tries = num_tries - %(untried)s WHERE {_MINE}"
)
_FORGET = f"""
DELETE FROM {_TABLE} WHERE id IN (
    SELECT id FROM {_TABLE}
    WHERE least(done_at, wanted_until) < now() - make_interval(secs => {KEPT_S}) FOR UPDATE SKIP LOCKED
)
"""
_WAITING = f"{_TABLE} WHERE {_IS_FREE} AND num_tries < {MAX_TRIES} AND wanted_until > now() AND program"
_SEEN = f"{_WORKERS} WHERE alive_until > now() AND program"
_STATE = "SELECT * FROM " + ", ".join(
    f"(SELECT count(*), coalesce(extract(epoch FROM now() - min(asked_at)), 0)::float8 FROM {_WAITING} {which}) "
    f"AS waiting_{number}, (SELECT count(*), coalesce(sum(num_at_once), 0) FROM {_SEEN} {which}) AS seen_{number}"
    for number, which in enumerate(("= %(program)s", "<> %(program)s"))
)
_REPORT = f"""
INSERT INTO {_WORKERS} VALUES (%(worker)s, %(program)s, %(num_at_once)s, now() + make_interval(secs => {SEEN_S}))
ON CONFLICT (id) DO UPDATE SET num_at_once = excluded.num_at_once, alive_until = excluded.alive_until
"""
_LEAVE = f"DELETE FROM {_WORKERS} WHERE id = %(worker)s OR alive_until < now()"

_Result = TypeVar("_Result")


class PlanningRequests:
    """A ``RequestQueue``. Requests and workers of other versions of the program do not meet here."""

    def __init__(self, address: PostgresAddress) -> None:
        """Name a database; the first call connects to it.

        Raises:
            StoreError: libpq cannot read the URL.
        """
        self._connection = Connection(address)
        self._program = program_version()

    @property
    def name(self) -> str:
        """The address, without a password."""
        return str(self._connection.place)

    def ask(self, request: QueuedRequest) -> None:
        """As ``RequestQueue``."""
        values = {**self._of(request.digest), "urgency": request.urgency, "body": request.body}

        def run(opened: Opened) -> None:
            with opened.pipeline(), opened.transaction():
                opened.execute(_LIMITS)
                opened.execute(_FORGET_FAILED, values)
                opened.execute(_ASK, values)
                opened.execute(_NOTIFY, {"channel": CHANNEL, "payload": ""})

        self._run(run, len(request.body))

    def look(self, digests: Collection[str]) -> Mapping[str, RequestState]:
        """As ``RequestQueue``."""
        rows = self._change(_LOOK, {"program": self._program, "digests": sorted(digests)})
        return {
            digest: RequestState(
                is_free=is_free and not is_given_up,
                is_done=is_done or is_given_up,
                error=_GIVEN_UP if is_given_up else error,
                is_transient=is_given_up,
                left_s=left_s,
            )
            for digest, is_free, is_done, is_given_up, error, left_s in rows
        }

    def read(self, digest: str) -> tuple[str, bytes] | None:
        """As ``RequestQueue``."""

        def run(opened: Opened) -> tuple[str, bytes] | None:
            row = opened.execute(_READ, self._of(digest), binary=True).fetchone()
            return None if row is None else (str(row[0]), bytes(row[1]))

        return self._run(run, 100 << 20)

    def take(self, *, least_urgency: int = PATIENT, digest: str = "") -> TakenRequest | None:
        """As ``RequestQueue``."""
        rows = self._change(_TAKE, {**self._of(digest), "urgency": least_urgency})
        return next((TakenRequest(digest=found, body=body, token=token) for found, body, token in rows), None)

    def renew(self, taken: TakenRequest, left_s: float | None) -> bool:
        """As ``RequestQueue``."""
        rows = self._change(_RENEW, {**self._of_taken(taken), "left_s": left_s})
        return bool(rows and rows[0][0])

    def answer(self, taken: TakenRequest, body: str, blob: bytes) -> None:
        """As ``RequestQueue``."""
        self._change(_ANSWER, {**self._of(taken.digest), "answer": body, "blob": blob}, taken.digest, len(blob))

    def fail(self, taken: TakenRequest, error: str) -> None:
        """As ``RequestQueue``."""
        self._change(_FAIL, {**self._of_taken(taken), "error": error.replace("\0", "")}, taken.digest)

    def give_back(self, taken: TakenRequest, *, was_tried: bool) -> None:
        """As ``RequestQueue``."""
        self._change(_GIVE_BACK, {**self._of_taken(taken), "untried": int(not was_tried)}, "")

    def state(self) -> PlanningQueue:
        """As ``RequestQueue``."""
        self._change(_FORGET, {})
        ((waiting, oldest_s, workers, at_once, waiting_others, oldest_others_s, workers_others, _),) = self._change(
            _STATE, {"program": self._program}
        )
        return PlanningQueue(
            num_waiting=waiting,
            oldest_s=oldest_s,
            num_waiting_others=waiting_others,
            oldest_others_s=oldest_others_s,
            num_workers=workers,
            num_at_once=at_once,
            num_workers_others=workers_others,
        )

    def report(self, worker: str, num_at_once: int) -> None:
        """As ``RequestQueue``."""
        values = {"worker": worker, "program": self._program, "num_at_once": num_at_once}
        self._change(_REPORT if num_at_once else _LEAVE, values)

    def close(self) -> None:
        """As ``RequestQueue``."""
        self._connection.close()

    def _of(self, digest: str) -> dict[str, object]:
        return {"program": self._program, "digest": digest}

    def _of_taken(self, taken: TakenRequest) -> dict[str, object]:
        return {**self._of(taken.digest), "token": taken.token}

    def _change(
        self, statement: str, values: Mapping[str, object], notified: str | None = None, num_bytes: int = 0
    ) -> "list[tuple[Any, ...]]":
        """The rows of one statement; workers and planners are notified of a change if that is said."""

        def run(opened: Opened) -> "list[tuple[Any, ...]]":
            with opened.pipeline(), opened.transaction():
                opened.execute(_LIMITS)
                cursor = opened.execute(statement.encode(), values)
                if notified is not None:
                    opened.execute(_NOTIFY, {"channel": CHANNEL, "payload": notified})
            return cursor.fetchall() if cursor.description else []

        return self._run(run, num_bytes)

    def _run(self, work: Callable[[Opened], _Result], num_bytes: int = 0) -> _Result:
        def run(opened: Opened) -> _Result:
            try:
                return work(opened)
            except psycopg.Error as error:
                if opened.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                    with suppress(psycopg.Error):
                        opened.rollback()
                if not isinstance(error, (errors.UndefinedTable, errors.InvalidSchemaName)):
                    raise
                raise QueueError(
                    f"{self.name}: has no queue of planning requests yet; a planner of this version makes it"
                ) from error

        try:
            return self._connection.run(run, timeout_s=_TIMEOUT_S + num_bytes / _SLOWEST_BYTES_PER_S)
        except UnreachableError as error:
            raise QueueError(str(error), is_passing=error.is_passing) from error
        except FailedError as error:
            raise QueueError(str(error)) from error
