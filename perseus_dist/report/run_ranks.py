"""What each rank's agent has kept: how long its iterations took, and some of them instruction by instruction."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from perseus_dist.messages import NO_POINT, IterationReport
from perseus_dist.report.run_fields import Fields, FieldsError
from perseus_dist.report.run_lines import objects_of, read_lines

_MAX_ITERATION_NS = 10**15
_MAX_CLOCK_MHZ = 100_000


class KeptRun(NamedTuple):
    """One instruction as it ran. Times are CLOCK_MONOTONIC [ns]; a clock is 0 where nobody asked for or saw one."""

    chunk: int
    kind: str
    microbatch: int
    begin_ns: int
    end_ns: int
    requested_mhz: int
    observed_mhz: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptIteration:
    """One iteration of a rank, instruction by instruction.

    Attributes:
        planned_clocks_mhz: (num_instructions) of the rank's order, 0 for none; None where there was no plan.
        runs: In the order in which they ran.
    """

    iteration: int
    table_revision: int
    point: int
    begin_ns: int
    end_ns: int
    planned_clocks_mhz: tuple[int, ...] | None
    runs: tuple[KeptRun, ...]

    @property
    def is_planned(self) -> bool:
        """Whether it ran under a plan."""
        return self.point != NO_POINT


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTimeline:
    """A rank, its GPU, and the iterations that it kept.

    Attributes:
        wall_minus_monotonic_ns: [ns] what makes the rank's times comparable with those of other hosts.
        gpu_control: Who sets its clocks; ``observe`` where nobody does.
        gpu_refusal: Why nobody does; empty otherwise.
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
    iterations: tuple[KeptIteration, ...]


def read_iterations(path: Path, notes: list[str], *, max_lines: int) -> tuple[IterationReport, ...]:
    """What the report needs of a rank's iterations, ascending; where one was begun twice, the last one counts.

    Args:
        path: The file; nothing where there is none.
        notes: Gets a sentence for everything that is left out.
        max_lines: More than these are left out in the middle of the run.
    """
    lines = read_lines(path, notes)
    if len(lines) > max_lines:
        notes.append(f"of each rank only the first and the last {max_lines // 2} iterations are read; there are more")
        lines = lines[: max_lines // 2] + lines[-(max_lines - max_lines // 2) :]
    found: dict[int, IterationReport] = {}
    for fields in objects_of(lines, path.name, notes):
        try:
            report = _report(fields)
        except FieldsError as error:
            notes.append(f"{path.name}: a line is left out: {error}")
        else:
            found[report.iteration] = report
    return tuple(found[iteration] for iteration in sorted(found))


def _report(fields: Fields) -> IterationReport:
    return IterationReport(
        iteration=fields.whole("iteration"),
        time_s=fields.real("time_s", low=0.0, high=_MAX_ITERATION_NS / 1e9),
        pipeline_time_s=fields.real("pipeline_time_s", 0.0, low=0.0, high=_MAX_ITERATION_NS / 1e9),
        energy_j=fields.real_or_none("energy_j"),
        table_revision=fields.whole("table_revision", 0),
        point=fields.whole("point", NO_POINT, low=NO_POINT),
    )


def read_timeline(path: Path, notes: list[str]) -> RankTimeline | None:
    """What a rank kept; None, and a note, where that cannot be understood, and None where there is nothing."""
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


def _kept_iteration(fields: Fields) -> KeptIteration:
    begin_ns = fields.whole("begin_ns")
    end_ns = fields.whole("end_ns", high=begin_ns + _MAX_ITERATION_NS)
    rows = fields.rows("runs", len(KeptRun._fields))
    return KeptIteration(
        iteration=fields.whole("iteration"),
        table_revision=fields.whole("table_revision", 0),
        point=fields.whole("point", NO_POINT, low=NO_POINT),
        begin_ns=begin_ns,
        end_ns=end_ns,
        planned_clocks_mhz=fields.wholes_or_none("planned_clocks_mhz"),
        runs=tuple(_kept_run(row, begin_ns) for row in rows),
    )


def _kept_run(row: Sequence[Any], iteration_begin_ns: int) -> KeptRun:
    chunk, kind, *numbers = row
    if not isinstance(kind, str) or any(type(number) is not int for number in (chunk, *numbers)):
        raise FieldsError(f"'runs': saw {row}, expected chunk, kind, microbatch, begin, end and two clocks")
    run = KeptRun(chunk, kind, *numbers)
    times_ns = (run.begin_ns, run.end_ns)
    if chunk < 0 or not all(abs(time_ns - iteration_begin_ns) <= _MAX_ITERATION_NS for time_ns in times_ns):
        raise FieldsError(f"'runs': saw {row}, expected times in the iteration, which begins at {iteration_begin_ns}")
    if not all(0 <= clock_mhz <= _MAX_CLOCK_MHZ for clock_mhz in (run.requested_mhz, run.observed_mhz)):
        raise FieldsError(f"'runs': saw {row}, expected clocks up to {_MAX_CLOCK_MHZ} MHz")
    return run
