"""Constants that ranks do together once an iteration, such as reducing gradients or the optimizer step.

They end for all at once, when the last rank has come and the work is done. So a rank that is early measures its waiting
too, which depends on everybody's clocks and is no constant. The rank that comes last does not wait: the least of what
was measured is what the work takes. A rank that has no part in it, such as one without tied weights, is through in no
time, and says nothing about the others.
"""

from collections.abc import Iterable, Mapping

from perseus_dist.planning.profile.profile_csv import Row
from perseus_dist.planning.schedule.instruction import NO_MICROBATCH
from perseus_dist.planning.schedule.schedule import Schedule

RowsOfGpu = dict[int, list[Row]]
"""By clock [MHz]."""

_NO_PART_S = 1e-4  # a collective takes longer, and a call that does nothing does not


def joint_kinds(schedule: Schedule) -> frozenset[str]:
    """Kinds of constants that the schedule runs without a microbatch."""
    instructions = (instruction for order in schedule.ranks for instruction in order)
    return frozenset(i.kind for i in instructions if i.is_constant and i.microbatch == NO_MICROBATCH)


def without_waiting(
    measured: Mapping[tuple[int, str], Mapping[str, RowsOfGpu]],
    kinds: Iterable[str],
    blocking_w_of_stage: Mapping[int, float],
) -> dict[tuple[int, str], dict[str, RowsOfGpu]]:
    """The measurements, with the waiting taken off.

    Args:
        measured: By (stage, kind), by GPU label.
        kinds: Those that ranks do together; all others stay as they are.
        blocking_w_of_stage: [W] of one GPU, what waiting draws; 0 where that is not known.
    """
    least = {kind: _least_by_clock(_rows_of(measured, kind)) for kind in kinds}
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


def _rows_of(measured: Mapping[tuple[int, str], Mapping[str, RowsOfGpu]], kind: str) -> Iterable[Row]:
    for (_, measured_kind), by_gpu in measured.items():
        if measured_kind == kind:
            for by_clock in by_gpu.values():
                for rows in by_clock.values():
                    yield from rows


def _least_by_clock(rows: Iterable[Row]) -> dict[int, Row]:
    least: dict[int, Row] = {}
    for row in rows:
        if row.time_s > _NO_PART_S and (row.clock_mhz not in least or row.time_s < least[row.clock_mhz].time_s):
            least[row.clock_mhz] = row
    return least


def _shortened(row: Row, least: Row | None, blocking_w: float) -> Row:
    if least is None or row.time_s <= least.time_s:
        return row
    mean_w = row.energy_j / row.time_s
    waiting_w = min(blocking_w, mean_w) if blocking_w else mean_w
    energy_j = row.energy_j - waiting_w * (row.time_s - least.time_s)
    return row._replace(time_s=least.time_s, time_std_s=least.time_std_s, energy_j=energy_j)
