"""Tables for people."""

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

WIDTH = 1000
"""Wider than any table: rows are neither cut in pipes, which have no width, nor squeezed on a terminal."""

Column = tuple[str, str, str]
"""Header, key of a record, format; a column of strings (format ``s``) is aligned left, one of numbers right."""


def format_table(columns: Iterable[Column], records: Iterable[Mapping[str, Any]], *, is_plain: bool = False) -> str:
    """One line for each record below one or more of headers, bold on a terminal unless plain; ends in a line break."""
    columns = tuple(columns)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for header, _, form in columns:
        table.add_column(Text(header), justify="left" if form == "s" else "right", vertical="bottom")
    for record in records:
        table.add_row(*(Text(format(record[key], form)) for _, key, form in columns))
    plain: dict[str, Any] = {"color_system": None, "force_jupyter": False} if is_plain else {}
    console = Console(highlight=False, width=WIDTH, **plain)
    with console.capture() as text:  # for the caller to print: rich exits when the reader of a pipe has left
        console.print(table)
    return "".join(f"{line.rstrip()}\n" for line in text.get().splitlines()) if is_plain else text.get()


def html_table(columns: Iterable[Column], records: Iterable[Mapping[str, Any]]) -> str:
    """The table of ``format_table`` as HTML, for notebooks."""
    columns = tuple(columns)

    def row(tag: str, cells: Iterable[str]) -> str:
        styles = ("left" if form == "s" else "right" for _, _, form in columns)
        shown = (
            f'<{tag} style="text-align: {style}">{escape(cell)}</{tag}>'
            for style, cell in zip(styles, cells, strict=True)
        )
        return f"<tr>{''.join(shown)}</tr>"

    head = row("th", (header.replace("\n", " ") for header, _, _ in columns))
    body = "".join(row("td", (format(record[key], form) for _, key, form in columns)) for record in records)
    return f"<table><thead>{head}</thead><tbody>{body}</tbody></table>"
