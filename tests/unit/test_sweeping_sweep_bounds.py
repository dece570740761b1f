"""A sweep from its order to its end, at its limits: how long clocks are held, who is waited for, what comes next."""

from dataclasses import replace

import pytest
from test_planner_lifecycle import summary
from test_sweeping_rounds_bounds import ALL_MHZ, job_of, measured
from test_sweeping_samples_bounds import begun, received

from perseus_dist.messages.from_agent import ProfileSamples
from perseus_dist.messages.from_planner import StopSweep, Sweep
from perseus_dist.planner.job.facts.sweeps import SAVED_PROFILE, SweepBegun, SweepEnded
from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.planner.job.state.planning import JobPlan
from perseus_dist.planner.job.state.profiling import ActiveSweep, SweepCost
from perseus_dist.planner.lifecycle.events import Effect, Log, Persist, Send
from perseus_dist.planner.lifecycle.sweeping.sweep import (
    advance_sweep,
    begin_series,
    iterations_per_clock,
    record_samples,
    resume_series,
    resume_sweep,
)
from perseus_dist.planning.schedule.schedule import format_schedule, one_f_one_b

NOW_S = 1000.0
PLAN = JobPlan(revision=1, summary=summary(), tables=(), profile_csv=b"")


def ready(job: Job, *, iteration: int = 100, time_s: float = 1.0) -> Job:
    """Iterations are reported as they end: what is ordered now begins with the next one."""
    job.schedule_text = format_schedule(one_f_one_b(pp=2, microbatches=2))
    job.progress.recent_times_s.append(time_s)
    job.progress.iteration, job.progress.iteration_at_s = iteration, NOW_S
    return job


def sweeping(
    missing_mhz: dict[int, set[int]],
    *,
    dp: int = 2,
    pp: int = 1,
    attempts: int = 1,
    iteration: int = 100,
    policy: Policy | None = None,
    num_round: int = 1,
    is_profile: bool = True,
) -> tuple[Job, ActiveSweep]:
    """Its iterations are 90 to 98."""
    job = ready(job_of(dp, pp=pp, policy=policy), iteration=iteration)
    job.profiling.sweep_id = 3
    ranks = tuple(range(dp * pp))
    ordered = begun(3, clocks_mhz=ALL_MHZ, ranks=ranks, first_iteration=90, num_round=num_round, is_profile=is_profile)
    job.profiling.sweeps = {3: ordered}
    job.profiling.samples = {3: {rank: measured(ALL_MHZ) for rank in ranks}}
    job.profiling.sweep = ActiveSweep(ordered=ordered, missing_mhz=missing_mhz, attempts=attempts)
    job.phase = Phase.PROFILING
    return job, job.profiling.sweep


def ordered_by(effects: list[Effect]) -> list[SweepBegun]:
    return [fact for one in effects if isinstance(one, Persist) for fact in one.facts if isinstance(fact, SweepBegun)]


def sent(effects: list[Effect], kind: type) -> list[int]:
    return [one.stream for one in effects if isinstance(one, Send) and isinstance(one.message, kind)]


def said(effects: list[Effect]) -> str:
    return "; ".join(one.sentence for one in effects if isinstance(one, Log))


def has_ended(job: Job, effects: list[Effect]) -> bool:
    is_ended = any(SweepEnded(series=3) in one.facts for one in effects if isinstance(one, Persist))
    assert is_ended == (job.profiling.sweep is None) == (3 in job.profiling.ended_series)
    return is_ended


# ---- orders ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("time_s", "num", "num_alone"),
    [(0.75, 2, 4), (0.7499, 3, 4), (0.5, 3, 5), (9.0, 1, 1), (0.001, 200, 200), (0.0, 200, 200)],
)
def test_a_clock_is_held_until_the_meters_ticks_and_the_changes_of_clocks_are_small(
    time_s: float, num: int, num_alone: int
) -> None:
    """Of 50 or 100 ticks of 0.02 s, and two changes of 0.25 s."""
    job = ready(job_of(policy=Policy(default_switch_latency_s=0.25)), time_s=time_s)
    job.members.energy_period_s = 0.02
    assert iterations_per_clock(job, is_profile=True) == num
    assert iterations_per_clock(job, is_profile=False) == num_alone
    assert iterations_per_clock(job, is_profile=True, is_repeated=True) == max(2, num)


@pytest.mark.parametrize(
    ("text", "num"), [("0LOAD 0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1", 2), ("0F0 0F1 0B0 0B1\n1LOAD 1F0 1B0 1F1 1B1", 1)]
)
def test_a_clock_is_held_for_two_iterations_where_the_first_stage_begins_with_what_it_runs_once(
    text: str, num: int
) -> None:
    job = ready(job_of(), time_s=9.0)
    job.schedule_text = text
    assert iterations_per_clock(job, is_profile=True) == num


@pytest.mark.parametrize(("first_only_mhz", "first_only"), [(1400, (3,)), (1300, ())])
def test_a_series_begins_with_a_sweep_that_all_have_heard_of(first_only_mhz: int, first_only: tuple[int, ...]) -> None:
    job = ready(job_of(2, pp=2))
    job.profiling.sweep_id, job.profiling.reached_mhz = 6, {0: 1200}
    before = job.num_changes
    effects = begin_series(job, (0, 1, 2), {3: first_only_mhz}, NOW_S, is_profile=True)
    (ordered,) = ordered_by(effects)
    assert (ordered.sweep_id, ordered.series, ordered.num_round, ordered.first_iteration) == (7, 7, 1, 101)
    assert (job.profiling.sweep_id, job.profiling.sweeps, job.profiling.reached_mhz) == (7, {7: ordered}, {})
    assert ordered.first_only == first_only
    assert ordered.clocks_of(3) == (first_only_mhz,)
    sweep = job.profiling.sweep
    assert sweep is not None
    assert sweep.attempts == 1
    assert sweep.missing_mhz == {rank: set(ordered.clocks_of(rank)) for rank in range(4)}
    assert sorted(sent(effects, Sweep)) == [0, 1, 2, 3]
    assert job.num_changes == before + 1
    assert job.profiling.cost == SweepCost()
    assert "of 7 clocks in" in job.history.events(NOW_S)[-1].sentence


@pytest.mark.parametrize(("ranks", "first_only", "is_told"), [((0,), (), True), ((), (0,), False)])
def test_what_a_sweep_may_cost_is_told_where_it_holds_a_lower_clock(
    ranks: tuple[int, ...], first_only: tuple[int, ...], *, is_told: bool
) -> None:
    for is_profile in (True, False):
        job = ready(job_of(policy=Policy(num_first_clocks=2)))
        begin_series(job, ranks, dict.fromkeys(first_only, 1400), NOW_S, is_profile=is_profile)
        assert (job.profiling.cost is not None) == (is_told and is_profile)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("missing", [(1, Sweep)]),
        ("of an earlier run", []),
        ("not missing", [(17, StopSweep)]),
        ("paused", [(17, StopSweep)]),
        ("over", [(17, StopSweep)]),
        ("none ever", []),
    ],
)
def test_a_rank_that_comes_back_is_told_of_its_part_or_to_stop(case: str, expected: list[tuple[int, type]]) -> None:
    job, sweep = sweeping({1: {1000}}, iteration=83 - (case == "of an earlier run"))
    sweep.is_paused = case == "paused"
    if case in ("over", "none ever"):
        job.profiling.sweep = None
    if case == "none ever":
        job.profiling.sweep_id = 0
    effects = resume_sweep(job, 0 if case == "not missing" else 1, 17, NOW_S)
    assert [(one.stream, type(one.message)) for one in effects if isinstance(one, Send)] == expected
    if (17, StopSweep) in expected:
        assert effects == [Send(stream=17, message=StopSweep(sweep_id=3, first_iteration=84))]


def test_what_a_series_lacks_is_ordered_of_those_that_are_there() -> None:
    job, _ = sweeping({0: {1000, 1200}, 1: {1000, 1200}, 2: {1000}}, dp=3, attempts=2, num_round=2)
    job.members.ranks[1].stream = None
    del job.members.ranks[2]
    effects = resume_series(job, NOW_S)
    (ordered,) = ordered_by(effects)
    assert (ordered.sweep_id, ordered.series, ordered.num_round, ordered.first_iteration) == (4, 3, 2, 101)
    assert [ordered.clocks_of(rank) for rank in range(3)] == [(1200, 1000), (1200, 1000), (1000,)]
    assert job.profiling.sweep is not None
    assert job.profiling.sweep.attempts == 2
    assert sent(effects, Sweep) == [0]


# ---- samples ---------------------------------------------------------------------------------------------------------


def told(sequence: int, sweep_id: int = 3, *, last: bool = True) -> ProfileSamples:
    return replace(received(sequence).samples, sweep_id=sweep_id, last=last)


@pytest.mark.parametrize(("has_plan", "last", "is_ended"), [(0, 1, 1), (0, 0, 0), (1, 1, 0)])
def test_a_saved_profile_is_there_with_its_last_samples_and_of_use_before_a_plan_alone(
    *, has_plan: bool, last: bool, is_ended: bool
) -> None:
    job, _ = sweeping({0: {1400}})
    job.plan = PLAN if has_plan else None
    record_samples(job, job.members.ranks[0], 0, told(1, SAVED_PROFILE, last=last))
    assert (SAVED_PROFILE in job.profiling.ended_series) == is_ended
    assert (SAVED_PROFILE in job.profiling.samples) != has_plan


# ---- what is missing -------------------------------------------------------------------------------------------------


def test_samples_may_be_on_their_way_for_a_while_behind_the_last_iteration() -> None:
    job, sweep = sweeping({0: {1000}}, iteration=98)
    assert advance_sweep(job, NOW_S) == []
    assert sweep.over_since_s is None
    job.progress.iteration = 99
    for after_s in (0.0, 4.9):
        assert advance_sweep(job, NOW_S + after_s) == []
        assert sweep.over_since_s == NOW_S
    effects = advance_sweep(job, NOW_S + 5.0)
    assert said(effects) == "samples of 1 ranks are missing: sweep 4 takes what is left"
    assert [one.clocks_mhz for one in ordered_by(effects)] == [(1000,)]
    assert job.profiling.sweep is not None
    assert job.profiling.sweep.attempts == 2


@pytest.mark.parametrize(("attempts", "is_over"), [(2, False), (3, True)])
@pytest.mark.parametrize(("num_round", "plan"), [(1, PLAN), (1, None), (2, PLAN)])
def test_samples_are_asked_for_three_times_and_a_plan_is_kept_rather_than_a_part_of_a_first_round(
    attempts: int, num_round: int, plan: JobPlan | None, *, is_over: bool
) -> None:
    job, sweep = sweeping({0: {1000}}, attempts=attempts, num_round=num_round)
    job.plan, sweep.over_since_s = plan, 0.0
    effects = advance_sweep(job, NOW_S)
    assert has_ended(job, effects) == is_over
    is_discarded = is_over and num_round == 1 and plan is not None
    assert (Persist(drop=("samples/3/",)) in effects) == is_discarded
    assert (3 in job.profiling.samples) != is_discarded
    if is_over:
        assert said(effects) == "ranks 0 sent no samples in 3 sweeps: planning without them"


def test_a_sweep_stops_once_none_of_its_ranks_has_been_able_to_set_clocks_for_a_while() -> None:
    job, sweep = sweeping({0: {1000}}, iteration=91)
    for state in job.members.ranks.values():
        state.control = "observe"
    for after_s in (0.0, 9.9):
        assert advance_sweep(job, NOW_S + after_s) == []
        assert sweep.unable_since_s == NOW_S
    job.members.ranks[1].control = "clockd"
    assert advance_sweep(job, NOW_S + 10.0) == []
    assert sweep.unable_since_s is None
    job.members.ranks[1].control, sweep.unable_since_s = "observe", NOW_S
    effects = advance_sweep(job, NOW_S + 10.0)
    assert sent(effects, StopSweep) == [0, 1]
    assert has_ended(job, effects)
    job, sweep = sweeping({0: {1000}}, iteration=91)
    job.members.ranks.clear()
    advance_sweep(job, NOW_S)
    assert sweep.unable_since_s is None, "the planner was restarted, and none has come back yet"


@pytest.mark.parametrize(("able", "is_hopeless"), [("low", False), ("high", False), ("", True)])
def test_blocking_power_is_measured_as_long_as_a_rank_can_set_clocks_to_its_maximum(
    able: str, *, is_hopeless: bool
) -> None:
    """Stages with a lower maximum than others are on clocks of their own."""
    job = ready(job_of(1, pp=2), iteration=91)
    begin_series(job, (), {0: 1400, 1: 1000}, NOW_S, is_profile=False)
    sweep = job.profiling.sweep
    assert sweep is not None
    assert (sweep.ordered.first_only, sweep.ordered.ranks) == ((0,), (1,))
    for state, name in zip(job.members.ranks.values(), ("high", "low"), strict=True):
        state.control = "clockd" if able == name else "observe"
    advance_sweep(job, NOW_S)
    effects = advance_sweep(job, NOW_S + 10.0)
    assert ("no rank can set clocks any more" in said(effects)) == is_hopeless


def test_a_job_that_cannot_set_clocks_at_all_is_measured_without_a_profile_to_the_end() -> None:
    job = ready(job_of(1, pp=2), iteration=91)
    begin_series(job, (), {0: 1400, 1: 1400}, NOW_S, is_profile=False)
    for state in job.members.ranks.values():
        state.control = "observe"
    advance_sweep(job, NOW_S)
    assert "any more" not in said(advance_sweep(job, NOW_S + 10.0))
