"""A profile from samples that ranks took while training, where ``planning.profile`` makes one from a file."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from perseus_dist.errors import ProfileError
from perseus_dist.messages.from_agent import Sample
from perseus_dist.planner.worker.collective_times import RowsOfGpu, joint_kinds, last_stages, without_waiting
from perseus_dist.planner.worker.plan_request import Contribution, PlanningRequest
from perseus_dist.planner.worker.unmeasured_clocks import with_clocks_between
from perseus_dist.planning.profile.clock_changes import ClockChanges, clock_changes_of
from perseus_dist.planning.profile.profile import Measurements, Profile, write_profile
from perseus_dist.planning.profile.profile_csv import MAX_CHANGE_S, MAX_SAMPLES, Row
from perseus_dist.planning.profile.samples import Estimate, estimate, undisturbed
from perseus_dist.planning.schedule.instruction import CLOCK_CHANGE, OVERLAPPED_FORWARD, SENDS, Kind, profile_name
from perseus_dist.planning.schedule.results import transfers_of
from perseus_dist.planning.schedule.schedule import Schedule
from perseus_dist.planning.schedule.schedule_text import parse_schedule

_COMPUTATIONS = frozenset(Kind)
_Key = tuple[int, str]  # stage, kind
_EstimatesOfGpu = dict[int, Estimate]  # by clock [MHz]


def stages_of_ranks(schedule: Schedule) -> list[list[int]]:
    """The stages of each pp_rank, ascending: those of its chunks 0, 1, 2, ..."""
    return [sorted({instruction.stage for instruction in order}) for order in schedule.ranks]


def measured_profile(
    schedule: Schedule,
    contributions: Iterable[Contribution],
    *,
    tensor_parallel: int,
    blocking_power_w: Sequence[float],
    source: str,
    menu_mhz: Sequence[int] = (),
) -> Profile:
    """Join what all ranks have measured.

    Ranks in the same place of different pipelines are samples of the same thing; those that were slower than others
    were disturbed, and are left out. Ranks of a tensor-parallel group stand side by side as GPUs; where one of them
    lacks a clock, it is taken to be like the mean of the others. A stage that was measured at one clock alone, because
    no GPU of it can be set to another, keeps that clock. Rows that name their stage, from a saved profile, count where
    nothing newer was measured; the transfers that it has between pp_ranks count too. What ranks do together, once an
    iteration, is freed from waiting for each other.

    Args:
        schedule: What all ranks run.
        contributions: What they have measured.
        tensor_parallel: GPUs that share each instruction.
        blocking_power_w: (pp_size) [W] of one GPU of each pp_rank.
        source: For messages.
        menu_mhz: [MHz] clocks that computations get rows of between those that were measured.

    Raises:
        ProfileError: Something that the schedule runs was not measured, or nothing fits it.
    """
    contributions = tuple(contributions)
    measured, saved = _rows(schedule, contributions)
    blocking_w = {
        stage: blocking_power_w[pp_rank] for pp_rank, stages in enumerate(stages_of_ranks(schedule)) for stage in stages
    }
    own = without_waiting(measured, joint_kinds(schedule), blocking_w, last_stages(schedule))
    rows_of = {key: own.get(key) or saved[key] for key in (*own, *saved)}
    wanted = sorted({(instruction.stage, instruction.kind) for order in schedule.ranks for instruction in order})
    transfers = transfers_of(schedule, {key for key in rows_of if key[1] in SENDS}).values()
    wanted += sorted({(transfer.stage, transfer.kind) for transfer in transfers})
    # The entry that names a pair's forward takes next to no time, and none where no row says so.
    wanted = [key for key in wanted if key in rows_of or key[1] != OVERLAPPED_FORWARD]
    missing = [f"stage {stage} {profile_name(kind)}" for stage, kind in wanted if (stage, kind) not in rows_of]
    if missing:
        shown = ", ".join(missing[:4]) + (f" and {len(missing) - 4} more" if len(missing) > 4 else "")
        raise ProfileError(f"{source}: {shown} not measured, expected all that the schedule runs; profile again")
    measurements = {key: _measurements(rows_of[key], tensor_parallel, are_own=key in own) for key in wanted}
    for key in own.keys() & measurements.keys():
        if key[1] in _COMPUTATIONS:
            measurements[key] = with_clocks_between(measurements[key], menu_mhz)
    changes = _clock_changes(schedule, contributions)
    return Profile(source=source, measurements=measurements, clock_changes=changes)


def profile_of_request(schedule: Schedule, request: PlanningRequest) -> Profile:
    """The profile that a plan is made from.

    Raises:
        ProfileError: As ``measured_profile``.
    """
    source = f"profile of job {request.job_id}"
    return measured_profile(
        schedule,
        request.contributions,
        tensor_parallel=request.tp_size,
        blocking_power_w=request.blocking_power_w,
        source=source,
        menu_mhz=request.menu_mhz,
    )


def with_transfers(
    profile: Profile,
    transfers_s: Mapping[tuple[int, str], float],
    spreads_s: Mapping[tuple[int, str], float] | None = None,
) -> Profile:
    """The profile with transfers as they were measured, in place of those that it has from an earlier run.

    Args:
        profile: Of instructions.
        transfers_s: [s] by (sending stage, kind), and of time between iterations; without a row where that is 0.
        spreads_s: [s] likewise, how much longer nine in ten take at most; what is not there is not known.
    """
    kept = {key: rows for key, rows in profile.measurements.items() if key not in transfers_s}
    known_s = spreads_s or {}
    rows = {key: _transfer(time_s, known_s.get(key)) for key, time_s in transfers_s.items() if time_s > 0}
    return replace(profile, measurements={**kept, **rows})


def _transfer(time_s: float, spread_s: float | None) -> Measurements:
    """One that draws what the sender draws while it waits."""
    unknown = np.full((1, 1), np.nan)
    return Measurements(
        clocks_mhz=np.zeros(1, dtype=np.int64),
        gpus=("",),
        times_s=np.full((1, 1), time_s),
        energies_j=np.zeros((1, 1)),
        num_samples=np.ones((1, 1)),
        time_std_s=unknown,
        energy_std_j=unknown,
        time_p90_s=None if spread_s is None else np.full((1, 1), time_s + spread_s),
    )


def profile_csv(profile: Profile) -> bytes:
    """As ``planning.profile.profile_csv`` writes it."""
    with TemporaryDirectory() as name:
        path = Path(name) / "profile.csv"
        write_profile(profile, path)
        return path.read_bytes()


def csv_of_request(request: PlanningRequest) -> bytes:
    """The profile alone, of which there may be too little to plan with.

    Raises:
        ProfileError: As ``measured_profile``.
    """
    return profile_csv(profile_of_request(parse_schedule(request.schedule_text), request))


_Rows = dict[_Key, dict[str, RowsOfGpu]]  # by GPU label


def _rows(schedule: Schedule, contributions: Iterable[Contribution]) -> tuple[_Rows, _Rows]:
    """(measured by the rank itself, from a saved profile)."""
    stages = stages_of_ranks(schedule)
    own: _Rows = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    saved: _Rows = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for contribution in contributions:
        of_chunk = stages[contribution.pp_rank]
        for sample in contribution.samples:
            if sample.kind == CLOCK_CHANGE:
                continue
            if sample.stage >= 0:
                saved[sample.stage, sample.kind][""][sample.clock_mhz].append(_row(sample, sample.stage, ""))
            elif sample.chunk < len(of_chunk):
                stage, gpu = of_chunk[sample.chunk], str(contribution.tp_rank)
                own[stage, sample.kind][gpu][sample.clock_mhz].append(_row(sample, stage, gpu))
    return own, saved


def _clock_changes(schedule: Schedule, contributions: Iterable[Contribution]) -> dict[int, ClockChanges]:
    """By stage: what the ranks that run it have seen, else what a saved profile says."""
    stages = stages_of_ranks(schedule)
    own: defaultdict[int, list[Row]] = defaultdict(list)
    saved: defaultdict[int, list[Row]] = defaultdict(list)
    for contribution in contributions:
        for sample in contribution.samples:
            if sample.kind != CLOCK_CHANGE or sample.time_s > MAX_CHANGE_S:
                continue
            is_saved = sample.stage >= 0
            for stage in [sample.stage] if is_saved else stages[contribution.pp_rank]:
                p90_s = min(max(sample.time_p90_s, sample.time_s), MAX_CHANGE_S) if sample.time_p90_s else math.nan
                row = Row(
                    line=0,
                    stage=stage,
                    kind=CLOCK_CHANGE,
                    clock_mhz=sample.clock_mhz,
                    time_s=sample.time_s,
                    energy_j=0.0,
                    samples=min(max(sample.num_runs, 1), MAX_SAMPLES),
                    time_p90_s=p90_s,
                )
                (saved if is_saved else own)[stage].append(row)
    known = {stage for of_rank in stages for stage in of_rank}
    return {stage: clock_changes_of(own.get(stage) or saved[stage]) for stage in sorted(known & {*own, *saved})}


def _row(sample: Sample, stage: int, gpu: str) -> Row:
    """The sample as a profile's row. Its energy's standard error becomes the spread over runs that a row tells."""
    return Row(
        line=0,
        stage=stage,
        kind=sample.kind,
        clock_mhz=sample.clock_mhz,
        time_s=sample.time_s,
        energy_j=sample.energy_j,
        samples=min(max(sample.num_runs, 1), MAX_SAMPLES),
        time_std_s=sample.time_std_s,
        energy_std_j=sample.energy_std_j * math.sqrt(sample.num_runs),
        gpu=gpu,
        time_p90_s=sample.time_p90_s if sample.kind in SENDS and sample.time_p90_s else math.nan,
    )


def _measurements(by_gpu: dict[str, dict[int, list[Row]]], tensor_parallel: int, *, are_own: bool) -> Measurements:
    clocks_mhz = sorted(set().union(*by_gpu.values()), reverse=True)
    found = {
        gpu: {clock: estimate(undisturbed(rows) if are_own else rows)[0] for clock, rows in by_clock.items()}
        for gpu, by_clock in sorted(by_gpu.items())
    }
    # One GPU stands for its whole group; of a larger part of a group, those that are missing are like the rest.
    gpus = list(found) if len(found) == 1 else [str(tp_rank) for tp_rank in range(tensor_parallel)]
    table = np.array([[_estimate_of(found, gpu, clock) for clock in clocks_mhz] for gpu in gpus])
    times_s, energies_j, num_samples, time_std_s, energy_std_j = np.moveaxis(table, 2, 0).copy()
    p90_s = [row.time_p90_s for by_clock in by_gpu.values() for rows in by_clock.values() for row in rows]
    known_s = [one_s for one_s in p90_s if not math.isnan(one_s)]
    return Measurements(
        clocks_mhz=np.array(clocks_mhz, dtype=np.int64),
        gpus=tuple(gpus),
        times_s=times_s,
        energies_j=energies_j,
        num_samples=num_samples,
        time_std_s=time_std_s,
        energy_std_j=energy_std_j,
        time_p90_s=np.maximum(times_s, max(known_s)) if known_s else None,
    )


def _estimate_of(found: dict[str, _EstimatesOfGpu], gpu: str, clock_mhz: int) -> Sequence[float]:
    own = found.get(gpu, {}).get(clock_mhz)
    if own is not None:
        return own
    others = [by_clock[clock_mhz] for by_clock in found.values() if clock_mhz in by_clock]
    return [sum(values) / len(others) for values in zip(*others, strict=True)]
