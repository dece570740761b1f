"""Which part of an address or of a user's rights an error of PostgreSQL, pgbouncer or libpq speaks of.

libpq gives a refused connection's reason as text alone, so that the text is all there is to go by. A text that is not
known is given as it is.
"""

import re
from dataclasses import dataclass

import psycopg
from psycopg import errors

from perseus_dist.planner.store.migrations import POSTGRES_SCHEMA


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """The parts of an address, as libpq has resolved them."""

    host: str
    port: str
    user: str
    database: str

    def __str__(self) -> str:
        return f"postgresql://{self.user}@{self.host}:{self.port}/{self.database}"


_HOST, _PORT, _USER, _PASSWORD, _DATABASE, _RIGHTS, _TLS = range(7)
_CAUSES: tuple[tuple[str, int], ...] = (
    (r"could not translate host name|failed to resolve host|no host|Name or service not known", _HOST),
    (r"connection timeout|timeout expired|No route to host|Network is unreachable|No such file or directory", _HOST),
    (r"Connection refused", _PORT),
    (r"no password supplied|fe_sendauth|empty password", _PASSWORD),
    (r"password authentication failed|SASL authentication failed|authentication failed", _PASSWORD),
    (r"role \".*\" does not exist|no such user|role \".*\" is not permitted to log in", _USER),
    (r"database \".*\" does not exist|no such database", _DATABASE),
    (r"no pg_hba.conf entry|pg_hba.conf rejects|permission denied for database|login rejected", _RIGHTS),
    (r"SSL|certificate", _TLS),
)
_PASSING = (
    r"Connection refused|timeout|No route to host|Network is unreachable|No such file or directory|starting up|"
    r"shutting down|not yet accepting connections|recovery|too many clients|too many connections|remaining connection|"
    r"server login|server_login_retry|closed the connection|Connection reset|Broken pipe|no more connections allowed|"
    r"pooler is shut down|query_wait_timeout|server conn crashed|Temporary failure in name resolution|pgbouncer cannot"
)
_BEFORE_THE_REASON = r"^((connection failed|connection is bad|connection to server (at|on) .*? failed|FATAL): +)+"
_LOST_STATES = ("08", "57P01", "57P02", "57P03", "57P05", "25006", "25P03")
"""SQLSTATEs, or their classes, after which a connection is of no use."""
_AGAIN_STATES = ("40001", "40P01", "55P03", "57014")
"""Serialization failures, deadlocks, and waits for locks that a server has ended."""


def is_passing(error: psycopg.Error) -> bool:
    """Whether a refused connection may succeed later, as where the server restarts."""
    return bool(re.search(_PASSING, str(error), re.IGNORECASE))


def is_lost(error: psycopg.Error) -> bool:
    """Whether the connection is gone, or leads to a server that cannot write."""
    state = error.sqlstate
    if state is None:
        return isinstance(error, psycopg.OperationalError)
    return state.startswith(_LOST_STATES)


def asks_for_repetition(error: psycopg.Error) -> bool:
    """Whether the same transaction may succeed at once."""
    return error.sqlstate in _AGAIN_STATES


def explain_refusal(error: psycopg.Error, place: DatabaseAddress) -> str:
    """Why a connection was refused, and what to mend."""
    text = first_line(error)
    cause = next((cause for pattern, cause in _CAUSES if re.search(pattern, text, re.IGNORECASE)), None)
    remedies = {
        _HOST: f"check the host, {place.host}, and that the database runs there",
        _PORT: f"check the port, {place.port}, and that the database runs on {place.host}",
        _USER: f"check the user, {place.user}",
        _PASSWORD: f"check the user, {place.user}, and the password in the file of --store-password-file or PGPASSFILE",
        _DATABASE: f"check the database's name, {place.database}, or create it: createdb {place.database}",
        _RIGHTS: f"give user {place.user} the right to connect to database {place.database} from this host",
        _TLS: "check sslmode and sslrootcert in the URL",
        None: "check the URL and the database's log",
    }
    return f"{place}: cannot be connected to ({text}); {remedies[cause]}"


def explain_failure(error: psycopg.Error, place: DatabaseAddress) -> str:
    """Why a statement has failed, and what to mend."""
    text = first_line(error)
    match error:
        case errors.InsufficientPrivilege():
            remedy = (
                f"user {place.user} lacks rights: let the database's owner run 'CREATE SCHEMA {POSTGRES_SCHEMA} "
                f'AUTHORIZATION "{place.user}"\', or give it all rights on what is in that schema'
            )
        case errors.DiskFull():
            remedy = "make room on the database's disk, nothing is lost meanwhile"
        case errors.ReadOnlySqlTransaction():
            remedy = "name the primary, or several hosts and target_session_attrs=read-write: this one is a standby"
        case _ if is_lost(error):
            remedy = "check that the database runs, nothing is lost meanwhile"
        case _:
            remedy = "the database's log says more, nothing is lost meanwhile"
    return f"{place}: a statement has failed ({text}); {remedy}"


def first_line(error: psycopg.Error) -> str:
    """An error in one line, as a server or libpq says it."""
    said = error.diag.message_primary or str(error)
    line = next((line.strip() for line in said.splitlines() if line.strip()), type(error).__name__)
    return re.sub(_BEFORE_THE_REASON, "", line)
