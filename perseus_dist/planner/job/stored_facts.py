"""Stored facts of a job, held against what a planner writes: each can be read, and together they may make no job."""

import csv
from collections.abc import Iterable
from functools import lru_cache
from io import StringIO

from perseus_dist.errors import PerseusError
from perseus_dist.messages.terms import NO_POINT
from perseus_dist.planner.job.facts.decisions import PaceChosen, StragglerKnown, SwitchDecided
from perseus_dist.planner.job.facts.fact import Fact
from perseus_dist.planner.job.facts.plans import StragglerPlanReady, TableMade
from perseus_dist.planner.job.facts.policies import MAX_TIME_S, BudgetSet, LoadTargetSet, PricePolicySet, PriceProgress
from perseus_dist.planner.job.facts.runs import (
    BaselineMeasured,
    FingerprintKnown,
    JobEnded,
    JobRegistered,
    SavingCounted,
    ScheduleReceived,
)
from perseus_dist.planner.job.facts.sweeps import OF_STAGES, SamplesReceived, SweepBegun
from perseus_dist.planner.job.frontier_summary import SLOW_FACTORS, FrontierSummary
from perseus_dist.planning.schedule.granularity import Granularity
from perseus_dist.planning.schedule.schedule_text import parse_schedule
from perseus_dist.policies.power_budget import Objective

# Limits of the service, as in ``rpc.limits``, which the core does not know.
_MAX_SIZE = _MAX_POINTS = 1 << 20
_MAX_CLOCK_MHZ, _MAX_SECONDS, _MAX_DEGREE = 20_000, 1e7, 100.0


class StoredFactError(PerseusError):
    """A fact that no planner has written so."""


def check_facts(facts: Iterable[Fact]) -> None:
    """Check each of a job's facts by itself and against the job's sizes.

    Raises:
        StoredFactError: One is damaged.
    """
    facts = tuple(facts)
    spec = next((fact for fact in facts if isinstance(fact, JobRegistered)), None)
    if spec is None:
        _check("job", *(not isinstance(fact, TableMade | SwitchDecided | StragglerPlanReady) for fact in facts))
        return
    sizes = (spec.pp_size, spec.dp_size, spec.tp_size)
    _check(spec.key, *(1 <= size <= _MAX_SIZE for size in sizes), spec.granularity in set(Granularity))
    _check(spec.key, spec.pp_size * spec.dp_size * spec.tp_size <= _MAX_SIZE)
    _check(spec.key, min(spec.held_revision, spec.held_switch_revision, spec.last_sweep_id) >= 0)
    tables = [fact for fact in facts if isinstance(fact, TableMade | StragglerPlanReady)]
    num_points = {fact.revision: len(fact.summary.time_ps) for fact in tables}
    sweeps = {fact.sweep_id for fact in facts if isinstance(fact, SweepBegun)}
    for fact in facts:
        _check(fact.key, *_conditions(fact, spec, num_points))
        _check(fact.key, not isinstance(fact, SweepBegun) or fact.series in sweeps)


def is_policy(fact: Fact) -> bool:
    """Whether one of the planner's own facts is as an operator may have set it."""
    match fact:
        case BudgetSet():
            weights, slowdowns = dict(fact.weights), dict(fact.max_slowdowns)
            is_shared = min(weights.values(), default=1) > 0 and min(slowdowns.values(), default=1) >= 1
            return fact.objective in set(Objective) and fact.watts >= 0 and 0 <= fact.guard_band < 1 and is_shared
        case LoadTargetSet():
            return fact.start_s < fact.end_s <= MAX_TIME_S and fact.watts > 0
        case PricePolicySet():
            return bool(fact.jobs) and 0 <= fact.deadline_s <= MAX_TIME_S and fact.iterations > 0
        case PriceProgress():
            return fact.done >= 0 and fact.iteration >= -1
    return False


def _conditions(fact: Fact, spec: JobRegistered, num_points: dict[int, int]) -> Iterable[bool]:
    num_ranks = spec.pp_size * spec.dp_size * spec.tp_size
    match fact:
        case FingerprintKnown():
            yield 0 <= fact.rank < _MAX_SIZE
        case ScheduleReceived():
            try:
                yield _num_ranks(fact.text) == spec.pp_size
            except PerseusError as error:
                raise StoredFactError(f"row {fact.key!r} is damaged: {error}") from None
        case BaselineMeasured():
            yield fact.num_iterations > 0 and fact.time_s > 0
            yield min(fact.time_spread_s, fact.energy_j, fact.energy_spread_j) >= 0
        case SavingCounted():
            yield fact.doubt_j >= 0
        case SweepBegun():
            yield bool(fact.clocks_mhz) and min(fact.clocks_mhz) > 0 and fact.iterations_per_clock > 0
            yield all(0 <= rank < _MAX_SIZE for rank in (*fact.ranks, *fact.first_only))
            yield not fact.clocks_of_ranks or len(fact.clocks_of_ranks) == len(fact.ranks)
        case SamplesReceived() if fact.series != OF_STAGES:
            yield 0 <= fact.rank < num_ranks
            yield 0 <= fact.pp_rank < spec.pp_size and 0 <= fact.dp_rank < spec.dp_size
            yield 0 <= fact.tp_rank < spec.tp_size and _are_samples(fact)
        case SamplesReceived():
            yield _are_samples(fact)
        case TableMade():
            yield from _of_tables(fact, spec)
            yield _is_profile(fact.profile_csv) and fact.extra_s >= 0
            yield all(stage >= 0 and time_s >= 0 for one in fact.snapshots for of in one for stage, _, time_s in of)
        case StragglerPlanReady():
            yield from _of_tables(fact, spec)
            yield 0 <= fact.dp_rank < spec.dp_size
        case SwitchDecided():
            yield len(fact.points) == spec.dp_size == len(fact.own_revisions or fact.points)
            yield fact.t_prime_s >= 0
            for point, own in zip(fact.points, fact.own_revisions or [0] * len(fact.points), strict=False):
                yield NO_POINT <= point <= num_points.get(own or fact.table_revision, _MAX_POINTS)  # ``full_point``
        case PaceChosen():
            yield 0 < fact.slowdown < _MAX_DEGREE
        case JobEnded():
            yield fact.over_s >= 0
        case StragglerKnown():
            yield 1 <= fact.degree <= _MAX_DEGREE and 0 <= fact.dp_rank < spec.dp_size


@lru_cache(maxsize=32)
def _num_ranks(schedule_text: str) -> int:
    """Of a schedule that a job may run; jobs of one model share it, and a large one takes 0.1 s."""
    return parse_schedule(schedule_text).num_ranks


def _are_samples(fact: SamplesReceived) -> bool:
    told = fact.samples
    return min(told.blocking_power_w, told.switch_latency_s) >= 0 and all(
        one.chunk >= 0
        and one.stage >= -1
        and 0 <= one.clock_mhz <= _MAX_CLOCK_MHZ
        and one.num_runs > 0
        and 0 < one.time_s <= _MAX_SECONDS
        and min(one.energy_j, one.time_std_s, one.energy_std_j, one.window_s, one.time_p90_s) >= 0
        for one in told.samples
    )


def _of_tables(fact: TableMade | StragglerPlanReady, spec: JobRegistered) -> Iterable[bool]:
    yield _is_summary(fact.summary, spec.pp_size)
    yield len(fact.tables) == spec.pp_size


def _is_summary(summary: FrontierSummary, pp_size: int) -> bool:
    lengths = {len(one) for one in (summary.time_ps, summary.total_uj, summary.lower_bound_uj)}
    lengths |= {len(one) for one in (summary.saving_low, summary.saving_high, summary.late_by) if one}
    of_ranks = summary.slow_rank_ps
    return (
        len(lengths) == 1
        and bool(summary.time_ps)
        and summary.time_ps[0] > 0
        and all(low < high for low, high in zip(summary.time_ps, summary.time_ps[1:], strict=False))
        and min(summary.total_uj) > 0
        and 0 <= summary.tail_ps < summary.baseline_time_ps
        and 0 <= summary.gained_ps < summary.baseline_time_ps
        and min(summary.baseline_uj, summary.total_blocking_uw, summary.slowest_case_ps) >= 0
        and min(summary.margin, summary.noise, summary.least_margin, summary.own_noise, *summary.late_by) >= 0
        and (not of_ranks or [len(one) for one in of_ranks] == [len(SLOW_FACTORS)] * pp_size)
    )


def _is_profile(data: bytes) -> bool:
    try:
        rows = csv.reader(StringIO(data.decode()))
        names, first = next(rows, []), next(rows, None)
        if first is None:
            return True
        stage, time, instruction = (names.index(name) for name in ("stage", "time", "instruction"))
        return all(int(row[stage]) >= 0 and float(row[time]) >= 0 and row[instruction] for row in (first, *rows))
    except (ValueError, IndexError, csv.Error):
        return False


def _check(key: str, *conditions: bool) -> None:
    if not all(conditions):
        raise StoredFactError(f"row {key!r} is damaged")
