"""Tables of a planner in a PostgreSQL database: made, brought to the present version, or refused."""

import logging

from perseus_dist.planner.store.database import StoreError
from perseus_dist.planner.store.migrations import (
    APPLICATION_ID,
    POSTGRES_SCHEMA,
    SCHEMA_VERSION,
    postgres_schema,
    postgres_steps,
    program_version,
)
from perseus_dist.planner.store.postgres.connection import Opened
from perseus_dist.planner.store.postgres.explain import DatabaseAddress

LOCK = f"SELECT pg_advisory_xact_lock({APPLICATION_ID})"
"""Lets one planner at a time make tables or take over, until its transaction ends."""

_log = logging.getLogger(__name__)


def prepare(opened: Opened, place: DatabaseAddress) -> None:
    """Give a database the present schema, in a transaction of its own.

    Raises:
        StoreError: The schema is another program's, or a newer planner's, or the database cannot hold all texts.
        psycopg.Error: The server refuses.
    """
    with opened.transaction():
        opened.execute(LOCK)
        _check_settings(opened, place)
        found = opened.execute(
            "SELECT to_regnamespace(%s) IS NOT NULL, to_regclass(%s) IS NOT NULL, "
            "(SELECT count(*) FROM pg_catalog.pg_class WHERE relnamespace = to_regnamespace(%s))",
            (POSTGRES_SCHEMA, f"{POSTGRES_SCHEMA}.versions", POSTGRES_SCHEMA),
        ).fetchone()
        assert found is not None
        has_schema, has_versions, num_relations = found
        if not has_schema:
            opened.execute(f"CREATE SCHEMA {POSTGRES_SCHEMA}")
        if has_versions:
            _migrate(opened, place)
        elif num_relations:
            raise StoreError(
                f"{place}: saw a schema {POSTGRES_SCHEMA} that is not a planner's; name another database in --store"
            )
        else:
            for statement in postgres_schema():
                opened.execute(statement.encode())
            _write_version(opened)


def _migrate(opened: Opened, place: DatabaseAddress) -> None:
    row = opened.execute(
        f"SELECT schema_version, written_by FROM {POSTGRES_SCHEMA}.versions ORDER BY 1 DESC LIMIT 1"
    ).fetchone()
    if row is None:
        raise StoreError(f"{place}: its schema version is missing; restore the database from a backup")
    version, program = int(row[0]), row[1]
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{place}: saw schema version {version} (perseus-dist {program}), expected at most {SCHEMA_VERSION}; use "
            "the perseus-dist that wrote it, or name another database in --store"
        )
    if version < SCHEMA_VERSION:
        for statement in postgres_steps(version):
            opened.execute(statement.encode())
        _write_version(opened)
        _log.info("%s: schema version %d becomes %d", place, version, SCHEMA_VERSION)


def _write_version(opened: Opened) -> None:
    opened.execute(f"INSERT INTO {POSTGRES_SCHEMA}.versions VALUES (%s, %s)", (SCHEMA_VERSION, program_version()))


def _check_settings(opened: Opened, place: DatabaseAddress) -> None:
    row = opened.execute(
        "SELECT current_setting('server_encoding'), current_setting('fsync'), current_setting('full_page_writes')"
    ).fetchone()
    assert row is not None
    encoding, *safe = row
    if encoding != "UTF8":
        raise StoreError(f"{place}: saw encoding {encoding}, expected UTF8; make one with createdb --encoding=UTF8")
    if "off" in safe:
        _log.warning("%s: fsync or full_page_writes is off: a crash of its machine loses acknowledged facts", place)
