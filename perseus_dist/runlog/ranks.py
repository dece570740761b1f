"""Reader of each rank's files: how long its iterations took, and some of them instruction by instruction."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perseus_dist.messages.from_agent import IterationReport
from perseus_dist.messages.terms import NO_POINT
from perseus_dist.runlog.file_names import iterations_file
from perseus_dist.runlog.json_fields import Fields, FieldsError, read_json
from perseus_dist.runlog.json_lines import objects_of, read_lines
from perseus_dist.runlog.timed_iteration import TimedIteration, TimedRun

_MAX_ITERATION_NS = 10**15
_MAX_CLOCK_MHZ = 100_000
_MAX_LEVELS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTimeline:
    """A rank, its GPU, and the iterations that it kept.

    Attributes:
        wall_minus_monotonic_ns: [ns] what makes the rank's times comparable with those of other hosts.
        gpu_control: Who sets its clocks; ``observe`` where they are not set.
        gpu_refusal: Why they are not set; empty otherwise.
        switch_latency_s: [s] that a clock change takes.
    """

    rank: int
    pp_rank: int
    dp_rank: int
    tp_rank: int
    wall_minus_monotonic_ns: int
    gpu_uuid: str
    gpu_name: str
    gpu_control: str
    gpu_refusal: str
    switch_latency_s: float
    iterations: tuple[TimedIteration, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankIterations:
    """Iterations read of a rank.

    Attributes:
        reports: Ascending; where one was begun twice, the last one counts.
        is_whole: Whether these are all that the rank has kept, and it has kept all.
    """

    reports: tuple[IterationReport, ...]
    is_whole: bool


def read_iterations(folder: Path, rank: int, notes: list[str], *, max_lines: int) -> RankIterations:
    """The iterations of a rank that the report needs: see ``runlog.iteration_log`` for the files.

    Args:
        folder: The report's.
        rank: Global.
        notes: Gets a sentence for everything that is left out.
        max_lines: Of a longer run: half from its begin, half from its end; with segments a quarter each from its end
            and from a sample between.
    """
    name = iterations_file(rank)
    lines = read_lines(folder / name, notes)
    levels = _read_levels(folder, rank, notes)
    is_whole = not levels and len(lines) <= max_lines
    if levels:
        newest, *sparser = levels
        num_sparse = max_lines // (4 * max(1, len(sparser)))
        sample = [line for level in reversed(sparser) for line in level[-num_sparse:]]
        lines = [*lines[: max_lines // 2], *sample, *newest[-(max_lines // 4) :]]
    elif not is_whole:
        lines = lines[: max_lines // 2] + lines[-(max_lines - max_lines // 2) :]
    if not is_whole:
        notes.append("this run is long: figures of single iterations are of its begin, its end and a sample between")
    found: dict[int, IterationReport] = {}
    for fields in objects_of(lines, name, notes):
        try:
            report = _report(fields)
        except FieldsError as error:
            notes.append(f"{name}: a line is left out: {error}")
        else:
            found[report.iteration] = report
    return RankIterations(reports=tuple(found[iteration] for iteration in sorted(found)), is_whole=is_whole)


def _read_levels(folder: Path, rank: int, notes: list[str]) -> list[list[bytes]]:
    """The lines of each level, the densest first, the older of its two segments first."""
    levels = []
    for level in range(_MAX_LEVELS):
        segments = [read_lines(folder / iterations_file(rank, f"{level}{letter}"), notes) for letter in "ab"]
        if not any(segments):
            break
        segments.sort(key=_first_iteration)
        levels.append([line for segment in segments for line in segment])
    return levels


def _first_iteration(lines: Sequence[bytes]) -> int:
    for line in lines:
        with suppress(ValueError, FieldsError):
            return Fields(read_json(line)).whole("iteration")
    return -1


def _report(fields: Fields) -> IterationReport:
    return IterationReport(
        iteration=fields.whole("iteration"),
        time_s=fields.real("time_s", low=0.0, high=_MAX_ITERATION_NS / 1e9),
        pipeline_time_s=fields.real("pipeline_time_s", 0.0, low=0.0, high=_MAX_ITERATION_NS / 1e9),
        energy_j=fields.real_or_none("energy_j"),
        table_revision=fields.whole("table_revision", 0),
        point=fields.whole("point", NO_POINT, low=NO_POINT),
        tokens=fields.real("tokens", 0.0, low=0.0),
    )


def read_timeline(path: Path, notes: list[str]) -> RankTimeline | None:
    """A rank's timeline; None, and a note, where it cannot be understood, and None where there is none."""
    lines = objects_of(read_lines(path, notes), path.name, notes)
    if not lines:
        return None
    try:
        header, gpu = lines[0], lines[0].inner("gpu")
        return RankTimeline(
            rank=header.whole("rank"),
            pp_rank=header.whole("pp_rank"),
            dp_rank=header.whole("dp_rank"),
            tp_rank=header.whole("tp_rank"),
            wall_minus_monotonic_ns=header.whole("wall_minus_monotonic_ns", low=-(2**63)),
            gpu_uuid=gpu.text("uuid", ""),
            gpu_name=gpu.text("name", ""),
            gpu_control=gpu.text("control", ""),
            gpu_refusal=gpu.text("refusal", ""),
            switch_latency_s=header.real("switch_latency_s", 0.0, low=0.0, high=_MAX_ITERATION_NS / 1e9),
            iterations=tuple(_kept_iteration(line) for line in lines[1:]),
        )
    except FieldsError as error:
        notes.append(f"{path.name} is left out: {error}")
        return None


def _kept_iteration(fields: Fields) -> TimedIteration:
    begin_ns = fields.whole("begin_ns")
    end_ns = fields.whole("end_ns", high=begin_ns + _MAX_ITERATION_NS)
    rows = fields.rows("runs", len(TimedRun._fields))
    return TimedIteration(
        iteration=fields.whole("iteration"),
        table_revision=fields.whole("table_revision", 0),
        point=fields.whole("point", NO_POINT, low=NO_POINT),
        begin_ns=begin_ns,
        end_ns=end_ns,
        planned_clocks_mhz=fields.wholes_or_none("planned_clocks_mhz"),
        runs=tuple(_kept_run(row, begin_ns) for row in rows),
    )


def _kept_run(row: Sequence[Any], iteration_begin_ns: int) -> TimedRun:
    chunk, kind, *numbers = row
    if not isinstance(kind, str) or any(type(number) is not int for number in (chunk, *numbers)):
        raise FieldsError(f"'runs': saw {row}, expected chunk, kind, microbatch, begin, end and two clocks")
    run = TimedRun(chunk, kind, *numbers)
    times_ns = (run.begin_ns, run.end_ns)
    if chunk < 0 or not all(abs(time_ns - iteration_begin_ns) <= _MAX_ITERATION_NS for time_ns in times_ns):
        raise FieldsError(f"'runs': saw {row}, expected times in the iteration, which begins at {iteration_begin_ns}")
    if not all(0 <= clock_mhz <= _MAX_CLOCK_MHZ for clock_mhz in (run.requested_mhz, run.observed_mhz)):
        raise FieldsError(f"'runs': saw {row}, expected clocks up to {_MAX_CLOCK_MHZ} MHz")
    return run
