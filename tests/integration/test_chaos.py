"""Whole jobs with faults in virtual time: with Perseus and without, judged, and from the command line."""

import json
from pathlib import Path
from typing import Any

import pytest

from perseus_dist.cli import main
from perseus_dist.simulation.chaos.drawing.draw import draw_scenario
from perseus_dist.simulation.chaos.errors import ScenarioError
from perseus_dist.simulation.chaos.events import Partition, SlowDown
from perseus_dist.simulation.chaos.play import play
from perseus_dist.simulation.chaos.record import PlayedRun
from perseus_dist.simulation.chaos.scenario import SAVED, Scenario, ScenarioJob
from perseus_dist.simulation.chaos.trial import playable
from perseus_dist.simulation.chaos.virtual_world import can_apply, open_virtual_world

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


def test_what_the_simulator_cannot_do_is_left_out_or_refused() -> None:
    job = ScenarioJob(schedule="1f1b", pp=2, microbatches=4)
    cut = Partition(iteration=3, is_partitioned=True)
    slow = SlowDown(iteration=3, rank=0, slowdown=1.2)
    scenario = Scenario(job=job, iterations=9, events=(cut, slow))
    assert can_apply(slow)
    if not can_apply(cut):
        assert playable(scenario).events == (slow,)
        with pytest.raises(ScenarioError, match="does not apply events of this kind"):
            play(scenario, open_virtual_world)
    for seed in range(50):
        assert all(map(can_apply, playable(draw_scenario(seed)).events))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--scenario", "nowhere.json", "--virtual-time"], "nowhere.json: cannot be read"),
        (["--chaos", "1"], "--chaos without --virtual-time"),
        (["--chaos", "1", "--virtual-time", "--pp", "2"], "--pp beside --chaos"),
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
