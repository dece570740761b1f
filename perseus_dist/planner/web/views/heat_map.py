"""Heat map of a job: planned and read figures of every pipeline stage in every data-parallel pipeline."""

import zlib
from array import array
from collections import defaultdict
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

from perseus_dist.messages.terms import NO_POINT
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.web.views.wording import NOT_KNOWN
from perseus_dist.rpc.v1 import planner_pb2 as pb

MAX_PIPELINES = 64
MAX_STAGES = 64
NUM_SHADES = 8

Planned = dict[tuple[int, int], float]
"""[MHz] mean clock of the plan in force by (dp_rank, pp_rank)."""


class PlanKey(NamedTuple):
    """Tables and rows in force: with the same ones the planned clocks are the same."""

    tables: tuple[tuple[int, int, int], ...]  # (dp_rank, revision, point)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRows:
    """Encoded tables and the row of each pipeline, apart from the job: for a thread that reads them."""

    key: PlanKey
    rows: tuple[tuple[int, tuple[bytes, ...], int], ...]  # (dp_rank, tables by pp_rank, point)


def plan_rows(job: Job) -> PlanRows | None:
    """The rows in force of the pipelines that are shown; None where no plan is followed."""
    switch, plan = job.switch, job.plan
    if switch is None or plan is None:
        return None
    rows, tables = [], []
    for dp_rank, point in enumerate(switch.points[:MAX_PIPELINES]):
        own = job.straggler_plan_in_force(dp_rank)
        if point != NO_POINT and switch.revision_of(dp_rank) == (own.revision if own else plan.revision):
            rows.append((dp_rank, (own.tables if own else plan.tables)[:MAX_STAGES], point))
            tables.append((dp_rank, switch.revision_of(dp_rank), point))
    return PlanRows(key=PlanKey(tuple(tables)), rows=tuple(rows)) if rows else None


def planned_clocks(rows: PlanRows) -> Planned:
    """Mean clocks of the rows in force. Tables are large: a thread's work."""
    by_row: dict[tuple[int, int], float | None] = {}
    clocks_mhz: Planned = {}
    for dp_rank, tables, point in rows.rows:
        for pp_rank, encoded in enumerate(tables):
            row = (id(encoded), point)
            if row not in by_row:
                by_row[row] = _mean_clock_mhz(encoded, point)
            mean_mhz = by_row[row]
            if mean_mhz is not None:
                clocks_mhz[dp_rank, pp_rank] = mean_mhz
    return clocks_mhz


def clocks_of_row(encoded: bytes, point: int) -> "array[int]":
    """(num_instructions) [MHz] of a row of an encoded table, 0 for what changes no clock; empty without that row."""
    table = pb.PlannerMessage.FromString(encoded).table
    length = 2 * table.num_instructions
    if not 0 <= point < table.num_points:
        return array("H")
    begin = point * length
    return array("H", zlib.decompressobj().decompress(table.clocks_mhz, begin + length)[begin:])


def _mean_clock_mhz(encoded: bytes, point: int) -> float | None:
    """Of the instructions of a row that have a clock of their own; None where none has."""
    chosen = [clock for clock in clocks_of_row(encoded, point) if clock]
    return fmean(chosen) if chosen else None


def _full_clocks(job: Job) -> Planned:
    """Of pipelines that are planned at full clocks, which no row of a table says: the highest of each GPU's clocks."""
    switch, plan = job.switch, job.plan
    if switch is None or plan is None:
        return {}
    at_full = set()
    for dp_rank, point in enumerate(switch.points[:MAX_PIPELINES]):
        followed = job.straggler_plan_in_force(dp_rank) or plan
        if switch.revision_of(dp_rank) == followed.revision and point == followed.summary.full_point:
            at_full.add(dp_rank)
    ranks = [state for state in job.members.ranks.values() if state.rank.dp_rank in at_full and state.gpu.clocks_mhz]
    return {(state.rank.dp_rank, state.rank.pp_rank): float(max(state.gpu.clocks_mhz)) for state in ranks}


def heat_maps(job: Job, planned: Planned) -> dict[str, Any]:
    """Every quantity's map: rows are pipelines, columns are stages."""
    num_pipelines = min(len(job.progress.pipelines), MAX_PIPELINES)
    num_stages = min(job.spec.pp_size if job.spec else 0, MAX_STAGES)
    read: dict[str, dict[tuple[int, int], list[float]]] = {
        name: defaultdict(list) for name in ("clock", "power", "temperature")
    }
    for state in job.members.ranks.values():
        place, sample = (state.rank.dp_rank, state.rank.pp_rank), state.gpu_sample
        if state.stream is None:
            continue
        for name, value in (
            ("clock", sample.clock_mhz),
            ("power", sample.power_w),
            ("temperature", sample.temperature_c),
        ):
            if value:
                read[name][place].append(value)
    planned = planned | _full_clocks(job)
    maps = [_map("plan", "planned clock, mean of an iteration", "MHz", planned, num_pipelines, num_stages)]
    for name, title, unit in (
        ("clock", "latest clock that was read", "MHz"),
        ("power", "latest power that was read, a GPU", "W"),
        ("temperature", "latest temperature that was read", "°C"),
    ):
        means = {place: fmean(values) for place, values in read[name].items()}
        maps.append(_map(name, title, unit, means, num_pipelines, num_stages))
    return {
        "maps": maps,
        "stages": range(num_stages),
        "left_out": max(0, len(job.progress.pipelines) - num_pipelines),
        "stages_left_out": max(0, (job.spec.pp_size if job.spec else 0) - num_stages),
    }


def _map(
    name: str, title: str, unit: str, values: dict[tuple[int, int], float], num_pipelines: int, num_stages: int
) -> dict[str, Any]:
    low, high = min(values.values(), default=0.0), max(values.values(), default=0.0)
    rows = [
        [_cell(values.get((dp_rank, pp_rank)), low, high) for pp_rank in range(num_stages)]
        for dp_rank in range(num_pipelines)
    ]
    return {"name": name, "title": title, "unit": unit, "rows": rows, "low": low, "high": high, "has_any": bool(values)}


def _cell(value: float | None, low: float, high: float) -> tuple[str, int | None]:
    """The text and the shade of a cell."""
    if value is None:
        return NOT_KNOWN, None
    share = (value - low) / (high - low) if high > low else 0.5
    return f"{value:.0f}", min(NUM_SHADES - 1, int(share * NUM_SHADES))
