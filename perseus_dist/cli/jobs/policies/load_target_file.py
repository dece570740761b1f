"""Load targets in a file: CSV with the columns name, start, end, watts and best_effort."""

import argparse
import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from perseus_dist.cli.jobs.job_arguments import name
from perseus_dist.cli.moment_option import moment
from perseus_dist.errors import PerseusError
from perseus_dist.number_text import read_real

MAX_WATTS = 1e12
_COLUMNS = ("name", "start", "end", "watts", "best_effort")
_WORDS = {"yes": True, "no": False}
_MAX_ROWS = 1024


class LoadTargetFileError(PerseusError):
    """A file that holds no load targets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTargetRow:
    """A load target, times as Unix times."""

    name: str
    start_s: float
    end_s: float
    watts: float
    best_effort: bool


def read_load_targets(path: Path) -> list[LoadTargetRow]:
    """All rows of a file.

    Raises:
        LoadTargetFileError: It cannot be read, or a row is no load target.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            if tuple(reader.fieldnames or ()) != _COLUMNS:
                raise LoadTargetFileError(f"{path}: saw another first line, expected {','.join(_COLUMNS)}")
            rows = list(_rows(path, reader))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise LoadTargetFileError(f"{path}: cannot be read ({error}); name a CSV file of load targets") from error
    names = [row.name for row in rows]
    if twice := next((one for one in names if names.count(one) > 1), None):
        raise LoadTargetFileError(f"{path}: saw load target {twice} twice, expected each name once")
    if not rows:
        raise LoadTargetFileError(f"{path}: saw no load target, expected one or more")
    return rows


def _rows(path: Path, rows: "csv.DictReader[str]") -> Iterator[LoadTargetRow]:
    for number, row in enumerate(rows, 1):
        if number > _MAX_ROWS:
            raise LoadTargetFileError(f"{path}: saw more than {_MAX_ROWS} load targets, expected up to that many")
        try:
            yield _row(row)
        except (ValueError, TypeError, KeyError, argparse.ArgumentTypeError) as error:
            expected = (
                "a name, two times with their offset from UTC, the second the later, watts above 0, and yes or no"
            )
            raise LoadTargetFileError(
                f"{path}:{rows.line_num}: saw {','.join(map(str, row.values()))}, expected {expected}"
            ) from error


def _row(row: Mapping[str, str]) -> LoadTargetRow:
    start_s, end_s = moment(row["start"]).timestamp(), moment(row["end"]).timestamp()
    if len(row) > len(_COLUMNS) or start_s >= end_s:
        raise ValueError("a cell too many, or an end that is not behind the start")
    return LoadTargetRow(
        name=name(row["name"]),
        start_s=start_s,
        end_s=end_s,
        watts=read_real(row["watts"], 1e-3, MAX_WATTS),
        best_effort=_WORDS[row["best_effort"]],
    )
