"""Schema versions of a planner's database, and the steps from each to the next.

A version stands in two places, SQLite's ``user_version`` and the table ``versions``, so that a damaged header is not
taken for a newer planner's database. Versions 1 and 2 had the header alone.
"""

import sqlite3
from importlib.metadata import PackageNotFoundError, version

SCHEMA_VERSION = 4
APPLICATION_ID = 0x50727364  # "Prsd", so that no other program's database is written to

SCHEMA = """
CREATE TABLE facts (
    id INTEGER PRIMARY KEY,  -- ascending in the order of storing
    job TEXT NOT NULL,
    key TEXT NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    blob BLOB NOT NULL,
    UNIQUE (job, key)
)
"""
_VERSIONS = "CREATE TABLE versions (schema_version INTEGER PRIMARY KEY, written_by TEXT NOT NULL)"
_FIRST_IN_TABLE = 3
_COLUMNS = ("id", "job", "key", "kind", "body", "blob")

_STEPS: dict[int, tuple[str, ...]] = {
    1: (),  # version 2 has more kinds of facts; those of version 1 are read as they are
    2: (_VERSIONS,),
    3: (),  # version 4 has facts of the planner itself, in the name of no job
}
"""By version, the statements that make the next one of it."""


def create_schema(database: sqlite3.Connection) -> None:
    """Give an empty database the present schema, in the present transaction."""
    database.execute(SCHEMA)
    database.execute(_VERSIONS)
    database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    _write_version(database, SCHEMA_VERSION)


def migrate(database: sqlite3.Connection, found: int) -> None:
    """Bring an older database to the present schema, in the present transaction.

    Args:
        database: Of a version that ``find_version`` gave.
        found: That version.
    """
    for older in range(found, SCHEMA_VERSION):
        for statement in _STEPS[older]:
            database.execute(statement)
    _write_version(database, SCHEMA_VERSION)


def find_version(database: sqlite3.Connection) -> tuple[int, str]:
    """The schema version, 0 where header and tables contradict each other, and which perseus-dist wrote it, if known.

    Raises:
        sqlite3.Error: It cannot be read.
    """
    (in_header,) = database.execute("PRAGMA user_version").fetchone()
    if not database.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'versions'").fetchone()[0]:
        return (in_header, "") if 1 <= in_header < _FIRST_IN_TABLE else (0, "")
    rows = database.execute("SELECT schema_version, written_by FROM versions ORDER BY 1 DESC LIMIT 1").fetchall()
    if rows and rows[0][0] == in_header >= _FIRST_IN_TABLE:
        return in_header, str(rows[0][1])
    return 0, ""


def holds_facts(database: sqlite3.Connection) -> bool:
    """Whether there is a table of facts such as planners make, whatever the header says."""
    return tuple(name for _, name, *_ in database.execute("PRAGMA table_info(facts)")) == _COLUMNS


def _write_version(database: sqlite3.Connection, number: int) -> None:
    try:
        program = version("perseus-dist")
    except PackageNotFoundError:  # used in place, never installed
        program = "unknown"
    database.execute("INSERT OR REPLACE INTO versions VALUES (?, ?)", (number, program))
    database.execute(f"PRAGMA user_version = {number}")
