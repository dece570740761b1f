"""The phases before a plan is in force, at their limits: what is waited for, and what the job goes on with."""

from dataclasses import replace

import pytest
from fleets import fleet_enforcing, fleet_planning, fleet_profiling
from test_planner_runs import Runs

from perseus_dist.messages.from_agent import GpuSample
from perseus_dist.messages.from_planner import Sweep
from perseus_dist.messages.terms import NO_ITERATION
from perseus_dist.planner.job.facts.sweeps import SAVED_PROFILE
from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.lifecycle.advance import advance
from perseus_dist.planner.lifecycle.events import Effect, Send, StartPlanning

NOW_S = 1000.0


def kinds(effects: list[Effect]) -> set[type]:
    return {type(effect) for effect in effects}


def swept_clocks(effects: list[Effect]) -> set[tuple[int, ...]]:
    return {one.message.clocks_mhz for one in effects if isinstance(one, Send) and isinstance(one.message, Sweep)}


def without_baseline(job: Job, phase: Phase = Phase.WARMING_UP, *, num_warm: int = 0) -> Job:
    """In another run, whose baseline is not there yet."""
    job.enforcement.switch = job.measured.baseline = None
    job.measured.baseline_iterations.clear()
    job.measured.probed.clear()
    job.measured.num_warm = num_warm
    job.phase = phase
    return job


# ---- a plan of an earlier run ----------------------------------------------------------------------------------------


def test_where_training_began_is_known_from_the_first_iteration_on() -> None:
    job = fleet_planning().job
    job.progress.began_at_iteration, job.progress.began_at_s = None, 0.0
    for number, iteration, began in ((0, NO_ITERATION, (None, 0.0)), (1, 0, (0, 1.0)), (2, 5, (0, 1.0))):
        job.progress.iteration = iteration
        advance(job, float(number))
        assert (job.progress.began_at_iteration, job.progress.began_at_s) == began


@pytest.mark.parametrize("phase", [Phase.REGISTERING, Phase.WARMING_UP])
@pytest.mark.parametrize(
    ("num_iterations", "since_s", "is_in_force"),
    [(14, 30.0, True), (13, 30.0, False), (14, 29.9, False), (99, 99.0, True)],
)
def test_a_plan_waits_for_its_runs_baseline_as_long_as_that_should_take_and_a_time_at_least(
    phase: Phase, num_iterations: int, since_s: float, *, is_in_force: bool
) -> None:
    """Of 3 iterations of warm-up, and twice 5 of a baseline."""
    fleet = fleet_enforcing()
    fleet.detach(1)
    job = without_baseline(fleet.job, phase)
    job.progress.began_at_iteration, job.progress.began_at_s = 7, NOW_S - since_s
    job.progress.iteration = 7 + num_iterations
    advance(job, NOW_S)
    assert (job.phase is Phase.ENFORCING) == is_in_force
    assert (job.switch is not None) == is_in_force


def test_a_plan_is_in_force_at_once_where_a_switch_or_a_baseline_is_there() -> None:
    fleet = fleet_enforcing()
    fleet.detach(1)
    switch, baseline, plan = fleet.job.switch, fleet.job.measured.baseline, fleet.job.plan
    for has_plan, has_switch, has_baseline in ((1, 1, 0), (1, 0, 1), (1, 0, 0), (0, 1, 1)):
        job = without_baseline(fleet.job, Phase.REGISTERING)
        job.progress.began_at_s = NOW_S
        job.plan = plan if has_plan else None
        job.enforcement.switch = switch if has_switch else None
        job.measured.baseline = baseline if has_baseline else None
        effects = advance(job, NOW_S)
        assert (job.phase is Phase.ENFORCING) == bool(has_plan and (has_switch or has_baseline))
        if has_plan and has_switch:
            assert effects != []
    assert job.reason == "1 of 2 ranks are attached"


@pytest.mark.parametrize(
    ("num_warm", "iteration", "num_away", "is_in_force"),
    [(1, 0, 1, True), (0, 1, 0, True), (0, 0, 0, False), (0, 1, 1, False), (2, 0, 0, True), (0, 2, 0, True)],
)
def test_a_plan_need_not_wait_for_a_baseline_after_one_iteration_of_all_ranks(
    num_warm: int, iteration: int, num_away: int, *, is_in_force: bool
) -> None:
    fleet = fleet_enforcing()
    for rank in range(num_away):
        fleet.detach(rank)
    job = without_baseline(fleet.job, num_warm=num_warm)
    job.progress.iteration = job.progress.began_at_iteration = iteration
    advance(job, NOW_S)
    assert (job.phase is Phase.ENFORCING) == is_in_force


@pytest.mark.parametrize(
    ("missing", "is_planned"),
    [
        ("", True),
        ("warm-up", False),
        ("profile", False),
        ("sweep", False),
        ("power", False),
        ("of this schedule", False),
        ("sight", True),
    ],
)
def test_a_whole_profile_of_another_schedule_is_planned_with_after_one_iteration(
    missing: str, *, is_planned: bool
) -> None:
    fleet = fleet_profiling()
    sweep = fleet.job.profiling.sweep
    job = without_baseline(fleet_planning().job, num_warm=0 if missing == "warm-up" else 1)
    assert job.spec is not None
    job.planning.pending = None
    granularity = "rank" if missing == "sight" else "instruction"
    job.spec = replace(job.spec, keeps_profile=missing != "of this schedule", granularity=granularity)
    if missing == "profile":
        job.profiling.samples.clear()
    elif missing in ("sweep", "sight"):
        job.profiling.sweep = sweep
    elif missing == "power":
        job.profiling.ended_series, job.profiling.samples = {SAVED_PROFILE}, {SAVED_PROFILE: {}}
    effects = advance(job, NOW_S)
    assert (StartPlanning in kinds(effects)) == is_planned
    assert job.phase is (Phase.PLANNING if is_planned else Phase.WARMING_UP)


@pytest.mark.parametrize(
    ("is_by_phase", "num_away", "is_planned"), [(True, 0, True), (False, 0, False), (True, 1, False)]
)
def test_a_plan_whose_clocks_change_by_time_is_made_again_once_all_ranks_say_what_they_follow(
    num_away: int, *, is_by_phase: bool, is_planned: bool
) -> None:
    fleet = fleet_enforcing()
    baseline = fleet.job.measured.baseline
    for rank in range(num_away):
        fleet.detach(rank)
    job = without_baseline(fleet.job)
    assert job.plan is not None
    job.measured.baseline = baseline
    job.plan = replace(job.plan, summary=replace(job.plan.summary, is_by_phase=is_by_phase))
    effects = advance(job, NOW_S)
    assert (StartPlanning in kinds(effects)) == is_planned
    assert (job.phase is Phase.PLANNING) == is_planned


# ---- what a job without a plan goes on with --------------------------------------------------------------------------


def warm() -> Job:
    """With a baseline, and nothing of a profile."""
    job = fleet_profiling().job
    job.profiling.sweep = None
    job.profiling.sweeps.clear()
    job.phase = Phase.WARMING_UP
    return job


def test_a_job_on_gpus_of_two_models_is_observed_with_a_baseline() -> None:
    job = warm()
    baseline, job.measured.baseline = job.measured.baseline, None
    job.members.unlike = "pipelines on different GPU models are not planned"
    advance(job, NOW_S)
    assert (job.phase, job.reason) == (Phase.OBSERVING, job.members.unlike)
    assert job.measured.baseline == baseline
    assert advance(job, NOW_S) == []


@pytest.mark.parametrize(("num_clocks", "is_swept"), [(0, False), (1, False), (2, True)])
def test_two_clocks_are_a_choice(num_clocks: int, *, is_swept: bool) -> None:
    job = warm()
    clocks_mhz = {0: (900,), 1: (1400,), 2: (1400, 900)}[num_clocks]
    state = job.members.ranks[1]
    state.gpu = replace(state.gpu, clocks_mhz=clocks_mhz)
    if num_clocks == 0:  # two replicas that share no clock
        job = warm_replicas(clocks_mhz)
    advance(job, NOW_S)
    assert (job.phase is Phase.PROFILING) == is_swept
    if not is_swept:
        assert job.reason == (
            f"{num_clocks} clocks can be set on all ranks of a stage, expected 2; widen clockd's bounds"
        )


def warm_replicas(clocks_mhz: tuple[int, ...]) -> Job:
    job = fleet_profiling(dp=2).job
    job.profiling.sweep = None
    job.profiling.sweeps.clear()
    job.phase = Phase.WARMING_UP
    job.members.ranks[0].gpu = replace(job.members.ranks[0].gpu, clocks_mhz=clocks_mhz)
    job.members.ranks[2].gpu = replace(job.members.ranks[2].gpu, clocks_mhz=(1400,))
    return job


def test_stages_of_different_clocks_are_swept_from_their_own_maximum_down() -> None:
    job = warm()
    state = job.members.ranks[1]
    state.gpu = replace(state.gpu, clocks_mhz=(1500, 1400, 1000))
    effects = advance(job, NOW_S)
    assert job.reason == "sweeping clocks from 1400 and 1500 MHz down"
    assert {clocks[0] for clocks in swept_clocks(effects)} == {1400, 1500}
    (begun,) = job.profiling.sweeps.values()
    assert begun.is_profile
    assert begun.ranks == (0, 1)


@pytest.mark.parametrize(("rank", "is_waited_for"), [(0, True), (1, False)])
def test_a_saved_profile_that_rank_0_brings_along_is_waited_for(rank: int, *, is_waited_for: bool) -> None:
    job = warm()
    job.members.ranks[rank].has_profile = True
    advance(job, NOW_S)
    assert (job.reason == "waiting for the saved profile of rank 0") == is_waited_for
    assert job.phase is (Phase.WARMING_UP if is_waited_for else Phase.PROFILING)


@pytest.mark.parametrize(
    ("num_away", "is_unplannable", "is_swept"), [(0, False, True), (1, False, False), (0, True, False)]
)
def test_a_profile_is_measured_with_all_ranks_unless_they_cannot(
    num_away: int, *, is_unplannable: bool, is_swept: bool
) -> None:
    job = warm()
    job.profiling.is_unplannable = is_unplannable
    for stream in list(job.members.rank_of_stream)[:num_away]:
        del job.members.rank_of_stream[stream]
    advance(job, NOW_S)
    assert (job.phase is Phase.PROFILING) == is_swept


def test_without_sight_of_instructions_a_profile_is_not_measured_and_what_is_there_planned_with() -> None:
    job = warm()
    assert job.spec is not None
    job.spec = replace(job.spec, granularity="rank")
    advance(job, NOW_S)
    assert job.phase is Phase.OBSERVING
    assert job.reason.startswith("instructions cannot be seen")
    job.profiling.samples, job.profiling.ended_series = {SAVED_PROFILE: {}}, {SAVED_PROFILE}
    advance(job, NOW_S)
    assert (job.phase, job.reason) == (Phase.PLANNING, "planning from the profile that is there")


def test_blocking_power_that_no_saved_profile_tells_is_measured_at_each_stages_highest_clock() -> None:
    job = warm()
    job.profiling.samples, job.profiling.ended_series = {SAVED_PROFILE: {}}, {SAVED_PROFILE}
    state = job.members.ranks[1]
    state.gpu = replace(state.gpu, clocks_mhz=(1500, 1400, 1000))
    effects = advance(job, NOW_S)
    assert job.reason == "measuring blocking power at 1400 and 1500 MHz, which no saved profile tells"
    assert swept_clocks(effects) == {(1400,), (1500,)}
    (begun,) = job.profiling.sweeps.values()
    assert not begun.is_profile


@pytest.mark.parametrize(("phase", "is_going_on"), [(Phase.WARMING_UP, True), (Phase.OBSERVING, False)])
def test_a_sweep_that_an_earlier_run_began_goes_on_behind_the_baseline(phase: Phase, *, is_going_on: bool) -> None:
    job = fleet_profiling().job
    job.phase = phase
    advance(job, NOW_S)
    assert (job.reason == "the sweep that was under way goes on") == is_going_on


@pytest.mark.parametrize(
    ("clock_mhz", "has_profile", "has_swept", "granularity", "is_measured"),
    [
        (1290, False, False, "instruction", True),
        (1, True, False, "instruction", True),
        (0, False, False, "instruction", False),
        (1290, False, True, "instruction", False),
        (1290, False, False, "rank", False),
    ],
)
def test_a_job_without_rights_is_measured_once_at_the_highest_clock_that_its_gpus_run_at(
    clock_mhz: int, granularity: str, *, has_profile: bool, has_swept: bool, is_measured: bool
) -> None:
    job = warm()
    assert job.spec is not None
    job.spec = replace(job.spec, granularity=granularity)
    for state in job.members.ranks.values():
        state.control = "observe"
        state.gpu_sample = GpuSample(clock_mhz=clock_mhz * state.rank.rank)
    job.members.ranks[0].has_profile = has_profile
    if has_swept:
        job.profiling.ended_series = {5}
    advance(job, NOW_S)
    assert (job.phase, job.reason) == (Phase.OBSERVING, "no rank can set clocks: no reason given")
    assert [one.clocks_mhz for one in job.profiling.sweeps.values()] == ([(clock_mhz,)] if is_measured else [])
    assert [one.is_profile for one in job.profiling.sweeps.values()] == ([not has_profile] if is_measured else [])


def test_registration_waits_for_the_schedule_and_for_every_rank() -> None:
    fleet = Runs()
    fleet.attach(0)
    assert fleet.job.reason == "waiting for the schedule's text"
    fleet.job.schedule_text = "text"
    advance(fleet.job, NOW_S)
    assert fleet.job.reason == "1 of 2 ranks are attached"
    fleet.attach(1)
    assert (fleet.phase(), fleet.job.reason) == (
        Phase.WARMING_UP,
        "all 2 ranks are attached: measuring the baseline",
    )
