"""Sums of energy records as a table, CSV and JSON."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, fields

from perseus_dist.cli.annotated_table import format_annotated, wrapped
from perseus_dist.library.tables import Column
from perseus_dist.runlog.accounting.record import EnergyRecord
from perseus_dist.runlog.accounting.sums import EnergySums, Group, sum_all, sum_up

_J_PER_KWH = 3.6e6
_S_PER_H = 3600.0
_FORMULA = ("=", "+", "-", "@")  # a cell that begins so is computed by spreadsheets
_COLUMNS: tuple[Column, ...] = (
    ("runs", "num_runs", "d"),
    ("incomplete", "num_incomplete", "d"),
    ("GPU h", "gpu_h", ".4g"),
    ("kWh", "energy", "s"),
    ("saved\n[kWh]", "saved", "s"),
    ("between\n[kWh]", "interval", "s"),
    ("saved", "percent", "s"),
    ("lost\n[s]", "lost_s", ".4g"),
)
_UNKNOWN = "unknown"


def table_text(records: Sequence[EnergyRecord], by: str) -> str:
    """A table for a terminal, and a line for each incomplete run; ends in a line break."""
    sums = sum_up(records, Group(by))
    if not sums:
        return "No energy records.\n"
    columns = ((by, "name", "s"), *_COLUMNS)
    incomplete = (
        f"incomplete: {one.submission.slurm_job_id or one.job_id} of {one.submission.user or _UNKNOWN}: {one.reason}"
        for one in records
        if not one.is_complete
    )
    table = format_annotated(columns, [_row(one) for one in sums], "text", is_plain=True)
    return "".join([table, *(f"{line}\n" for sentence in incomplete for line in wrapped(sentence, first=""))])


def line_text(records: Sequence[EnergyRecord]) -> str:
    """All records in one line, for a job's comment; ASCII, and without quotation marks."""
    sums = sum_all(records)
    if sums.num_unknown == sums.num_runs:
        return "perseus: energy not known"
    percent = "" if sums.saved_percent is None else f"{sums.saved_percent:.1f} %, "
    saved = f"{_kwh(sums.saved_j)} kWh ({percent}between {_kwh(sums.saved_low_j)} and {_kwh(sums.saved_high_j)} kWh)"
    line = f"perseus: drew {_kwh(sums.energy_j)} kWh, saved {saved}, lost {sums.lost_s:.4g} s"
    return f"{line}; {sums.num_incomplete} of {sums.num_runs} runs incomplete" if sums.num_incomplete else line


def csv_text(records: Sequence[EnergyRecord], by: str) -> str:
    """A line for each sum, in joules and seconds; empty where something is not known."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [field.name for field in fields(EnergySums)]
    writer.writerow([by if name == "name" else name for name in names])
    for one in sum_up(records, Group(by)):
        writer.writerow([_cell(getattr(one, name)) for name in names])
    return text.getvalue()


def json_text(records: Sequence[EnergyRecord], by: str, skipped: Sequence[str]) -> str:
    """Sums, records and what was skipped, in one object."""
    sums = [asdict(one) for one in sum_up(records, Group(by))]
    shown = [asdict(record) for record in records]
    return json.dumps({"by": by, "sums": sums, "records": shown, "skipped": list(skipped)})


def _row(one: EnergySums) -> dict[str, object]:
    return {
        "name": one.name or _UNKNOWN,
        "num_runs": one.num_runs,
        "num_incomplete": one.num_incomplete,
        "gpu_h": one.gpu_s / _S_PER_H,
        "energy": f"{'> ' if one.num_unknown else ''}{_kwh(one.energy_j)}",
        "saved": _kwh(one.saved_j),
        "interval": f"{_kwh(one.saved_low_j)} to {_kwh(one.saved_high_j)}",
        "percent": _UNKNOWN if one.saved_percent is None else f"{one.saved_percent:.1f} %",
        "lost_s": one.lost_s,
        "text": "",
    }


def _kwh(energy_j: float) -> str:
    return f"{energy_j / _J_PER_KWH:.4g}"


def _cell(value: object) -> object:
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return "" if value is None else value
