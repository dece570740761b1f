import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perseus_dist.simulation.chaos.errors import ScenarioError
from perseus_dist.simulation.chaos.scenario.events import (
    DiskFull,
    HeatCap,
    Loss,
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
from perseus_dist.simulation.chaos.scenario.scenario import Scenario, ScenarioJob
from perseus_dist.simulation.chaos.scenario.scenario_file import format_scenario, parse_scenario, read_scenario

FIELDS: dict[str, Any] = {
    "schedule": "1f1b", "pp": 2, "dp": 4, "microbatches": 4, "gpu": "a100", "imbalance": 0.1, "noise_percent": 0.5,
    "iterations": 270, "profile": "sweep", "target": "t_min", "seed": 1,
}  # fmt: skip


def scenario(*events: dict[str, Any], **fields: Any) -> Scenario:
    return parse_scenario(json.dumps({**FIELDS, **fields, "events": events}), "file.json")


DOCUMENTATION = Path(__file__).resolve().parents[2] / "docs" / "simulator.md"


@pytest.mark.parametrize("event", re.findall(r'`(\{"iteration": .*?\})`', DOCUMENTATION.read_text()))
def test_events_in_the_documentation_are_read(event: str) -> None:
    assert len(scenario(json.loads(event)).events) == 1


def test_the_documentation_shows_an_event_of_each_sort() -> None:
    shown = re.findall(r'`(\{"iteration": .*?\})`', DOCUMENTATION.read_text())
    kinds = {type(scenario(json.loads(event)).events[0]) for event in shown}
    assert kinds >= {SlowDown, ProcessEvent, Loss, StragglerOrder}


@pytest.mark.parametrize("at", ["", ', "events": [{"iteration": 1, "rank": 0, "slowdown": 2, "slowdown": 1}]'])
def test_a_key_that_stands_there_twice_is_refused(at: str) -> None:
    whole = json.dumps(FIELDS)[:-1] + (at or ', "pp": 3') + "}"
    with pytest.raises(ScenarioError, match=r"'(pp|slowdown)' stands there twice"):
        parse_scenario(whole, "file.json")


def test_a_whole_file() -> None:
    read = scenario(
        {"iteration": 0, "rank": 3, "slowdown": 1.2},
        {"iteration": 90, "rank": 3, "slowdown": 1},
        {"iteration": 40, "rank": 5, "thermal_cap_mhz": 1005},
        {"iteration": 5, "rank": 1, "power_limit_w": 300},
        {"iteration": 50, "rank": 1, "power_limit_w": None},
        {"iteration": 50, "kill": "agent", "rank": 3},
        {"iteration": 60, "restart": "agent", "rank": 3},
        {"iteration": 70, "kill": "planner"},
        {"iteration": 200, "job": {"gpu": "h100", "microbatches": 8}},
    )
    assert read.job == ScenarioJob(
        schedule="1f1b", pp=2, dp=4, microbatches=4, gpu="a100", imbalance=0.1, noise_percent=0.5
    )
    assert (read.iterations, read.seed) == (270, 1)
    assert read.events == (
        SlowDown(iteration=0, rank=3, slowdown=1.2),
        PowerCap(iteration=5, rank=1, power_limit_w=300),
        HeatCap(iteration=40, rank=5, thermal_cap_mhz=1005),
        PowerCap(iteration=50, rank=1, power_limit_w=None),
        ProcessEvent(iteration=50, rank=3, action=ProcessAction.KILL, process=Process.AGENT),
        ProcessEvent(iteration=60, rank=3, action=ProcessAction.RESTART, process=Process.AGENT),
        ProcessEvent(iteration=70, action=ProcessAction.KILL, process=Process.PLANNER),
        SlowDown(iteration=90, rank=3, slowdown=1.0),
        NextJob(iteration=200, changes={"gpu": "h100", "microbatches": 8}),
    )
    assert [(first, job.gpu, job.microbatches) for first, job in read.jobs()] == [(0, "a100", 4), (200, "h100", 8)]


def test_layers_are_split_evenly_over_the_stages_of_each_job() -> None:
    read = scenario({"iteration": 9, "job": {"pp": 3}}, {"iteration": 18, "job": {"layers": 0}}, pp=4, layers=14)
    assert [job.layers_of_stages for _, job in read.jobs()] == [(4, 4, 3, 3), (5, 5, 4), ()]
    assert parse_scenario(format_scenario(read), "file.json") == read


def test_what_is_left_out_is_the_default() -> None:
    read = parse_scenario('{"schedule": "gpipe", "pp": 1, "microbatches": 2, "iterations": 3}')
    assert read == Scenario(job=ScenarioJob(schedule="gpipe", pp=1, microbatches=2), iterations=3)


def test_a_planner_that_takes_long_survives_a_file() -> None:
    job = ScenarioJob(schedule="gpipe", pp=1, microbatches=2)
    slow = Scenario(job=job, iterations=3, planning_s=90.5)
    assert parse_scenario(format_scenario(slow)) == slow
    assert "planning_s" not in format_scenario(replace(slow, planning_s=3.0))


PAUSES = (ProcessAction.STOP, ProcessAction.CONTINUE)
"""What happens to no trainer: without one, nothing goes on."""


def test_every_kind_of_event_survives_a_file() -> None:
    written = Scenario(
        job=ScenarioJob(
            schedule="interleaved", pp=2, dp=8, microbatches=4, chunks=2, time_scale=2.5, target="deadline=2.5"
        ),
        iterations=100,
        seed=7,
        events=(
            SlowDown(iteration=1, node=1, slowdown=1.3),
            HeatCap(iteration=2, node=0, thermal_cap_mhz=1005),
            HeatCap(iteration=3, node=0, thermal_cap_mhz=None),
            PowerCap(iteration=4, rank=15, power_limit_w=250.0),
            SlowLink(iteration=5, rank=2, transfer_s=0.25),
            SlowLink(iteration=6, rank=2, transfer_s=None),
            *(
                ProcessEvent(iteration=7, action=action, process=process, rank=0)
                for action in ProcessAction
                for process in Process
                if process is not Process.PLANNER and not (process is Process.TRAINER and action in PAUSES)
            ),
            ProcessEvent(iteration=8, action=ProcessAction.STOP, process=Process.PLANNER),
            MessageDelay(iteration=9, delay_s=0.5),
            MessageDelay(iteration=10, delay_s=None, rank=3),
            Partition(iteration=11, is_partitioned=True, rank=3),
            Partition(iteration=12, is_partitioned=False),
            Repetition(iteration=13, repeat=0.5),
            Loss(iteration=13, lose=0.1, rank=2),
            DiskFull(iteration=14, is_full=True),
            TargetOrder(iteration=15, target="slowdown=1.1"),
            StragglerOrder(iteration=16, pipeline=1, degree=1.2),
            StragglerOrder(iteration=17, pipeline=1),
            StragglerOrder(iteration=18),
            NextJob(iteration=19, changes={}),
            NextJob(iteration=20, changes={"pp": 4, "imbalance": 0.3}),
            SlowDown(iteration=21, rank=31, slowdown=1.1),
        ),
    )
    text = format_scenario(written)
    assert parse_scenario(text) == written
    assert format_scenario(parse_scenario(text)) == text


def test_limits_are_those_of_the_gpu_that_an_event_is_about() -> None:
    """An A40 has clocks above all of an A100's, and may draw 300 W; ranks 1, 3, ... have A40s."""
    of_a40 = scenario({"iteration": 9, "rank": 3, "thermal_cap_mhz": 1500}, gpu="a100,a40")
    assert of_a40.job.gpus == "a100,a40,a100,a40,a100,a40,a100,a40"
    for place in ({"rank": 2}, {"node": 0}):
        with pytest.raises(ScenarioError, match="thermal_cap_mhz"):
            scenario({"iteration": 9, **place, "thermal_cap_mhz": 1500}, gpu="a100,a40")
    scenario({"iteration": 9, "rank": 2, "power_limit_w": 320}, gpu="a100,a40")
    with pytest.raises(ScenarioError, match="power_limit_w: saw 320, expected"):
        scenario({"iteration": 9, "node": 0, "power_limit_w": 320}, gpu="a100,a40")


def test_ranks_of_tensor_parallel_groups_lie_side_by_side() -> None:
    read = scenario({"iteration": 9, "rank": 14, "thermal_cap_mhz": 1500}, gpu="a100,a40", tp=2)
    assert read.job.gpus == ",".join(["a100,a100,a40,a40"] * 4)
    assert [read.job.pp_rank_of(rank) for rank in range(6)] == [0, 0, 1, 1, 0, 0]
    assert read.job.group_of(3, 1) == range(14, 16)
    assert parse_scenario(format_scenario(read)) == read
    with pytest.raises(ScenarioError, match="thermal_cap_mhz"):
        scenario({"iteration": 9, "rank": 13, "thermal_cap_mhz": 1500}, gpu="a100,a40", tp=2)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"pp": 0}, "file.json: pp: saw 0, expected a whole number from 1 to 64; mend it"),
        ({"pp": True}, "pp: saw true"),
        ({"schedule": "2f2b"}, 'schedule: saw "2f2b", expected "gpipe", "1f1b", "interleaved"'),
        ({"gpu": "v100"}, 'gpu: saw "v100", expected "a100"'),
        ({"gpu": "a100,v100"}, 'gpu: saw "a100,v100", expected "a100"'),
        ({"gpu": "a100,a40,a40"}, "gpu: saw 3 names, expected one, or 2, one for each rank of a pipeline"),
        ({"imbalance": float("nan")}, "imbalance: saw NaN"),
        ({"noise_percent": -1}, "noise_percent: saw -1, expected a number from 0 to 20; mend it, or leave it out"),
        ({"pp": 16, "dp": 8}, "pp x dp x tp: saw 16 x 8 x 1 = 128 ranks, expected at most 64"),
        ({"tp": 0}, "tp: saw 0, expected a whole number from 1 to 64"),
        ({"pp": 4, "dp": 3, "tp": 6}, "pp x dp x tp: saw 4 x 3 x 6 = 72 ranks, expected at most 64"),
        ({"imbalance": 10**400}, "imbalance: saw 100000"),
        ({"imbalance": float("nan")}, "imbalance: saw NaN, expected a number from 0 to 10"),
        ({"planning_s": float("inf")}, "planning_s: saw Infinity, expected a number from 0 to"),
        ({"target": "slowdown=0.5"}, 'target: saw "slowdown=0.5", expected "t_min"'),
        ({"colour": 1}, 'saw the field "colour", expected schedule'),
        ({"schedule": "interleaved", "chunks": 2, "microbatches": 3}, "schedule:"),
        ({"iterations": None}, "iterations: saw null"),
        ({"events": {}}, "events: saw {}, expected a list"),
        ({"pp": 4, "layers": 3}, "layers: saw 3, expected 4 or more, one for each stage; or 0"),
    ],
)
def test_a_bad_field_is_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError) as refusal:
        parse_scenario(json.dumps({**FIELDS, **fields}), "file.json")
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ({"iteration": 1}, "events[0]: saw no field that says what happens, expected one of slowdown"),
        ({"iteration": 1, "rank": 1, "slowdown": 1.2, "kill": "agent"}, "saw slowdown and kill, expected one of"),
        ({"rank": 1, "slowdown": 1.2}, 'saw no "iteration"'),
        ({"iteration": 270, "rank": 1, "slowdown": 1.2}, "saw 270, expected less than the 270 that are trained"),
        ({"iteration": 1, "rank": 8, "slowdown": 1.2}, "rank: saw 8, expected a whole number from 0 to 7 or null"),
        ({"iteration": 1, "node": 1, "slowdown": 1.2}, "node: saw 1, expected a whole number from 0 to 0"),
        ({"iteration": 1, "slowdown": 1.2}, 'saw neither of "rank" and "node"'),
        ({"iteration": 1, "rank": 1, "node": 0, "slowdown": 1.2}, 'saw both of "rank" and "node"'),
        ({"iteration": 1, "rank": 1, "slowdown": 0.5}, "slowdown: saw 0.5, expected a number from 1 to 100"),
        ({"iteration": 1, "rank": 1, "thermal_cap_mhz": 1006}, "thermal_cap_mhz: clock 1006 MHz"),
        ({"iteration": 1, "rank": 1, "power_limit_w": 600}, "power_limit_w: saw 600"),
        ({"iteration": 1, "kill": "agent"}, "rank: saw no rank, expected that of the agent; add it"),
        ({"iteration": 1, "kill": "planner", "rank": 0}, "rank: saw rank 0, expected none"),
        ({"iteration": 1, "stop": "trainer", "rank": 0}, 'stop: saw "trainer", expected "agent"'),
        ({"iteration": 1, "kill": "job"}, 'kill: saw "job", expected "agent"'),
        ({"iteration": 1, "partition": "yes"}, 'partition: saw "yes", expected true or false'),
        ({"iteration": 1, "straggler": {"pipeline": 4, "degree": 1.2}}, "straggler: pipeline: saw 4"),
        ({"iteration": 0, "job": {}}, "iteration: saw 0, expected 1 or more"),
        ({"iteration": 9, "job": {"pp": 99}}, "events[0]: job: pp: saw 99"),
        ({"iteration": 9, "job": {"iterations": 9}}, 'job: saw the field "iterations"'),
        (7, "events[0]: saw 7, expected a JSON object"),
    ],
)
def test_a_bad_event_is_named(event: Any, message: str) -> None:
    with pytest.raises(ScenarioError) as refusal:
        scenario(event)
    assert message in str(refusal.value)


def test_events_are_checked_against_the_job_that_they_happen_to() -> None:
    smaller = {"iteration": 10, "job": {"dp": 1}}
    assert len(scenario({"iteration": 9, "rank": 7, "slowdown": 1.2}, smaller).events) == 2
    with pytest.raises(ScenarioError, match="rank: saw 7"):
        scenario(smaller, {"iteration": 11, "rank": 7, "slowdown": 1.2})


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"a": }', b"\xff", b"[" * 100_000])
def test_what_is_no_scenario_is_refused_in_a_line(tmp_path: Any, content: bytes) -> None:
    path = tmp_path / "scenario.json"
    path.write_bytes(content)
    with pytest.raises(ScenarioError) as refusal:
        read_scenario(path)
    assert str(refusal.value).startswith(str(path))
    with pytest.raises(ScenarioError, match="cannot be read"):
        read_scenario(tmp_path)
