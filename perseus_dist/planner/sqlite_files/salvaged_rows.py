"""Rows that can still be read from a table of a damaged database.

Row by row, so that a damaged page costs its own rows alone; where the page is damaged that says where the others are,
page by page.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MAX_ROWS_OF_PAGE = 1024
_LEAF = 0x0D  # of a table
_MIN_PAGES = 8

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table with row ids.

    Attributes:
        name: Of the table.
        columns: To read.
        create_schema: Gives an empty database all tables, in the order in which every such database has got them, so
            that the table's root is the same page in each.
        fits: Whether a row is one of this table, and none of another table's page that was read as if it were.
    """

    name: str
    columns: tuple[str, ...]
    create_schema: Callable[[sqlite3.Connection], object]
    fits: Callable[[Row], bool]


def readings(path: Path, table: Table) -> Iterator[Iterator[tuple[int, Row]]]:
    """Ways to read the rows, each with its id, in their order; each way is for more damage than the one before.

    Args:
        path: Of the damaged database, with its journal beside it; stays as it is but for what SQLite recovers of that.
        table: To read.
    """
    for read in (_rows_of_file, _rows_of_tree, _rows_of_pages):
        yield read(path, table)


def _rows_of_file(path: Path, table: Table) -> Iterator[tuple[int, Row]]:
    with suppress(sqlite3.Error, UnicodeDecodeError), closing(sqlite3.connect(path, isolation_level=None)) as database:
        yield from _rows_in_order(database, table, path.stat().st_size)


def _rows_of_tree(path: Path, table: Table) -> Iterator[tuple[int, Row]]:
    """Where the header is damaged, or claims more pages than there are."""
    with suppress(sqlite3.Error, UnicodeDecodeError, OSError), _with_fresh_header(path, table) as database:
        yield from _rows_in_order(database, table, path.stat().st_size)


def _rows_of_pages(path: Path, table: Table) -> Iterator[tuple[int, Row]]:
    """Where the table's root is damaged: each page that may be a leaf is read as if it were the whole table."""
    rows: dict[int, Row] = {}
    with suppress(sqlite3.Error, UnicodeDecodeError, OSError), _with_fresh_header(path, table) as database:
        (page_bytes,) = database.execute("PRAGMA page_size").fetchone()
        data = path.read_bytes()
        database.execute("PRAGMA writable_schema = ON")
        for number, first in enumerate(data[::page_bytes], 1):
            if first != _LEAF or number == 1:
                continue
            database.execute("UPDATE sqlite_schema SET rootpage = ? WHERE name = ?", (number, table.name))
            database.execute("PRAGMA writable_schema = RESET")
            database.execute("PRAGMA writable_schema = ON")
            rows |= _rows_in_order(database, table, page_bytes)
    return iter(sorted(rows.items()))


def _with_fresh_header(path: Path, table: Table) -> "closing[sqlite3.Connection]":
    """In memory, with the first page, which says where the tables are, of a database that was made just now."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as fresh:
        table.create_schema(fresh)
        (page_bytes,) = fresh.execute("PRAGMA page_size").fetchone()
        page = bytearray(fresh.serialize()[:page_bytes])
    data = path.read_bytes()
    num_pages = max(-(-len(data) // page_bytes), _MIN_PAGES)
    page[28:32] = num_pages.to_bytes(4, "big")
    database = sqlite3.connect(":memory:", isolation_level=None)
    database.deserialize(bytes(page) + data[page_bytes:].ljust((num_pages - 1) * page_bytes, b"\0"))
    return closing(database)


def _rows_in_order(database: sqlite3.Connection, table: Table, num_bytes: int) -> Iterator[tuple[int, Row]]:
    """Behind a row that cannot be read, the next one that can be is looked for in steps that double, then halve."""
    columns = ", ".join(("rowid", *table.columns))
    query = f"SELECT {columns} FROM {table.name} NOT INDEXED WHERE rowid >= ? ORDER BY rowid LIMIT 1"

    def row_behind(number: int) -> tuple[bool, Row | None]:
        """Whether it can be read, and the row; None behind the last."""
        try:
            found = database.execute(query, (number + 1,)).fetchone()
        except (sqlite3.Error, UnicodeDecodeError):
            return False, None
        return found is None or found[0] > number, found  # a damaged tree may lead back

    try:
        (last,) = database.execute(f"SELECT max(rowid) FROM {table.name} NOT INDEXED").fetchone()
    except (sqlite3.Error, UnicodeDecodeError):
        last = None
    last = last or num_bytes // 4096 * _MAX_ROWS_OF_PAGE + _MAX_ROWS_OF_PAGE
    number, step, unreadable = 0, 1, 0
    while number < last:
        is_readable, found = row_behind(number)
        if not is_readable:
            unreadable, step = number, 2 * step
            number = min(number + step // 2, last - 1) if number < last - 1 else last
            continue
        if step > 1:
            while number - unreadable > 1:
                between = (unreadable + number) // 2
                if row_behind(between)[0]:
                    number = between
                else:
                    unreadable = between
            step = 1
            continue
        if found is None:
            return
        number = found[0]
        if table.fits(found[1:]):
            yield number, found[1:]
