"""Tables of which each row has a sentence below it, so that they fit a terminal of 100 columns."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from perseus_dist.library.tables import Column, format_table

WIDTH = 100
_INDENT = "  "
_LEAST = 12  # characters that stay of a name


def format_annotated(
    columns: Sequence[Column], records: Sequence[Mapping[str, Any]], text: str, *, is_plain: bool = False
) -> str:
    """A line for each record, as ``format_table`` makes it, and below each the record's sentence.

    Where lines would not fit 100 columns, the longest names are cut short, and stand below the line in full.

    Args:
        columns: Of the table.
        records: Rows.
        text: Key of the sentence in a record; nothing stands below a row whose sentence is empty.
        is_plain: As for ``format_table``.
    """
    limits = _limits(columns, records)
    shown_records = [{**one, **{key: _cut(one[key], limit) for key, limit in limits.items()}} for one in records]
    lines = [line.rstrip() for line in format_table(columns, shown_records, is_plain=is_plain).splitlines()]
    num_heads = len(lines) - len(records)
    shown = lines[:num_heads]
    names = {key: header.replace("\n", " ") for header, key, _ in columns}
    for line, record in zip(lines[num_heads:], records, strict=True):
        whole = [f"{names[key]}: {record[key]}" for key, limit in limits.items() if len(record[key]) > limit]
        shown.append(line)
        for sentence in (*whole, record[text]):
            shown += wrapped(sentence)
    return "".join(f"{line}\n" for line in shown)


def wrapped(sentence: str, *, first: str = _INDENT) -> list[str]:
    """Lines of a sentence that fit, below others; none of an empty one.

    Args:
        sentence: Of one line.
        first: What its first line begins with.
    """
    return textwrap.wrap(sentence, WIDTH, initial_indent=first, subsequent_indent=_INDENT)


def _limits(columns: Sequence[Column], records: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """By the key of a column of strings, to how many characters its cells are cut; those that need not are left out."""
    names = [(key, max((len(part) for part in header.splitlines()), default=0)) for header, key, form in columns]
    strings = {key: least for (key, least), (_, _, form) in zip(names, columns, strict=True) if form == "s"}
    widths = {key: max((len(one[key]) for one in records), default=0) for key in strings}
    limits: dict[str, int] = {}
    excess = max(map(len, format_table(columns, records, is_plain=True).splitlines()), default=0) - WIDTH
    while excess > 0:
        key = max(widths, key=lambda one: widths[one], default=None)
        if key is None or widths[key] <= (least := max(_LEAST, strings[key])):
            break
        below = max((width for other, width in widths.items() if other != key and width < widths[key]), default=0)
        limit = max(widths[key] - excess, min(below, widths[key] - 1), least)
        excess -= widths[key] - limit
        limits[key] = widths[key] = limit
    return limits


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}\N{HORIZONTAL ELLIPSIS}"
