"""A time and energy profile: what each instruction takes at each clock, from repeated and noisy measurements."""

import math
import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from perseus_dist.errors import ProfileError
from perseus_dist.planning.profile.clock_changes import ClockChanges, clock_changes_of, rows_of
from perseus_dist.planning.profile.profile_csv import Row, read_rows, write_rows
from perseus_dist.planning.profile.samples import RejectedRow, estimate
from perseus_dist.planning.schedule.instruction import CLOCK_CHANGE, Kind, profile_name
from perseus_dist.planning.value_equality import ValueEquality
from perseus_dist.units import FloatArray, IntArray

_RowsOfClock = dict[int, list[Row]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measurements(ValueEquality):
    """One instruction of one stage at every clock that was tried, per GPU.

    Attributes:
        clocks_mhz: (num_clocks) [MHz] descending.
        gpus: (num_gpus) labels of the GPUs of the tensor-parallel group, or one empty label where the file has none.
        times_s: (num_gpus, num_clocks) [s].
        energies_j: (num_gpus, num_clocks) [J] of that GPU.
        num_samples: (num_gpus, num_clocks) runs behind each estimate.
        time_std_s: (num_gpus, num_clocks) [s] standard deviation over the runs, NaN where unknown.
        energy_std_j: (num_gpus, num_clocks) [J] the same.
        line: Where in the file the instruction first stands.
        time_p90_s: (num_gpus, num_clocks) [s] of a transfer, what nine in ten take no longer than, NaN where unknown;
            None where no row says.
    """

    clocks_mhz: IntArray
    gpus: tuple[str, ...]
    times_s: FloatArray
    energies_j: FloatArray
    num_samples: FloatArray
    time_std_s: FloatArray
    energy_std_j: FloatArray
    line: int = 0
    time_p90_s: FloatArray | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Profile(ValueEquality):
    """Time and energy of every instruction of every stage, at every clock.

    Attributes:
        source: The file it was read from, for messages.
        measurements: Keyed by (stage, kind).
        rejected: Gross outliers, which the estimates leave out, in file order.
        clock_changes: How long they take, keyed by stage; without an entry where that was not measured.
    """

    source: str
    measurements: Mapping[tuple[int, str], Measurements]
    rejected: tuple[RejectedRow, ...] = ()
    clock_changes: Mapping[int, ClockChanges] = field(default_factory=dict)

    @property
    def num_stages(self) -> int:
        """Stages are 0 .. num_stages - 1."""
        return 1 + max(stage for stage, _ in self.measurements)


def read_profile(path: str | os.PathLike[str]) -> Profile:
    """Read a profile CSV (see ``profile_csv``).

    Rows of the same stage, instruction, clock and GPU are samples of one estimate: their mean, weighted by ``samples``,
    after gross outliers are rejected. Points are not smoothed: a plan is replayed on what was measured.

    Raises:
        ProfileError: One line with file, line, what was seen, what was expected and the remedy.
    """
    grouped: dict[tuple[int, str], dict[str, _RowsOfClock]] = {}
    changes: defaultdict[int, list[Row]] = defaultdict(list)
    for row in read_rows(path):
        if row.kind == CLOCK_CHANGE:
            changes[row.stage].append(row)
            continue
        by_gpu = grouped.setdefault((row.stage, row.kind), {})
        by_gpu.setdefault(row.gpu, defaultdict(list))[row.clock_mhz].append(row)
    source = os.fspath(path)
    if not grouped:
        raise ProfileError(f"{source}: saw changes of clocks alone, expected rows of computations; profile again")
    _check_stages(source, {key: min(_all_lines(by_gpu)) for key, by_gpu in grouped.items()})
    for stage in sorted(changes.keys() - {stage for stage, _ in grouped}):
        raise ProfileError(
            f"{source}:{changes[stage][0].line}: saw changes of clocks of stage {stage} and no computation of it, "
            "expected both; correct the stage or take the row out"
        )
    rejected: list[RejectedRow] = []
    measurements = {}
    for key, by_gpu in sorted(grouped.items(), key=lambda item: item[0][0]):  # by stage, then as in the file
        _check_clocks(source, key, by_gpu)
        measurements[key] = _measurements(by_gpu, rejected)
    rejected.sort(key=lambda rejection: rejection.row.line)
    return Profile(
        source=source,
        measurements=measurements,
        rejected=tuple(rejected),
        clock_changes={stage: clock_changes_of(rows) for stage, rows in sorted(changes.items())},
    )


def write_profile(profile: Profile, path: str | os.PathLike[str]) -> None:
    """Write the estimates, one row per stage, instruction, GPU and clock; reading them back gives the same numbers.

    Raises:
        OutputError: The place cannot be written to; nothing is left half-written.
    """
    rows = []
    for (stage, kind), found in profile.measurements.items():
        for g, gpu in enumerate(found.gpus):
            for c, clock_mhz in enumerate(found.clocks_mhz.tolist()):
                row = Row(
                    line=0,
                    stage=stage,
                    kind=kind,
                    clock_mhz=clock_mhz,
                    time_s=float(found.times_s[g, c]),
                    energy_j=float(found.energies_j[g, c]),
                    samples=int(found.num_samples[g, c]),
                    time_std_s=float(found.time_std_s[g, c]),
                    energy_std_j=float(found.energy_std_j[g, c]),
                    gpu=gpu,
                    time_p90_s=math.nan if found.time_p90_s is None else float(found.time_p90_s[g, c]),
                )
                rows.append(row)
    for stage, changes in profile.clock_changes.items():
        rows += rows_of(changes, stage)
    write_rows(path, rows)


def _all_lines(by_gpu: Mapping[str, _RowsOfClock]) -> list[int]:
    return [rows[0].line for by_clock in by_gpu.values() for rows in by_clock.values()]


def _check_stages(source: str, line_of: Mapping[tuple[int, str], int]) -> None:
    """Every stage from 0 up has a forward, and a backward whole or in two; both where a schedule runs both."""
    kinds_of_stage: dict[int, set[str]] = defaultdict(set)
    for stage, kind in line_of:
        kinds_of_stage[stage].add(kind)
    for expected, stage in enumerate(sorted(kinds_of_stage)):
        kinds = kinds_of_stage[stage]
        at = f"{source}:{min(line_of[stage, kind] for kind in kinds)}"
        if stage != expected:
            raise ProfileError(
                f"{at}: saw stage {stage} and no stage {expected}, expected 0, 1, 2, ...; profile the missing stage"
            )
        halves = {Kind.INPUT_GRADIENT, Kind.WEIGHT_GRADIENT} & kinds
        wanted = {Kind.FORWARD, Kind.INPUT_GRADIENT, Kind.WEIGHT_GRADIENT} if halves else {Kind.FORWARD, Kind.BACKWARD}
        missing = sorted(wanted - kinds)
        if missing:
            has = ", ".join(sorted(profile_name(kind) for kind in kinds))
            lacks = " and ".join(profile_name(kind) for kind in missing)
            raise ProfileError(
                f"{at}: stage {stage} has {has} and no {lacks}; expected forward, and backward or backward_input with "
                "backward_weight, for every stage; add the missing rows"
            )


def _check_clocks(source: str, key: tuple[int, str], by_gpu: Mapping[str, _RowsOfClock]) -> None:
    """Enough clocks to choose from, and the same ones on every GPU."""
    stage, kind = key
    at = f"{source}:{min(_all_lines(by_gpu))}: stage {stage} {profile_name(kind)}"
    clocks = set().union(*by_gpu.values())
    for gpu, by_clock in by_gpu.items():
        missing = clocks - by_clock.keys()
        if missing:
            raise ProfileError(
                f"{at}: gpu {gpu!r} has no row at {max(missing)} MHz, which another GPU has; expected the same clocks "
                "on every GPU, profile that one or take the clock out"
            )
    if len(clocks) < 2 and kind in set(Kind):
        raise ProfileError(
            f"{at}: saw one clock ({min(clocks)} MHz), expected at least 2 to choose from; profile it at more clocks"
        )


def _measurements(by_gpu: Mapping[str, _RowsOfClock], rejected: list[RejectedRow]) -> Measurements:
    clocks = sorted(next(iter(by_gpu.values())), reverse=True)
    estimates = np.empty((5, len(by_gpu), len(clocks)))
    for g, by_clock in enumerate(by_gpu.values()):
        for c, clock_mhz in enumerate(clocks):
            estimates[:, g, c], outliers = estimate(by_clock[clock_mhz])
            rejected += outliers
    times_s, energies_j, num_samples, time_std_s, energy_std_j = estimates
    p90_s = np.array([[_mean_p90_s(by_clock[clock_mhz]) for clock_mhz in clocks] for by_clock in by_gpu.values()])
    return Measurements(
        clocks_mhz=np.array(clocks, dtype=np.int64),
        gpus=tuple(by_gpu),
        times_s=times_s,
        energies_j=energies_j,
        num_samples=num_samples,
        time_std_s=time_std_s,
        energy_std_j=energy_std_j,
        line=min(_all_lines(by_gpu)),
        time_p90_s=None if np.isnan(p90_s).all() else np.fmax(p90_s, np.where(np.isnan(p90_s), np.nan, times_s)),
    )


def _mean_p90_s(rows: list[Row]) -> float:
    """[s] by the rows that say one, weighted by their samples; NaN where none does."""
    known = [row for row in rows if not math.isnan(row.time_p90_s)]
    total = sum(row.samples for row in known)
    return math.fsum(row.samples * row.time_p90_s for row in known) / total if known else math.nan
