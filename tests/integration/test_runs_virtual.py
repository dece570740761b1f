"""Jobs that follow each other under one name, in virtual time, judged against the same history without Perseus."""

from dataclasses import replace

import pytest

from perseus_dist.simulation.chaos.invariants.every import broken_invariants
from perseus_dist.simulation.chaos.play import play
from perseus_dist.simulation.chaos.record import PlayedRun
from perseus_dist.simulation.chaos.scenario.events import Event, NextJob, PowerCap, Process, ProcessAction, ProcessEvent
from perseus_dist.simulation.chaos.scenario.scenario import SAVED, SWEEP, Scenario, ScenarioJob
from perseus_dist.simulation.chaos.world.virtual_world import open_virtual_world

FIRST = 50  # iterations of the first job
SOON = 3  # iterations until the plan of an earlier run is in force: one to warm up, its reports, the switch
KILL, RESTART = ProcessAction.KILL, ProcessAction.RESTART


def played(*events: Event, iterations: int = 120, **changes: object) -> PlayedRun:
    usual = ScenarioJob(schedule="1f1b", pp=2, dp=2, microbatches=4, time_scale=3.0, profile=SAVED)
    job = replace(usual, **changes)  # type: ignore[arg-type]
    return play(Scenario(job=job, iterations=iterations, events=events), open_virtual_world)


def check(run: PlayedRun, *, first: int = FIRST) -> None:
    """Nothing is promised and not kept; the job after the first iteration ends as fast as without Perseus."""
    assert broken_invariants(run) == ()
    unswept = [i for i in range(first, len(run.iterations)) if not run.iterations[i].is_sweep]
    with_s = sum(run.iterations[i].time_s for i in unswept)
    assert with_s <= 1.005 * sum(run.without[i].time_s for i in unswept)
    assert any(run.followed[-4:]), "a probe is no longer than that"
    assert run.clocks_left_locked == 0


def first_followed(run: PlayedRun, first: int = FIRST) -> int:
    """Iterations of the later job before every rank follows a plan."""
    return run.followed.index(True, first) - first


def is_swept(run: PlayedRun, first: int = FIRST) -> bool:
    """Whether the later job was profiled."""
    return any(iteration.is_sweep for iteration in run.iterations[first:])


@pytest.mark.parametrize(
    "changes",
    [
        {"gpu": "a40"},
        {"time_scale": 4.0},
        pytest.param({"time_scale": 2.0}, marks=pytest.mark.stress),
        {"imbalance": 0.4},
    ],
    ids=["other GPU", "larger microbatches", "smaller microbatches", "other model"],
)
def test_other_work_under_the_name_ends_as_fast_as_without(changes: dict[str, object]) -> None:
    run = played(NextJob(iteration=FIRST, changes=changes))
    check(run)
    assert all(span.end.baseline.num_iterations for span in run.jobs)
    assert run.jobs[1].end.enforced.time_s < 1.01 * run.jobs[1].undisturbed_time_s


@pytest.mark.stress
def test_other_work_without_a_saved_profile_is_swept_again() -> None:
    run = played(NextJob(iteration=140, changes={"gpu": "a40"}), iterations=320, profile=SWEEP)
    check(run, first=140)
    assert is_swept(run, 140)


@pytest.mark.stress
def test_shapes_that_come_and_go_keep_every_promise() -> None:
    run = played(
        NextJob(iteration=60, changes={"pp": 3}),
        NextJob(iteration=110, changes={"dp": 1, "microbatches": 8}),
        NextJob(iteration=150, changes={"pp": 4, "dp": 2, "microbatches": 4}),
        iterations=200, pp=4, profile=SWEEP, layers=96, imbalance=0.3, time_scale=2.0,
    )  # fmt: skip
    assert broken_invariants(run) == ()
    for first in (60, 110, 150):
        assert first_followed(run, first) <= SOON
        assert not is_swept(run, first)


def test_another_number_of_microbatches_is_planned_from_the_profile_that_is_there() -> None:
    run = played(NextJob(iteration=140, changes={"microbatches": 6}), iterations=230, profile=SWEEP)
    check(run, first=140)
    assert not is_swept(run, 140)
    assert first_followed(run, 140) <= SOON + 2, "and the time that planning takes"


def test_another_number_of_microbatches_while_blocking_power_is_measured_waits_for_that() -> None:
    first = 12  # iterations are so short that none of the new ones has been timed when the sweep is to go on (seed 197)
    changes = {"schedule": "interleaved", "chunks": 2, "microbatches": 6, "dp": 1, "gpu": "a40", "time_scale": 0.2407}
    run = played(NextJob(iteration=first, changes={"microbatches": 10}), iterations=160, imbalance=0.05, **changes)
    check(run, first=first)


@pytest.mark.parametrize("profile", [SAVED, SWEEP])
def test_the_same_job_again_keeps_its_plan_which_is_in_force_soon(profile: str) -> None:
    first = FIRST if profile == SAVED else 140
    run = played(NextJob(iteration=first), iterations=first + 70, profile=profile)
    check(run, first=first)
    assert not is_swept(run, first)
    assert first_followed(run, first) <= SOON


def test_trainers_that_are_started_again_keep_their_plan() -> None:
    run = played(
        ProcessEvent(iteration=FIRST, action=KILL, process=Process.TRAINER, rank=0),
        ProcessEvent(iteration=FIRST, action=RESTART, process=Process.TRAINER, rank=0),
    )
    check(run)
    assert not is_swept(run)
    assert first_followed(run) <= SOON


@pytest.mark.parametrize(
    ("changes", "killed", "restarted"),
    [
        pytest.param(changes, killed, restarted, id=f"{name}-{killed}-{restarted}", marks=marks)
        for name, changes in (("same", {}), ("other GPU", {"gpu": "a40"}), ("microbatches", {"microbatches": 6}))
        for killed, restarted, marks in (
            (FIRST - 2, FIRST + 2, () if name == "same" else pytest.mark.stress),
            (FIRST - 2, FIRST, pytest.mark.stress if name == "same" else pytest.mark.soak),
            (FIRST, FIRST + 4, pytest.mark.stress if name == "same" else pytest.mark.soak),
        )
    ],
)
def test_a_planner_that_is_killed_between_two_jobs_knows_what_they_run(
    changes: dict[str, object], killed: int, restarted: int
) -> None:
    run = played(
        ProcessEvent(iteration=killed, action=KILL, process=Process.PLANNER),
        *([NextJob(iteration=FIRST, changes=changes)] if restarted != FIRST else []),
        ProcessEvent(iteration=restarted, action=RESTART, process=Process.PLANNER),
        *([NextJob(iteration=FIRST, changes=changes)] if restarted == FIRST else []),
        iterations=140,
    )
    check(run)
    if not changes:
        assert first_followed(run) <= SOON + restarted - FIRST + 6, "agents look for a planner every few seconds"


def test_one_rank_on_another_gpu_than_its_peers_is_planned_anew() -> None:
    """Of another power limit: it is the fingerprint of a single rank that differs."""
    run = played(
        PowerCap(iteration=FIRST - 1, rank=3, power_limit_w=250.0),
        NextJob(iteration=FIRST),
        iterations=160,
    )
    check(run)
