"""Tables of which each row has a sentence below it, so that they fit a terminal of 100 columns."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from perseus_dist.library.tables import Column, format_table

_WIDTH = 100
_INDENT = "  "


def format_annotated(columns: Sequence[Column], records: Sequence[Mapping[str, Any]], text: str) -> str:
    """A line for each record, as ``format_table`` makes it, and below each the record's sentence.

    Args:
        columns: Of the table.
        records: Rows.
        text: Key of the sentence in a record; nothing stands below a row whose sentence is empty.
    """
    lines = [line.rstrip() for line in format_table(columns, records).splitlines()]
    num_heads = len(lines) - len(records)
    shown = lines[:num_heads]
    for line, record in zip(lines[num_heads:], records, strict=True):
        shown.append(line)
        shown += textwrap.wrap(record[text], _WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT)
    return "".join(f"{line}\n" for line in shown)
