"""Constants that ranks do together once an iteration, such as reducing gradients or the optimizer step.

They end when the last of the ranks that share the work has come and the work is done. So a rank that is early measures
its waiting too, which depends on everybody's clocks and is no constant. A rank that comes last does not wait, and what
it measures ends the iteration. All of that counts, as the sum of gradients of tied weights, which ranks in the middle
of the pipeline have no part in. Of other ranks it counts as far as it takes no longer than on one that comes last.
Those are the ranks whose last computation no other pp_rank needs: under 1F1B, GPipe and interleaved schedules the first
stage's, and all where weight gradients are apart. A rank that has no part in it, such as one without tied weights, is
through in no time, and says nothing about the others.
"""

from collections.abc import Container, Iterable, Mapping

from perseus_dist.planning.profile.profile_csv import Row
from perseus_dist.planning.schedule.instruction import NO_MICROBATCH, Kind
from perseus_dist.planning.schedule.results import needs_of
from perseus_dist.planning.schedule.schedule import Schedule

RowsOfGpu = dict[int, list[Row]]
"""By clock [MHz]."""

_COMPUTATIONS = frozenset(Kind)
_NO_PART_S = 1e-4  # a collective takes longer, and a call that does nothing does not


def joint_kinds(schedule: Schedule) -> frozenset[str]:
    """Kinds of constants that the schedule runs without a microbatch."""
    instructions = (instruction for order in schedule.ranks for instruction in order)
    return frozenset(i.kind for i in instructions if i.is_constant and i.microbatch == NO_MICROBATCH)


def last_stages(schedule: Schedule) -> frozenset[int]:
    """Stages of the pp_ranks whose last computation no other pp_rank needs."""
    needed = {one for needs in needs_of(schedule).values() for one in needs}
    found: set[int] = set()
    for order in schedule.ranks:
        last = next((one for one in reversed(order) if one.kind in _COMPUTATIONS), None)
        if last is not None and last not in needed:
            found |= {one.stage for one in order}
    return frozenset(found)


def without_waiting(
    measured: Mapping[tuple[int, str], Mapping[str, RowsOfGpu]],
    kinds: Iterable[str],
    blocking_w_of_stage: Mapping[int, float],
    last: Container[int],
) -> dict[tuple[int, str], dict[str, RowsOfGpu]]:
    """The measurements, with the waiting taken off.

    Args:
        measured: By (stage, kind), by GPU label.
        kinds: Those that ranks do together; all others stay as they are.
        blocking_w_of_stage: [W] of one GPU, what waiting draws; 0 where that is not known.
        last: Stages of the ranks that come last.
    """
    least = {kind: _least_by_clock(measured, kind, last) for kind in kinds}
    return {
        (stage, kind): {
            gpu: {
                clock: [_shortened(row, least.get(kind, {}).get(clock), blocking_w_of_stage[stage]) for row in rows]
                for clock, rows in by_clock.items()
            }
            for gpu, by_clock in by_gpu.items()
        }
        for (stage, kind), by_gpu in measured.items()
    }


def _least_by_clock(
    measured: Mapping[tuple[int, str], Mapping[str, RowsOfGpu]], kind: str, last: Container[int]
) -> dict[int, Row]:
    """Of ranks that come last and have a part in it; else of all that do."""
    least: dict[int, tuple[bool, float, Row]] = {}
    for (stage, measured_kind), by_gpu in measured.items():
        if measured_kind == kind:
            for row in (row for by_clock in by_gpu.values() for rows in by_clock.values() for row in rows):
                found = (stage not in last, row.time_s, row)
                if row.time_s > _NO_PART_S and (row.clock_mhz not in least or found[:2] < least[row.clock_mhz][:2]):
                    least[row.clock_mhz] = found
    return {clock: row for clock, (_, _, row) in least.items()}


def _shortened(row: Row, least: Row | None, blocking_w: float) -> Row:
    if least is None or row.time_s <= least.time_s:
        return row
    mean_w = row.energy_j / row.time_s
    waiting_w = min(blocking_w, mean_w) if blocking_w else mean_w
    energy_j = row.energy_j - waiting_w * (row.time_s - least.time_s)
    return row._replace(time_s=least.time_s, time_std_s=least.time_std_s, energy_j=energy_j)
