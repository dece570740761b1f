"""Whole jobs with faults in virtual time: with Perseus and without, judged, and from the command line."""

import json
from pathlib import Path
from typing import Any

import pytest

from perseus_dist.cli import main
from perseus_dist.simulation.chaos.errors import ScenarioError
from perseus_dist.simulation.chaos.play import play
from perseus_dist.simulation.chaos.record import PlayedRun
from perseus_dist.simulation.chaos.scenario.events import (
    DiskFull,
    Event,
    HeatCap,
    MessageDelay,
    NextJob,
    Partition,
    PowerCap,
    Process,
    ProcessAction,
    ProcessEvent,
    Repetition,
    SlowDown,
    SlowLink,
    StragglerOrder,
    TargetOrder,
)
from perseus_dist.simulation.chaos.scenario.scenario import SAVED, Scenario, ScenarioJob
from perseus_dist.simulation.chaos.world.virtual_world import open_virtual_world

SMALL = {"schedule": "1f1b", "pp": 2, "dp": 1, "microbatches": 4, "time_scale": 3, "profile": "saved"}


def written(folder: Path, **fields: Any) -> str:
    path = folder / "scenario.json"
    path.write_text(json.dumps({**SMALL, **fields}))
    return str(path)


def test_an_undisturbed_job_breaks_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, iterations=70)
    assert main(["simulate", "--virtual-time", "--scenario", path, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["broken_invariants"] == document["events"] == []
    assert document["clocks_left_locked"] == 0
    assert document["saving_percent"] > 3
    assert abs(document["time_lost_percent"]) < 0.5
    assert len(document["iterations"]) == len(document["without"]) == 70
    assert document["iterations"][-1]["phase"] == "enforcing"
    for one in document["without"]:
        assert one["time_s"] == pytest.approx(document["undisturbed_time_s"], rel=1e-6)


def test_faults_are_the_same_with_perseus_and_without(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = [
        {"iteration": 4, "rank": 1, "slowdown": 1.5},
        {"iteration": 6, "rank": 1, "slowdown": 1.0},
        {"iteration": 30, "rank": 1, "power_limit_w": 200},
        {"iteration": 34, "rank": 1, "power_limit_w": None},
    ]
    main(["simulate", "--virtual-time", "--scenario", written(tmp_path, iterations=40, events=events), "--json"])
    document = json.loads(capsys.readouterr().out)
    usual_s = document["undisturbed_time_s"]
    slow = [i for i, one in enumerate(document["without"]) if one["time_s"] > 1.1 * usual_s]
    assert slow == [4, 5, 30, 31, 32, 33]
    with_s = [one["time_s"] for one in document["iterations"]]
    assert with_s[:8] == pytest.approx([one["time_s"] for one in document["without"][:8]])
    assert [one["iteration"] for one in document["events"]] == [4, 6, 30, 34]


def trained(**other: Any) -> PlayedRun:
    job = ScenarioJob(schedule="1f1b", pp=2, microbatches=4, profile=SAVED, noise_percent=1.0, **other)
    return play(Scenario(job=job, iterations=12, seed=3), open_virtual_world)


def test_noise_is_repeatable_and_the_same_without() -> None:
    first, again = trained(), trained()
    assert [one.time_s for one in first.iterations] == [one.time_s for one in again.iterations]
    assert len({one.time_s for one in first.iterations[:8]}) == 8
    assert [one.time_s for one in first.iterations[:8]] == [one.time_s for one in first.without[:8]]


def test_every_kind_of_event_is_applied() -> None:
    """In both worlds; the other job's iterations are numbered on."""
    job = ScenarioJob(schedule="1f1b", pp=2, dp=2, microbatches=2, profile=SAVED)
    kill, stop, go_on, again = ProcessAction.KILL, ProcessAction.STOP, ProcessAction.CONTINUE, ProcessAction.RESTART
    events: tuple[Event, ...] = (
        SlowDown(iteration=1, rank=0, slowdown=1.2),
        HeatCap(iteration=1, node=0, thermal_cap_mhz=1200),
        PowerCap(iteration=2, rank=1, power_limit_w=300.0),
        SlowLink(iteration=2, rank=2, transfer_s=0.01),
        ProcessEvent(iteration=3, action=kill, process=Process.AGENT, rank=1),
        ProcessEvent(iteration=4, action=again, process=Process.AGENT, rank=1),
        ProcessEvent(iteration=4, action=stop, process=Process.PLANNER),
        ProcessEvent(iteration=5, action=go_on, process=Process.PLANNER),
        ProcessEvent(iteration=5, action=kill, process=Process.LEASE, rank=3),
        ProcessEvent(iteration=6, action=again, process=Process.LEASE, rank=3),
        MessageDelay(iteration=6, delay_s=0.2),
        Partition(iteration=7, is_partitioned=True, rank=2),
        Partition(iteration=8, is_partitioned=False, rank=2),
        Repetition(iteration=8, repeat=0.5),
        DiskFull(iteration=9, is_full=True),
        DiskFull(iteration=10, is_full=False),
        ProcessEvent(iteration=10, action=kill, process=Process.PLANNER),
        ProcessEvent(iteration=12, action=again, process=Process.PLANNER),
        ProcessEvent(iteration=13, action=kill, process=Process.TRAINER, rank=0),
        ProcessEvent(iteration=13, action=again, process=Process.TRAINER, rank=0),
        TargetOrder(iteration=14, target="slowdown=1.1"),
        StragglerOrder(iteration=14, pipeline=1, degree=1.2),
        StragglerOrder(iteration=15),
        NextJob(iteration=16, changes={"gpu": "a40", "microbatches": 3}),
        SlowDown(iteration=17, rank=0, slowdown=1.2),
    )
    run = play(Scenario(job=job, iterations=20, seed=3, events=events), open_virtual_world)
    assert [(span.first, span.last) for span in run.jobs] == [(0, 15), (16, 19)]
    assert {run.iterations[number].phase for number in (10, 11)} == {"down"}
    assert run.clocks_left_locked == 0
    with_it, without = ([one.time_s for one in found] for found in (run.iterations, run.without))
    assert with_it[:3] == pytest.approx(without[:3], rel=0.02)
    assert without[17] > 1.05 * without[16]


def test_dead_trainers_train_nothing() -> None:
    job = ScenarioJob(schedule="1f1b", pp=2, microbatches=2)
    dies = ProcessEvent(iteration=1, action=ProcessAction.KILL, process=Process.TRAINER, rank=0)
    with pytest.raises(ScenarioError, match="the trainers are dead; restart one"):
        play(Scenario(job=job, iterations=3, events=(dies,)), open_virtual_world)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--scenario", "nowhere.json", "--virtual-time"], "nowhere.json: cannot be read"),
        (["--chaos", "1"], "--chaos without --virtual-time"),
        (["--chaos", "1", "--virtual-time", "--pp", "2"], "--pp beside --chaos"),
        (["--chaos", "1", "--virtual-time", "--known-failures", "f"], "--known-failures goes with several seeds"),
        (["--chaos", "1-2", "--virtual-time", "--known-failures", "nowhere.json"], "nowhere.json: cannot be read"),
        (["--chaos", "5-1", "--virtual-time"], "'5-1' is neither a seed"),
        (["--chaos", "1", "--scenario", "f", "--virtual-time"], "not allowed with"),
    ],
)
def test_bad_options_are_refused_in_a_line(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["simulate", *options])
    except SystemExit as stop:
        code = int(str(stop.code))
    assert code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
