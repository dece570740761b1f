"""Tables for people."""

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

WIDTH = 1000
"""Wider than any table: rows are neither cut in pipes, which have no width, nor squeezed on a terminal."""

Column = tuple[str, str, str]
"""Header, key of a record, format; a column of strings (format ``s``) is aligned left, one of numbers right."""


def format_table(columns: Iterable[Column], records: Iterable[Mapping[str, Any]]) -> str:
    """One line for each record below one or more of headers; ends in a line break."""
    columns = tuple(columns)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for header, _, form in columns:
        table.add_column(Text(header), justify="left" if form == "s" else "right", vertical="bottom")
    for record in records:
        table.add_row(*(Text(format(record[key], form)) for _, key, form in columns))
    console = Console(highlight=False, width=WIDTH)
    with console.capture() as text:  # for the caller to print: rich exits when the reader of a pipe has left
        console.print(table)
    return text.get()
