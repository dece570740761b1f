"""The profile file format: rows of a CSV, checked one by one.

The header is ``stage,instruction,frequency,time,energy`` (MHz, s, J, per GPU), the format of the Perseus artifact and
of Zeus, so that their users can move. ``samples``, ``time_std``, ``energy_std`` and ``gpu`` are optional, the order of
columns is free, and columns with other names are left alone. What rows mean together is ``profile.py``'s business.

A row ``send_f`` or ``send_b`` is the transfer of one microbatch's activation to the next stage, or gradient to the
previous one, from the stage that sends. No clock changes it: ``frequency`` is 0 or empty. An ``energy`` of 0, or none,
says that the sender draws blocking power meanwhile. ``time_p90``, if it is there, is what nine in ten of an iteration's
transfers take no longer than, where ``time`` is what they take at least.

A row ``between_iterations`` of stage 0 is what an iteration takes behind all that the schedule runs, in which all GPUs
draw blocking power. It has neither frequency nor energy.

A row ``overlap_f`` of 0 s, or none, says that the instruction which names a pair's forward takes no time of its own.

A row ``clock_change`` says how long it takes from asking for the clock ``frequency`` to having it, on the GPUs of a
stage: ``time`` is the median and ``time_p90`` the 90th percentile, which rows of computations and of other constants
leave empty. ``energy`` is 0 or empty.
"""

import csv
import io
import math
import os
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from perseus_dist.errors import PerseusError, ProfileError
from perseus_dist.number_text import read_real
from perseus_dist.planning.input_file import InputFileError, read_input
from perseus_dist.planning.output_file import write_output
from perseus_dist.planning.profile.power_bounds import MAX_GPU_POWER_W, MIN_GPU_POWER_W
from perseus_dist.planning.schedule.instruction import (
    BETWEEN_ITERATIONS,
    CLOCK_CHANGE,
    OVERLAPPED_FORWARD,
    SENDS,
    Kind,
    kind_from_profile_name,
    profile_name,
)

REQUIRED = ("stage", "instruction", "frequency", "time", "energy")
OPTIONAL = ("samples", "time_std", "energy_std", "gpu", "time_p90")

# Bounds catch wrong units (ms, mJ, kHz) and keep every sum of an iteration inside 64-bit picoseconds and microjoules.
MAX_STAGE = 100_000
MAX_CLOCK_MHZ = 100_000
MIN_TIME_S, MAX_TIME_S = 1e-9, 1e4
MIN_ENERGY_J, MAX_ENERGY_J = 1e-6, 1e6
MAX_SAMPLES = 10**9
MAX_CHANGE_S = 10.0


class Row(NamedTuple):
    """One line of a profile.

    Attributes:
        line: Line in the file, the header being line 1.
        stage: Virtual stage.
        kind: Instruction kind, as in ``instruction.Kind``, or a constant's kind.
        clock_mhz: SM clock; 0 for a transfer and for time between iterations.
        time_s: Duration.
        energy_j: Energy of one GPU; 0 for a transfer, or time between iterations, under blocking power.
        samples: How many runs the row averages.
        time_std_s: Standard deviation over those runs; NaN where the file does not say.
        energy_std_j: The same of the energy.
        gpu: Label of the GPU within its tensor-parallel group; empty where the file does not say.
        time_p90_s: Of changes of clocks and of transfers, what nine in ten take no longer than; NaN where the file does
            not say.
    """

    line: int
    stage: int
    kind: str
    clock_mhz: int
    time_s: float
    energy_j: float
    samples: int = 1
    time_std_s: float = math.nan
    energy_std_j: float = math.nan
    gpu: str = ""
    time_p90_s: float = math.nan


class _Column(NamedTuple):
    name: str
    parse: Callable[[str], object]  # raises ValueError or PerseusError
    expected: str


def _real(low: float, high: float) -> Callable[[str], float]:
    return lambda text: read_real(text, low, high)


def _whole(low: int, high: int) -> Callable[[str], int]:
    real = _real(low, high)

    def parse(text: str) -> int:
        value = real(text)
        if value != int(value):
            raise ValueError
        return int(value)

    return parse


def _std(high: float) -> Callable[[str], float]:
    real = _real(0.0, high)
    return lambda text: real(text) if text else math.nan


def _label(text: str) -> str:
    if not text.isprintable():  # messages are one line
        raise ValueError
    return text


_COLUMNS = (  # in the order of Row
    _Column("stage", _whole(0, MAX_STAGE), f"a whole number from 0 to {MAX_STAGE}"),
    _Column(
        "instruction",
        kind_from_profile_name,
        "forward, backward, backward_input, backward_weight, forward_backward or a constant's lower-case name",
    ),
    _Column("frequency", _whole(1, MAX_CLOCK_MHZ), f"a whole number of MHz from 1 to {MAX_CLOCK_MHZ}"),
    _Column("time", _real(MIN_TIME_S, MAX_TIME_S), f"seconds from {MIN_TIME_S:g} to {MAX_TIME_S:g}"),
    _Column("energy", _real(MIN_ENERGY_J, MAX_ENERGY_J), f"joules from {MIN_ENERGY_J:g} to {MAX_ENERGY_J:g}"),
    _Column("samples", _whole(1, MAX_SAMPLES), f"a whole number from 1 to {MAX_SAMPLES}"),
    _Column("time_std", _std(MAX_TIME_S), f"seconds from 0 to {MAX_TIME_S:g}, or nothing"),
    _Column("energy_std", _std(MAX_ENERGY_J), f"joules from 0 to {MAX_ENERGY_J:g}, or nothing"),
    _Column("gpu", _label, "a label of printable characters"),
    _Column("time_p90", _std(MAX_TIME_S), f"seconds from 0 to {MAX_TIME_S:g}, or nothing"),
)
_MAY_BE_NONE = {  # by kind
    **dict.fromkeys(SENDS, ("frequency", "energy")),
    BETWEEN_ITERATIONS: ("frequency", "energy"),
    CLOCK_CHANGE: ("energy",),
    OVERLAPPED_FORWARD: ("frequency", "time", "energy"),
}
_FIELD_OF_COLUMN = dict(zip((column.name for column in _COLUMNS), Row._fields[1:], strict=True))


def read_rows(path: str | os.PathLike[str]) -> list[Row]:
    """Every data row of a profile, in file order, but for those that say that something costs nothing.

    Raises:
        ProfileError: The file cannot be read, is not UTF-8, lacks a column or any row, or a cell is not what its column
            holds; the message names file, line and column.
    """
    lines = _lines(path)
    _, header = next(lines, (1, []))
    columns = _columns(path, header)
    rows = []
    for line, cells in lines:
        if len(cells) != len(header):
            raise ProfileError(
                f"{path}:{line}: saw {len(cells)} cells, expected {len(header)} as in the header; "
                "correct the row or take it out"
            )
        values: dict[str, object] = {}
        for index, column in columns:
            text = cells[index].strip(" \t")
            if column.name in _MAY_BE_NONE.get(str(values.get("kind")), ()) and _is_nothing(text):
                values[_FIELD_OF_COLUMN[column.name]] = 0
                continue
            try:
                values[_FIELD_OF_COLUMN[column.name]] = column.parse(text)
            except (ValueError, PerseusError):
                raise ProfileError(
                    f"{path}:{line}: column '{column.name}': saw {_shown(text)}, expected {column.expected}; "
                    "correct the row or take it out"
                ) from None
        row = Row(line=line, **values)  # type: ignore[arg-type]
        _check_power(path, row)
        _check_change(path, row)
        _check_between(path, row)
        if row.time_s > 0:
            rows.append(row)
    if not rows:
        raise ProfileError(f"{path}:1: saw a header and no rows, expected a row for every clock; profile again")
    return rows


def write_rows(path: str | os.PathLike[str], rows: Iterable[Row]) -> None:
    """Write rows so that reading them back gives the same numbers to the last bit; of samples at most ``MAX_SAMPLES``.

    Raises:
        OutputError: The place cannot be written to; nothing is left half-written.
    """
    rows = list(rows)
    has_p90 = any(not math.isnan(row.time_p90_s) for row in rows)
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(REQUIRED + OPTIONAL if has_p90 else REQUIRED + OPTIONAL[:-1])
    for row in rows:
        std = map(_known, (row.time_std_s, row.energy_std_j))
        numbers = (row.clock_mhz, repr(row.time_s), repr(row.energy_j), min(row.samples, MAX_SAMPLES))
        p90 = (_known(row.time_p90_s),) if has_p90 else ()
        writer.writerow((row.stage, profile_name(row.kind), *numbers, *std, row.gpu, *p90))
    write_output(path, text.getvalue().encode())


def _check_power(path: str | os.PathLike[str], row: Row) -> None:
    """Refuse what no GPU draws while it computes: figures in ms, mJ or uJ. A constant may cost next to nothing."""
    if row.time_s == 0:
        if row.energy_j > 0:
            raise ProfileError(
                f"{path}:{row.line}: saw {row.energy_j:g} J in 0 s, expected no energy in no time; correct the row or "
                "take it out"
            )
        return
    power_w = row.energy_j / row.time_s
    if row.kind in set(Kind) and not MIN_GPU_POWER_W <= power_w <= MAX_GPU_POWER_W:
        raise ProfileError(
            f"{path}:{row.line}: saw {row.energy_j:g} J in {row.time_s:g} s, which is {power_w:.3g} W, expected "
            f"{MIN_GPU_POWER_W:g} to {MAX_GPU_POWER_W:g} W of one GPU; give seconds and joules"
        )


def _is_nothing(text: str) -> bool:
    """Whether a cell is empty, or zero however that is written."""
    try:
        return not text or read_real(text, 0.0, 0.0) == 0
    except ValueError:
        return False


def _known(value: float) -> str:
    return "" if math.isnan(value) else repr(value)


def _check_change(path: str | os.PathLike[str], row: Row) -> None:
    """Refuse a latency that is none, in ms or with energy, and a percentile that is too low or of something else."""
    p90_s = row.time_p90_s
    if row.kind in SENDS:
        seen = f"a transfer of {row.time_s:g} s, 90th percentile {p90_s:g} s"
        expected = "a percentile not below the time"
        is_right = not p90_s < row.time_s
    elif row.kind != CLOCK_CHANGE:
        seen = f"time_p90 of {profile_name(row.kind)!r}"
        expected = "none but of clock_change, send_f and send_b"
        is_right = math.isnan(p90_s)
    else:
        seen = f"a change of clocks of {row.time_s:g} s, 90th percentile {p90_s:g} s, {row.energy_j:g} J"
        expected = f"seconds up to {MAX_CHANGE_S:g}, the percentile not below the median, no energy"
        is_right = max(row.time_s, p90_s) <= MAX_CHANGE_S and not p90_s < row.time_s and row.energy_j == 0
    if not is_right:
        raise ProfileError(f"{path}:{row.line}: saw {seen}, expected {expected}; correct the row or take it out")


def _check_between(path: str | os.PathLike[str], row: Row) -> None:
    """Refuse time between iterations that is a stage's own, or costs more than waiting."""
    if row.kind == BETWEEN_ITERATIONS and (row.stage or row.clock_mhz or row.energy_j):
        raise ProfileError(
            f"{path}:{row.line}: saw time between iterations of stage {row.stage}, {row.clock_mhz} MHz, "
            f"{row.energy_j:g} J, expected stage 0, no frequency and no energy; correct the row or take it out"
        )


def _lines(path: str | os.PathLike[str]) -> Iterator[tuple[int, list[str]]]:
    """(line, cells) of every line that is not blank."""
    try:
        data = read_input(path)
    except InputFileError as error:
        raise ProfileError(f"{error}; name an existing profile CSV") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ProfileError(
            f"{path}:{line}: saw bytes that are not UTF-8, expected UTF-8 text; save the profile as a UTF-8 CSV"
        ) from error
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        yield from ((reader.line_num, cells) for cells in reader if cells)
    except csv.Error as error:
        raise ProfileError(
            f"{path}:{reader.line_num}: not a CSV row ({error}), expected cells apart by commas; correct the row"
        ) from error


def _columns(path: str | os.PathLike[str], header: list[str]) -> list[tuple[int, _Column]]:
    """(position in the header, column) of each column that the file has, in the order of ``_COLUMNS``."""
    names = [name.strip() for name in header]
    for name in REQUIRED + OPTIONAL:
        if names.count(name) > 1:
            raise ProfileError(f"{path}:1: saw column '{name}' {names.count(name)} times, expected once; keep one")
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        seen = _shown(",".join(names)) if names else "an empty file"
        raise ProfileError(
            f"{path}:1: saw {seen}, expected a header with the columns {','.join(REQUIRED)}; add {', '.join(missing)}"
        )
    return [(names.index(column.name), column) for column in _COLUMNS if column.name in names]


def _shown(text: str, length: int = 60) -> str:
    """Text of a file, fit for one line of a message."""
    return repr(text if len(text) <= length else text[:length] + "...")
