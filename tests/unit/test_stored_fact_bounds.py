"""Stored facts at the bounds of what a planner writes: those within are taken up, those just beyond are damage."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from test_malformed_facts import good_facts

from perseus_dist.messages.terms import NO_POINT
from perseus_dist.planner.job.facts.decisions import PaceChosen, StragglerKnown, SwitchDecided
from perseus_dist.planner.job.facts.fact import Fact
from perseus_dist.planner.job.facts.plans import TableMade
from perseus_dist.planner.job.facts.policies import BudgetSet, LoadTargetSet, PricePolicySet, PriceProgress
from perseus_dist.planner.job.facts.runs import BaselineMeasured, FingerprintKnown, JobRegistered, SavingCounted
from perseus_dist.planner.job.facts.sweeps import SamplesReceived, SweepBegun
from perseus_dist.planner.job.frontier_summary import SLOW_FACTORS
from perseus_dist.planner.job.stored_facts import StoredFactError, check_facts, is_policy

MOST = 1 << 20
FACTS = good_facts()  # two stages, two pipelines
ABOVE_0, BELOW_0, BELOW_1 = 1e-9, -1e-9, 1 - 1e-9


def of_kind(kind: type[Fact]) -> Any:
    return next(fact for fact in FACTS if isinstance(fact, kind))


SPEC, SAMPLES, SWITCH = of_kind(JobRegistered), of_kind(SamplesReceived), of_kind(SwitchDecided)
NUM_POINTS = len(of_kind(TableMade).summary.time_ps)
SAVING = SavingCounted(saved_j=-3.0, doubt_j=1.0)
PACE = PaceChosen(slowdown=1.1, budget="hall")


def sampled(**fields: Any) -> Any:
    first, *others = SAMPLES.samples.samples
    told = replace(SAMPLES.samples, samples=(replace(first, **fields), *others))
    return replace(SAMPLES, samples=told)


def told(**fields: Any) -> Any:
    return replace(SAMPLES, samples=replace(SAMPLES.samples, **fields))


def summarised(**fields: Any) -> Any:
    table = of_kind(TableMade)
    return replace(table, summary=replace(table.summary, **fields))


def changed(kind: type[Fact]) -> Callable[..., Any]:
    return partial(replace, of_kind(kind))


SUMMARY = of_kind(TableMade).summary
TIMES_PS = (5,) * len(SLOW_FACTORS)  # with a slow rank

# What makes the fact, a field, values at the bounds, values just beyond them.
BOUNDS: list[tuple[Callable[..., Any], str, list[Any], list[Any]]] = [
    (changed(FingerprintKnown), "rank", [0, MOST - 1], [-1, MOST]),
    (changed(BaselineMeasured), "num_iterations", [1], [0]),
    (changed(BaselineMeasured), "time_s", [ABOVE_0], [0.0]),
    (changed(BaselineMeasured), "time_spread_s", [0.0], [BELOW_0]),
    (changed(BaselineMeasured), "energy_j", [0.0], [BELOW_0]),
    (changed(BaselineMeasured), "energy_spread_j", [0.0], [BELOW_0]),
    (changed(SweepBegun), "clocks_mhz", [(1,)], [(), (1400, 0)]),
    (changed(SweepBegun), "iterations_per_clock", [1], [0]),
    (changed(SweepBegun), "ranks", [(0, MOST - 1)], [(0, -1), (MOST,)]),
    (changed(SweepBegun), "first_only", [(0,), (MOST - 1,)], [(-1,), (MOST,)]),
    (partial(replace, SAMPLES), "rank", [0, 3], [-1, 4]),
    (partial(replace, SAMPLES), "pp_rank", [0, 1], [-1, 2]),
    (partial(replace, SAMPLES), "dp_rank", [0, 1], [-1, 2]),
    (partial(replace, SAMPLES), "tp_rank", [0], [-1, 1]),
    (told, "blocking_power_w", [0.0], [BELOW_0]),
    (told, "switch_latency_s", [0.0], [BELOW_0]),
    (sampled, "chunk", [0], [-1]),
    (sampled, "stage", [-1, 0], [-2]),
    (sampled, "clock_mhz", [0, 20_000], [-1, 20_001]),
    (sampled, "num_runs", [1], [0]),
    (sampled, "time_s", [ABOVE_0, 1e7], [0.0, 1e7 + 1]),
    (sampled, "energy_j", [0.0], [BELOW_0]),
    (sampled, "time_std_s", [0.0], [BELOW_0]),
    (sampled, "energy_std_j", [0.0], [BELOW_0]),
    (sampled, "window_s", [0.0], [BELOW_0]),
    (sampled, "time_p90_s", [0.0], [BELOW_0]),
    (changed(TableMade), "extra_s", [0.0], [BELOW_0]),
    (changed(TableMade), "tables", [], [of_kind(TableMade).tables[:1]]),
    (summarised, "tail_ps", [0, SUMMARY.baseline_time_ps - 1], [-1, SUMMARY.baseline_time_ps]),
    (summarised, "gained_ps", [0, SUMMARY.baseline_time_ps - 1], [-1, SUMMARY.baseline_time_ps]),
    (summarised, "baseline_uj", [0], [-1]),
    (summarised, "total_blocking_uw", [0], [-1]),
    (summarised, "slowest_case_ps", [0], [-1]),
    (summarised, "margin", [0.0], [BELOW_0]),
    (summarised, "noise", [0.0], [BELOW_0]),
    (summarised, "least_margin", [0.0], [BELOW_0]),
    (summarised, "own_noise", [0.0], [BELOW_0]),
    (summarised, "time_ps", [(1, *SUMMARY.time_ps[1:])], [(0, *SUMMARY.time_ps[1:]), SUMMARY.time_ps[:-1]]),
    (summarised, "total_uj", [(*SUMMARY.total_uj[:-1], 1)], [(*SUMMARY.total_uj[:-1], 0)]),
    (summarised, "slow_rank_ps", [(), (TIMES_PS,) * 2], [(TIMES_PS,), (TIMES_PS,) * 3, (TIMES_PS, TIMES_PS[:-1])]),
    (summarised, "late_by", [(0.0,) * NUM_POINTS], [(BELOW_0,) * NUM_POINTS]),
    (partial(replace, SWITCH), "points", [(NO_POINT, 0)], [(NO_POINT - 1, 0), (0,), (0, 0, 0)]),
    (partial(replace, SWITCH), "own_revisions", [(), (0, 0)], [(0,)]),
    (partial(replace, SWITCH), "t_prime_s", [0.0], [BELOW_0]),
    (partial(replace, PACE), "slowdown", [ABOVE_0, 100 - 1e-9], [0.0, 100.0]),
    (partial(replace, SAVING), "doubt_j", [0.0], [BELOW_0]),
    (changed(StragglerKnown), "degree", [1.0, 100.0], [BELOW_1, 100.1]),
    (changed(StragglerKnown), "dp_rank", [0, 1], [-1, 2]),
]


def is_taken_up(fact: Fact) -> bool:
    others = [one for one in FACTS if one.key != fact.key]
    try:
        check_facts([*others, fact])
    except StoredFactError as error:
        if fact.key not in str(error):
            raise
        return False
    return True


@pytest.mark.parametrize(("make", "field", "within", "beyond"), BOUNDS)
def test_a_fact_is_taken_up_just_within_its_bounds(
    make: Callable[..., Fact], field: str, within: list[Any], beyond: list[Any]
) -> None:
    assert [value for value in within if not is_taken_up(make(**{field: value}))] == []
    assert [value for value in beyond if is_taken_up(make(**{field: value}))] == []


def test_a_switch_names_a_plan_of_the_table_or_all_maximum_clocks() -> None:
    full_point = of_kind(TableMade).summary.full_point
    assert full_point == NUM_POINTS
    assert is_taken_up(replace(SWITCH, points=(NUM_POINTS - 1, full_point)))
    assert not is_taken_up(replace(SWITCH, points=(full_point + 1, 0)))


@pytest.mark.parametrize(("field", "least"), [("held_revision", 0), ("held_switch_revision", 0), ("last_sweep_id", 0)])
def test_no_number_of_the_job_is_below_its_first(field: str, least: int) -> None:
    others = [fact for fact in FACTS if isinstance(fact, FingerprintKnown)]
    check_facts([replace(SPEC, **{field: least}), *others])
    with pytest.raises(StoredFactError):
        check_facts([replace(SPEC, **{field: least - 1}), *others])


@pytest.mark.parametrize("field", ["pp_size", "dp_size", "tp_size"])
def test_a_job_has_at_least_one_rank_and_as_many_as_the_service_takes(field: str) -> None:
    alone = replace(SPEC, pp_size=1, dp_size=1, tp_size=1)
    check_facts([replace(alone, **{field: MOST})])
    beyond = [{field: MOST, other: 2} for other in ("pp_size", "dp_size", "tp_size") if other != field]
    for sizes in ({field: 0}, {field: MOST + 1}, *beyond):
        with pytest.raises(StoredFactError):
            check_facts([replace(alone, **sizes)])


BUDGET = BudgetSet(name="hall", watts=10.0, weights=(("a*", 2.0),), max_slowdowns=(("a*", 1.5),))
LOAD = LoadTargetSet(name="evening", budget="hall", start_s=1.0, end_s=2.0, watts=5.0, best_effort=False)
PRICE = PricePolicySet(name="night", jobs=("gpt",), signal="spot", deadline_s=1.0, iterations=3)
PROGRESS = PriceProgress(policy="night", job_id="gpt", done=1, run_id="run", iteration=4)


@pytest.mark.parametrize(
    ("fact", "field", "within", "beyond"),
    [
        (BUDGET, "watts", [0.0], [BELOW_0]),
        (BUDGET, "guard_band", [0.0, BELOW_1], [BELOW_0, 1.0]),
        (BUDGET, "weights", [(), (("a*", ABOVE_0),)], [(("a*", 0.0),)]),
        (BUDGET, "max_slowdowns", [(), (("a*", 1.0),)], [(("a*", BELOW_1),)]),
        (BUDGET, "objective", [], ["all of it"]),
        (LOAD, "end_s", [1.0 + 1e-9], [1.0]),
        (LOAD, "watts", [ABOVE_0], [0.0]),
        (PRICE, "jobs", [], [()]),
        (PRICE, "deadline_s", [0.0], [BELOW_0]),
        (PRICE, "iterations", [1], [0]),
        (PROGRESS, "done", [0], [-1]),
        (PROGRESS, "iteration", [-1], [-2]),
    ],
)
def test_a_policy_is_taken_up_just_within_its_bounds(
    fact: Any, field: str, within: list[Any], beyond: list[Any]
) -> None:
    assert is_policy(fact)
    assert [value for value in within if not is_policy(replace(fact, **{field: value}))] == []
    assert [value for value in beyond if is_policy(replace(fact, **{field: value}))] == []


def test_a_fact_of_a_job_is_no_policy() -> None:
    assert not is_policy(SPEC)
