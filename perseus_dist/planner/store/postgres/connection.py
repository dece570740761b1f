"""One connection to PostgreSQL, made again when it is lost; never waited for without a limit.

Transactions alone have state, so that pgbouncer may give each another connection: no prepared statement, no setting and
no lock outlives one, and every name is written with its schema.
"""

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from perseus_dist.planner.store.database import StoreError
from perseus_dist.planner.store.postgres.address import PostgresAddress, PostgresUrlError
from perseus_dist.planner.store.postgres.explain import (
    DatabaseAddress,
    asks_for_repetition,
    explain_failure,
    explain_refusal,
    is_lost,
    is_passing,
)

ANSWER_TIMEOUT_S = 10.0

_DEFAULTS = {
    "application_name": "perseus-dist planner",
    "connect_timeout": "5",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
    "client_encoding": "utf8",
}
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.05, 10.0
_Result = TypeVar("_Result")

logging.getLogger("psycopg").setLevel(logging.ERROR)  # warns of what it ignores while a lost connection is closed

Opened = psycopg.Connection[tuple[Any, ...]]


class UnreachableError(Exception):
    """No connection, or no answer on it. Its text is a sentence for users.

    Attributes:
        is_passing: Whether a later attempt may succeed without a change of the address or of rights.
    """

    def __init__(self, sentence: str, *, is_passing: bool) -> None:
        super().__init__(sentence)
        self.is_passing = is_passing


class FailedError(Exception):
    """A transaction that the server has refused. Its text is a sentence for users."""


def check_readable(url: str) -> "dict[str, Any]":
    """The parts of a URL, as libpq reads it; ports are checked here, which libpq reads at the first connection.

    Raises:
        StoreError: libpq cannot read it.
    """
    try:
        parts = conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        raise StoreError(f"--store: cannot be read ({str(error).strip()}); see libpq's connection URIs") from None
    for port in str(parts.get("port") or "").split(","):
        if port and not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65535):
            raise StoreError(f"--store: saw port {port}, expected a number from 1 to 65535")
    return parts


class Connection:
    """Runs transactions. Used by one thread at a time.

    Attributes:
        place: What it is connected to, without a password.
    """

    def __init__(self, address: PostgresAddress) -> None:
        """Name a database; the first transaction connects to it.

        Raises:
            StoreError: libpq cannot read the URL.
        """
        self._address = address
        self._parameters = {**_DEFAULTS, **check_readable(address.url)}
        self.place = self._place()
        self._opened: Opened | None = None

    def run(
        self, work: Callable[[Opened], _Result], patience_s: float = 0.0, timeout_s: float | None = None
    ) -> _Result:
        """Run a transaction, and again where the connection is lost or the server asks for that.

        Args:
            work: Begins and ends a transaction, whose effect is the same when it is run twice.
            patience_s: How long to try again.
            timeout_s: How long the server may take for it; None for ``ANSWER_TIMEOUT_S``.

        Raises:
            UnreachableError: There was no connection, or no answer on it.
            FailedError: The server has refused the transaction.
        """
        until_s = time.monotonic() + patience_s
        pause_s = _FIRST_PAUSE_S
        while True:
            failure: UnreachableError | FailedError
            try:
                opened = self._connected()
                with _watched(opened, ANSWER_TIMEOUT_S if timeout_s is None else timeout_s):
                    return work(opened)
            except UnreachableError as error:
                failure, is_worth_repeating = error, error.is_passing
            except psycopg.Error as error:
                is_worth_repeating = is_lost(error) or asks_for_repetition(error)
                if is_lost(error):
                    self.close()
                    failure = UnreachableError(explain_failure(error, self.place), is_passing=True)
                else:
                    failure = FailedError(explain_failure(error, self.place))
            if not is_worth_repeating or time.monotonic() + pause_s > until_s:
                raise failure
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LAST_PAUSE_S)

    def close(self) -> None:
        """Drop the connection; the next transaction makes another."""
        if self._opened is not None:
            with suppress(psycopg.Error):
                self._opened.close()
            self._opened = None

    def _connected(self) -> Opened:
        """Open.

        Raises:
            UnreachableError: It was refused.
        """
        if self._opened is None:
            try:
                password = self._address.password()
                secret = {} if password is None else {"password": password}
                # pgbouncer gives each transaction another server connection, which knows no earlier statement.
                self._opened = psycopg.connect(
                    make_conninfo("", **self._parameters, **secret), autocommit=True, prepare_threshold=None
                )
            except psycopg.Error as error:
                raise UnreachableError(explain_refusal(error, self.place), is_passing=is_passing(error)) from error
            except PostgresUrlError as error:
                raise UnreachableError(str(error), is_passing=False) from error
        return self._opened

    def _place(self) -> DatabaseAddress:
        """The parts of the address, with what libpq reads from variables."""
        known = {
            option.keyword.decode(): option.val.decode()
            for option in psycopg.pq.Conninfo.get_defaults()
            if option.val is not None
        } | {key: str(value) for key, value in self._parameters.items()}
        user = known.get("user", "")
        return DatabaseAddress(
            host=known.get("host") or known.get("hostaddr") or "localhost",
            port=known.get("port") or "5432",
            user=user,
            database=known.get("dbname") or user,
        )


@contextmanager
def _watched(opened: Opened, timeout_s: float) -> Iterator[None]:
    """Cut the connection off if the server does not answer in time, so that waiting for it ends."""
    over = threading.Event()

    def cut_off() -> None:
        with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(opened.fileno())) as held:
            if not over.is_set():
                held.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(timeout_s, cut_off)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        over.set()
        timer.cancel()
