"""Facts that can still be read from a damaged database.

Row by row, so that a damaged page costs its own rows alone; where the page is damaged that says where the others are,
page by page. Plans and switches are left out, since rows that belong together may be lost in part: a planner makes
plans anew in seconds, and only profiles and baselines take training.
"""

import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

from perseus_dist.planner.job.facts import (
    BudgetSet,
    Fact,
    JobRegistered,
    LoadTargetSet,
    OwnTableMade,
    PricePolicySet,
    SwitchDecided,
    TableAhead,
    TableMade,
)
from perseus_dist.planner.store.fact_rows import FactRow, fact_of_row
from perseus_dist.planner.store.migrations import create_schema

_COLUMNS = "id, job, key, kind, body, blob"
_NEXT = f"SELECT {_COLUMNS} FROM facts NOT INDEXED WHERE id > ? ORDER BY id LIMIT 1"
_MAX_ROWS_OF_PAGE = 1024
_LEAF = 0x0D  # of a table
_MIN_PAGES = 8

_Row = tuple[int, str, FactRow]


def salvage(path: Path) -> dict[str, list[Fact]]:
    """Facts by job, in the order of storing, of the jobs whose registration can be read; and the planner's own.

    Args:
        path: Of the damaged database, with its journal beside it; stays as it is but for what SQLite recovers of that.
    """
    for read in (_rows_of_file, _rows_of_tree, _rows_of_pages):
        jobs: defaultdict[str, list[Fact]] = defaultdict(list)
        for job, row in read(path):
            with suppress(ValueError):
                jobs[job].append(fact_of_row(row))
        if found := consistent_jobs(jobs):
            return found
    return {}


def consistent_jobs(jobs: Mapping[str, list[Fact]]) -> dict[str, list[Fact]]:
    """Of jobs that have lost facts, those that can go on: registered, and without plans."""
    return {job: _consistent(facts) for job, facts in jobs.items() if _is_whole(facts)}


def _rows_of_file(path: Path) -> Iterator[tuple[str, FactRow]]:
    with suppress(sqlite3.Error, UnicodeDecodeError), closing(sqlite3.connect(path, isolation_level=None)) as database:
        for _, job, row in _rows_in_order(database, path.stat().st_size):
            yield job, row


def _rows_of_tree(path: Path) -> Iterator[tuple[str, FactRow]]:
    """Where the header is damaged, or claims more pages than there are."""
    with suppress(sqlite3.Error, UnicodeDecodeError, OSError), _with_fresh_header(path) as database:
        for _, job, row in _rows_in_order(database, path.stat().st_size):
            yield job, row


def _rows_of_pages(path: Path) -> Iterator[tuple[str, FactRow]]:
    """Where the table's root is damaged: each page that may be a leaf is read as if it were the whole table."""
    rows: dict[int, tuple[str, FactRow]] = {}
    with suppress(sqlite3.Error, UnicodeDecodeError, OSError), _with_fresh_header(path) as database:
        (page_bytes,) = database.execute("PRAGMA page_size").fetchone()
        data = path.read_bytes()
        database.execute("PRAGMA writable_schema = ON")
        for number, first in enumerate(data[::page_bytes], 1):
            if first != _LEAF or number == 1:
                continue
            database.execute("UPDATE sqlite_schema SET rootpage = ? WHERE name = 'facts'", (number,))
            database.execute("PRAGMA writable_schema = RESET")
            database.execute("PRAGMA writable_schema = ON")
            for rowid, job, row in _rows_in_order(database, page_bytes):
                rows[rowid] = job, row
    return iter([rows[rowid] for rowid in sorted(rows)])


def _with_fresh_header(path: Path) -> "closing[sqlite3.Connection]":
    """In memory, with the first page, which says where the tables are, of a database that was made just now.

    The table of facts is the first that planners make, so that its root is the same page in every database.
    """
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as fresh:
        create_schema(fresh)
        (page_bytes,) = fresh.execute("PRAGMA page_size").fetchone()
        page = bytearray(fresh.serialize()[:page_bytes])
    data = path.read_bytes()
    num_pages = max(-(-len(data) // page_bytes), _MIN_PAGES)
    page[28:32] = num_pages.to_bytes(4, "big")
    database = sqlite3.connect(":memory:", isolation_level=None)
    database.deserialize(bytes(page) + data[page_bytes:].ljust((num_pages - 1) * page_bytes, b"\0"))
    return closing(database)


def _rows_in_order(database: sqlite3.Connection, num_bytes: int) -> Iterator[_Row]:
    """Behind a row that cannot be read, the next one that can be is looked for in steps that double."""
    number, step = 0, 1
    try:
        (last,) = database.execute("SELECT max(id) FROM facts NOT INDEXED").fetchone()
    except (sqlite3.Error, UnicodeDecodeError):
        last = None
    last = last or num_bytes // 4096 * _MAX_ROWS_OF_PAGE + _MAX_ROWS_OF_PAGE
    while number < last:
        try:
            found = database.execute(_NEXT, (number,)).fetchone()
            is_ahead = found is None or found[0] > number  # a damaged tree may lead back
        except (sqlite3.Error, UnicodeDecodeError):
            is_ahead = False
        if not is_ahead:
            number, step = number + step, 2 * step
            continue
        if found is None:
            return
        number, step = found[0], 1
        job, *row = found[1:]
        if isinstance(job, str):
            yield number, job, FactRow(*row)


def _is_whole(facts: list[Fact]) -> bool:
    return any(isinstance(fact, JobRegistered | BudgetSet | LoadTargetSet | PricePolicySet) for fact in facts)


def _consistent(facts: list[Fact]) -> list[Fact]:
    """Without plans, whose revisions count as used up."""
    tables = [fact.revision for fact in facts if isinstance(fact, TableMade | OwnTableMade)]
    switches = [fact.switch_revision for fact in facts if isinstance(fact, SwitchDecided)]
    return [
        replace(
            fact,
            held_revision=max(fact.held_revision, *tables, 0),
            held_switch_revision=max(fact.held_switch_revision, *switches, 0),
        )
        if isinstance(fact, JobRegistered)
        else fact
        for fact in facts
        if not isinstance(fact, TableMade | TableAhead | OwnTableMade | SwitchDecided)
    ]
