"""The adapter on DeepSpeed's real ``PipelineEngine``: what it tells the agent, and that training never notices.

``PERSEUS_TEST_DEEPSPEED_OLD`` names a folder with another version of DeepSpeed, on which the same is then run.
"""

import importlib.util
import json
import os
import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from framework_harness import Harness, Seen
from python_path import python_path
from waiting import PATIENCE_S

from perseus_dist.agent.following.rank_program import rank_order
from perseus_dist.planning.profile.profile_csv import Row, write_rows
from perseus_dist.planning.schedule.calls.dualpipev import dualpipev
from perseus_dist.planning.schedule.instruction import Instruction
from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.planning.schedule.schedule_text import parse_schedule
from perseus_dist.simulator.machine import SimulatedMachine
from perseus_dist.simulator.work import work_environment

pytestmark = pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="DeepSpeed is not installed")

OLD = os.environ.get("PERSEUS_TEST_DEEPSPEED_OLD")
KINDS = {
    "LoadMicroBatch": "LOAD",
    "ForwardPass": "F",
    "BackwardPass": "B",
    "ReduceTiedGrads": "TIED",
    "ReduceGrads": "REDUCE",
    "OptimizerStep": "STEP",
}
WITHOUT_MICROBATCH = ("TIED", "REDUCE", "STEP")
FORWARD_S, BACKWARD_S = 0.030, 0.055
IMBALANCE = 0.4
BF16 = {"bf16": {"enabled": True}}


class DeepSpeedHarness(Harness):
    """A process with DeepSpeed imported, from a folder or as it is installed."""

    def __init__(self, folder: str | None) -> None:
        # Disabled while it imports DeepSpeed: this environment may have Perseus enabled.
        environment = {"DS_ACCELERATOR": "cpu", "PERSEUS_DISABLE": "1"}
        if folder is not None:
            environment["PYTHONPATH"] = python_path(folder)
        super().__init__("deepspeed_harness.py", environment)

    def run(self, **case: Any) -> list[Seen]:
        """What each rank saw."""
        return super().run(**{"options": {}, **case})


VERSIONS = [pytest.param(None, id="new"), *([pytest.param(OLD, id="old", marks=pytest.mark.stress)] if OLD else [])]


@pytest.fixture(scope="module", params=VERSIONS)
def harness(request: pytest.FixtureRequest) -> Iterator[Harness]:
    with DeepSpeedHarness(request.param).running() as harness:
        yield harness


@pytest.fixture
def newest(harness: Harness) -> Harness:
    if is_older(harness, "0.19.8"):
        pytest.skip(f"not in DeepSpeed {harness.version}")
    return harness


def is_older(harness: Harness, version: str) -> bool:
    seen, wanted = ([int(part) for part in text.split(".")] for text in (harness.version, version))
    return seen < wanted


def expected_order(rank: Seen, pp_rank: int) -> list[Instruction]:
    """What DeepSpeed's schedule of a stage comes to, microbatches from buffers: its other way to name them."""
    counts: dict[str, int] = {}
    order = []
    for command, _ in rank["commands"][pp_rank]:
        if command in KINDS:
            kind = KINDS[command]
            microbatch = -1 if kind in WITHOUT_MICROBATCH else counts.get(kind, 0)
            counts[kind] = microbatch + 1
            order.append(Instruction(pp_rank, kind, microbatch))
    return order


def iterations(boundaries: list[list[Any]]) -> dict[int, list[list[Any]]]:
    """Boundaries by iteration."""
    return {number: list(group) for number, group in groupby(boundaries, key=lambda boundary: boundary[4])}


def instructions_run(boundaries: list[list[Any]], pp_rank: int) -> list[Instruction]:
    """Those of an iteration; each begins and ends before the next begins."""
    run = [boundary for boundary in boundaries if boundary[0] in ("BEGIN", "END")]
    begins, ends = run[::2], run[1::2]
    assert [b[0] for b in begins] == ["BEGIN"] * len(begins)
    assert [e[0] for e in ends] == ["END"] * len(ends)
    assert [b[1:] for b in begins] == [e[1:] for e in ends]
    assert {b[2] for b in begins} == {0}
    return [Instruction(pp_rank, b[1], b[3]) for b in begins]


def check_agent(rank: Seen, agent: Seen, numbers: range) -> None:
    """Whole iterations with these numbers, in the order of DeepSpeed's schedule, which is the promised one."""
    spec, seen = agent["spec"], iterations(agent["boundaries"])
    expected = expected_order(rank, spec["pp_rank"])
    assert [
        Instruction(spec["pp_rank"], work.kind, work.microbatch)
        for work in rank_order(spec["schedule"], spec["pp_rank"])
    ] == expected
    assert list(seen) == list(numbers)
    for boundaries in seen.values():
        assert instructions_run(boundaries, spec["pp_rank"]) == expected
        events = [boundary[0] for boundary in boundaries if boundary[0].startswith("ITERATION")]
        assert events == ["ITERATION_BEGIN", "ITERATION_END"]
        sync = boundaries.index(["MARK", "grad_sync", 0, -1, boundaries[0][4]])
        assert boundaries[sync + 1][:2] == ["BEGIN", "TIED"]


def marks(agent: Seen) -> list[str]:
    return [boundary[1] for boundary in agent["boundaries"] if boundary[0] == "MARK" and boundary[1] != "grad_sync"]


def warnings(rank: Seen) -> list[str]:
    """Without the one that there is no GPU."""
    return [said for said in rank["said"] if said.startswith("WARNING") and "does not run on a GPU" not in said]


@pytest.mark.parametrize(
    "case",
    [
        {"pp": 4, "mb": 8},
        {"pp": 4, "mb": 2},
        {"pp": 2, "dp": 2, "mb": 4},
        {"pp": 2, "dp": 2, "mb": 4, "zero": 1, "tied": True},
        {"pp": 2, "tp": 2, "mb": 3},
        {"pp": 2, "mb": 4, "zero": 1, "config": BF16, "checkpoint_interval": 1},
    ],
    ids=["pp4-mb8", "pp4-mb2", "pp2-dp2", "pp2-dp2-zero1-tied", "pp2-tp2", "pp2-bf16-zero1-recompute"],
)
def test_boundaries_are_those_of_deepspeeds_schedule(harness: Harness, case: dict[str, Any]) -> None:
    if is_older(harness, "0.16"):
        case = {**case, "checkpoint_interval": 0}  # recomputes on GPUs only
    seen = harness.run(**case, steps=["train"] * 4)
    pp, dp, tp = case["pp"], case.get("dp", 1), case.get("tp", 1)
    assert len(seen) == pp * dp * tp
    specs = []
    for number, rank in enumerate(seen):
        assert rank["losses"] == rank["plain_losses"]
        assert warnings(rank) == []
        (agent,) = rank["agents"]
        first = agent["boundaries"][0][4]
        assert first == 0 if number == 0 else first in (0, 1)  # as soon as rank 0 has said what the job is
        check_agent(rank, agent, range(first, 4))
        specs.append(agent["spec"])
    assert len({(spec["job_id"], spec["rendezvous"], spec["schedule"]) for spec in specs}) == 1
    assert [spec["rank"] for spec in specs] == list(range(pp * dp * tp))
    assert {(spec["pp_size"], spec["dp_size"], spec["tp_size"]) for spec in specs} == {(pp, dp, tp)}
    # DeepSpeed counts ranks along the axes pipe, data, model, the last one fastest.
    assert [(spec["pp_rank"], spec["dp_rank"], spec["tp_rank"]) for spec in specs] == [
        (pp_rank, dp_rank, tp_rank) for pp_rank in range(pp) for dp_rank in range(dp) for tp_rank in range(tp)
    ]
    schedule = parse_schedule(specs[0]["schedule"])  # complete, and without deadlock
    computations = tuple(tuple(i for i in order if not i.is_constant) for order in schedule.ranks)
    assert computations == one_f_one_b(pp=pp, microbatches=case["mb"]).ranks


def test_the_planner_is_told_what_the_engine_computes_and_which_start_it_is(harness: Harness) -> None:
    case = {"pp": 2, "mb": 3, "zero": 1, "config": BF16, "steps": ["train"] * 3}
    specs, again = ([rank["agents"][0]["spec"] for rank in harness.run(**case)] for _ in range(2))
    for spec in specs:
        workload = dict(spec["workload"])
        assert f"deepspeed {harness.version}" in workload.pop("versions")
        assert workload == {
            "framework": "deepspeed",
            "precision": "bf16",
            "microbatch_size": 2,
            "sequence_length": 0,  # not known before the first batch
            "stage_parameters": [4 * (16 * 16 + 16)],
            "tp_size": 1,
            "cp_size": 0,
            "ep_size": 0,
            "stage_layers": [8],
        }
    assert [spec["workload"] for spec in again] == [spec["workload"] for spec in specs]
    (first,), (second,) = ({spec["run_id"] for spec in started} for started in (specs, again))
    assert first
    assert second not in ("", first)


def test_every_stage_counts_the_tokens_of_its_microbatches(harness: Harness) -> None:
    for case in ({"pp": 3}, {"pp": 2, "tp": 2, "checkpoint_interval": 0}, {"pp": 1}):
        for rank in harness.run(**case, mb=4, steps=["train", "train", "eval", "train"]):
            assert rank["losses"] == rank["plain_losses"]
            (agent,) = rank["agents"]
            numbers = range(agent["boundaries"][0][4], 3)
            # Two samples of 16 numbers; DeepSpeed's own LOAD says what is waited for.
            assert agent["work"] == {str(number): {"tokens": 4 * 2 * 16, "wait_ns": -1} for number in numbers}


def test_tokens_follow_the_sequences_lengths(newest: Harness) -> None:
    seen = newest.run(pp=3, mb=4, lengths=[3, 5, 7, 9, 20, 5, 7, 9], steps=["train"] * 4)
    for rank in seen:
        assert rank["losses"] == rank["plain_losses"]
        (agent,) = rank["agents"]
        tokens = {int(number): work["tokens"] for number, work in agent["work"].items()}
        assert tokens == {number: 2 * (41 if number % 2 else 24) for number in range(min(tokens), 4)}
        assert min(tokens) <= 1


def test_evaluation_and_checkpoints_are_marked_and_silent(harness: Harness) -> None:
    steps = ["train", "train", "eval", "train", "save", "train"]
    for rank in harness.run(pp=2, mb=4, steps=steps):
        assert rank["losses"] == rank["plain_losses"]
        (agent,) = rank["agents"]
        assert marks(agent) == ["eval_begin", "eval_end", "checkpoint"]
        check_agent(rank, agent, range(agent["boundaries"][0][4], 4))


def test_a_changed_batch_is_a_new_job_of_the_same_name(harness: Harness) -> None:
    steps = ["train"] * 3 + ["microbatches=6"] + ["train"] * 5
    seen = harness.run(pp=2, mb=4, steps=steps)
    for rank in seen:
        assert rank["losses"] == rank["plain_losses"]
        before, after = rank["agents"]
        assert before["boundaries"][-1][0] == "CLOSE"
        assert list(iterations(before["boundaries"]))[-1] == 2
        assert before["spec"]["job_id"] == after["spec"]["job_id"]
        assert before["spec"]["rendezvous"] != after["spec"]["rendezvous"]
        assert before["spec"]["run_id"] != after["spec"]["run_id"]
        assert before["spec"]["workload"] == after["spec"]["workload"]
        check_agent(rank, after, range(after["boundaries"][0][4], 8))
        assert after["boundaries"][0][4] in (5, 6)  # once it has stayed for two iterations
    assert [len(warnings(rank)) for rank in seen] == [1, 0]
    assert "the batch changed from 4 to 6" in warnings(seen[0])[0]


def test_changed_shapes_are_planned_anew(harness: Harness) -> None:
    (rank,) = harness.run(pp=1, mb=2, steps=["train", "reshape", "train", "train", "train"])
    assert rank["losses"] == rank["plain_losses"]
    before, after = rank["agents"]
    assert list(iterations(before["boundaries"])) == [0]
    assert list(iterations(after["boundaries"])) == [2, 3]
    (warning,) = warnings(rank)
    assert "the shape of activations changed" in warning


def test_a_curriculum_that_changes_shapes_is_planned_anew(harness: Harness) -> None:
    if not is_older(harness, "0.19.7"):
        pytest.skip(f"DeepSpeed {harness.version} has no legacy curriculum")
    schedule = {"total_curriculum_step": 4, "difficulty_step": 8}
    curriculum = {
        "enabled": True,
        "curriculum_type": "seqlen",
        "min_difficulty": 8,
        "max_difficulty": 16,
        "schedule_type": "fixed_linear",
        "schedule_config": schedule,
    }
    (rank,) = harness.run(pp=1, mb=1, steps=["train"] * 7, config={"curriculum_learning": curriculum})
    assert rank["losses"] == rank["plain_losses"]
    assert len(rank["agents"]) == len(warnings(rank)) + 1 == 2


def test_a_loader_that_ends_in_the_middle(harness: Harness) -> None:
    (rank,) = harness.run(pp=1, mb=4, steps=["train", "starve=2"])  # after which DeepSpeed trains no more
    assert rank["losses"] == rank["plain_losses"]
    assert rank["caught"] == rank["plain_caught"]
    assert rank["caught"][0].startswith("StopIteration")
    (agent,) = rank["agents"]
    seen = iterations(agent["boundaries"])
    assert [boundary[:2] for boundary in seen[1][-2:]] == [["BEGIN", "LOAD"], ["MARK", "release"]]


def test_an_instruction_that_fails(harness: Harness) -> None:
    (rank,) = harness.run(pp=1, mb=2, fails_at=3, steps=["train", "fail"])
    assert rank["caught"] == rank["plain_caught"] == ["ArithmeticError: the layer has failed"]
    (agent,) = rank["agents"]
    failed = iterations(agent["boundaries"])[1]
    assert [boundary[:2] for boundary in failed[-2:]] == [["BEGIN", "F"], ["MARK", "release"]]


def test_another_order_than_promised_releases_clocks(harness: Harness) -> None:
    (rank,) = harness.run(pp=1, mb=2, steps=["attach", "train", "swap", "train", "train", "swap", "train", "train"])
    (agent,) = rank["agents"]
    seen = iterations(agent["boundaries"])
    assert list(seen) == [0, 1, 4]
    assert seen[1][-1][:2] == ["MARK", "release"]
    assert instructions_run(seen[4], 0) == expected_order(rank, 0)
    (warning,) = warnings(rank)
    assert "saw 0REDUCE, expected 0TIED" in warning


def test_attach_twice_and_detach(harness: Harness) -> None:
    (rank,) = harness.run(pp=1, mb=2, steps=["attach", "attach", "train", "detach", "detach", "train"])
    assert rank["losses"] == rank["plain_losses"]
    (agent,) = rank["agents"]
    assert list(iterations(agent["boundaries"])) == [0]
    assert agent["boundaries"][-1][0] == "CLOSE"
    assert rank["left_behind"] == []


@pytest.mark.parametrize("end", ["destroy", "drop"])
def test_an_engine_that_is_made_again_is_another_job(harness: Harness, end: str) -> None:
    steps = [*["train"] * 3, *(["destroy"] if end == "destroy" else []), "drop", *["train"] * 3]
    seen = harness.run(pp=2, mb=2, options={}, steps=steps)
    for rank in seen:
        assert rank["losses"] == rank["plain_losses"]
        assert warnings(rank) == []
        before, after = rank["agents"]
        assert [list(iterations(agent["boundaries"]))[-1] for agent in (before, after)] == [2, 2]
        assert before["boundaries"][-1][0] == "CLOSE"
        assert before["spec"]["run_id"] != after["spec"]["run_id"]


def test_an_engine_that_is_collected_ends_its_part(harness: Harness) -> None:
    """The last stage's may live on: DeepSpeed's backward hooks, which autograd holds, refer to it."""
    first, last = harness.run(pp=2, mb=2, options={}, steps=[*["train"] * 3, "forget", "drop"])
    (agent,) = first["agents"]
    assert agent["boundaries"][-1][0] == "CLOSE"
    assert warnings(last) == []


def test_two_engines_that_train_in_turns_train_without(harness: Harness) -> None:
    seen = harness.run(
        pp=2, mb=2, options={}, steps=[*["train"] * 3, "keep", *["train"] * 3, "turn", *["train"] * 2, "turn", "train"]
    )
    for rank in seen:
        assert rank["losses"] == rank["plain_losses"]
        assert [list(iterations(agent["boundaries"]))[-1] for agent in rank["agents"]] == [2, 2]
    assert [len(warnings(rank)) for rank in seen] == [1, 0]
    assert "two engines train in this process, and a GPU has one clock" in warnings(seen[0])[0]


def test_trouble_of_ours_never_reaches_training(harness: Harness) -> None:
    (rank,) = harness.run(pp=1, mb=2, steps=["attach", "train", "break", "train", "train"])
    assert rank["losses"] == rank["plain_losses"]
    assert warnings(rank) == ["WARNING: perseus: clocks stay as they are: the hook is broken"]
    (agent,) = rank["agents"]
    assert agent["boundaries"][-1][0] == "CLOSE"


@pytest.mark.parametrize(
    ("options", "block", "num_agents", "target"),
    [
        (None, None, 0, None),
        (None, {}, 1, None),
        (None, {"target": "slowdown=1.05"}, 1, "slowdown=1.05"),
        (None, {"enabled": False}, 0, None),
        ({}, {"enabled": False}, 1, None),
        ({"target": "t_min"}, {"target": "slowdown=1.05", "job": "mine"}, 1, "t_min"),
    ],
)
def test_options_come_before_the_configurations_block(
    harness: Harness,
    options: dict[str, str] | None,
    block: dict[str, object] | None,
    num_agents: int,
    target: str | None,
) -> None:
    config = {} if block is None else {"perseus": block}
    (rank,) = harness.run(pp=1, mb=1, steps=["train"], options=options, config=config)
    assert warnings(rank) == []
    assert len(rank["agents"]) == num_agents
    for agent in rank["agents"]:
        assert agent["spec"]["target"] == target
        assert (agent["spec"]["job_id"] == "mine") == ("job" in (block or {}))


def test_all_options_reach_the_agent(harness: Harness) -> None:
    options = {
        "planner": "127.0.0.1:1",
        "profile": "/profile.csv",
        "report": "/report",
        "job": "job",
        "token_file": "/token",
        "control": "direct",
        "tls_ca": "/ca",
    }
    (rank,) = harness.run(pp=1, mb=1, steps=["train"], options=options)
    spec = rank["agents"][0]["spec"]
    assert {name: spec[name] for name in ("planner", "profile", "report", "token_file")} == {
        name: options[name] for name in ("planner", "profile", "report", "token_file")
    }
    assert spec["job_id"] == "job"
    assert spec["rendezvous"] is None
    assert spec["options"] == {"tls_ca": "/ca"}
    assert spec["control"] == "observe"  # whatever was asked for: it trains on the CPU


def test_a_block_that_cannot_be_used_is_said_once(harness: Harness) -> None:
    seen = harness.run(pp=2, mb=1, steps=["train", "train"], options=None, config={"perseus": {"planet": "mars"}})
    assert [len(warnings(rank)) for rank in seen] == [1, 0]
    assert "perseus.planet" in warnings(seen[0])[0]
    for rank in seen:
        assert rank["losses"] == rank["plain_losses"]
        assert rank["agents"] == []


@pytest.mark.parametrize("steps", [["attach", "train"], ["train"]])
def test_disabled_by_the_environment(harness: Harness, steps: list[str]) -> None:
    (rank,) = harness.run(pp=1, mb=1, steps=steps, environment={"PERSEUS_DISABLE": "1"})
    assert rank["agents"] == []
    assert rank["said"] == []
    assert rank["left_behind"] == []


def test_a_rank_that_hears_nothing_from_rank_0_says_so(harness: Harness) -> None:
    seen = harness.run(pp=2, mb=1, steps=["train"] * 6, only_rank_0_disabled=True)
    assert [len(warnings(rank)) for rank in seen] == [0, 1]
    assert "rank 0 has not said" in warnings(seen[1])[0]
    for rank in seen:
        assert rank["losses"] == rank["plain_losses"]
        assert rank["agents"] == []


def test_other_hosts_observe_where_the_planner_is_embedded(harness: Harness) -> None:
    seen = harness.run(pp=2, dp=2, mb=2, steps=["train"] * 3, elsewhere=[2, 3])
    assert [rank["agents"][0]["spec"]["job_id"] for rank in seen] == [seen[0]["agents"][0]["spec"]["job_id"]] * 4
    said = [warning for rank in seen for warning in warnings(rank)]
    assert len(said) == 1
    assert "--perseus-planner" in said[0]


def test_an_axis_that_no_plan_knows_is_refused(harness: Harness) -> None:
    seen = harness.run(pp=1, dp=2, mb=1, axes=["pipe", "data", "expert"], dims=[1, 1, 2], steps=["train", "train"])
    assert [len(warnings(rank)) for rank in seen] == [1, 0]
    assert "pipe, data, expert" in warnings(seen[0])[0]
    for rank in seen:
        assert rank["losses"] == rank["plain_losses"]
        assert rank["agents"] == []
        assert rank["left_behind"] == []


def test_dualpipev_runs_in_the_order_that_is_planned(newest: Harness) -> None:
    pp, microbatches = 2, 5
    steps = ["train", "train", "eval", "train", "train"]
    seen = newest.run(pp=pp, mb=microbatches, module="DualPipeVModule", tied=True, steps=["eval", *steps])
    known = dualpipev(pp=pp, microbatches=microbatches)
    for rank in seen:
        assert rank["losses"] == rank["plain_losses"]
        assert warnings(rank) == []
        (agent,) = rank["agents"]
        schedule, pp_rank = parse_schedule(agent["spec"]["schedule"]), agent["spec"]["pp_rank"]
        assert schedule.exchange == known.exchange
        assert agent["spec"]["workload"]["stage_layers"] == [5, 4]
        assert tuple(tuple(one for one in order if not one.is_constant) for order in schedule.ranks) == known.ranks
        promised = [[work.kind, work.chunk, work.microbatch] for work in rank_order(agent["spec"]["schedule"], pp_rank)]
        for boundaries in list(iterations(agent["boundaries"]).values())[:3]:
            assert [run[1:4] for run in boundaries if run[0] == "BEGIN"] == promised


@pytest.mark.parametrize(
    ("options", "config", "num_warnings"), [({}, {}, 1), (None, {}, 0), (None, {"perseus": {}}, 1)]
)
def test_an_engine_without_a_pipeline(
    harness: Harness, options: dict[str, str] | None, config: dict[str, object], num_warnings: int
) -> None:
    (rank,) = harness.run(pp=1, mb=1, plain=True, options=options, config=config)
    assert len(rank["said"]) == num_warnings
    assert all("has no pipeline" in said for said in rank["said"])


def test_figures_go_to_deepspeeds_monitor(harness: Harness, tmp_path: Path) -> None:
    config = {
        "csv_monitor": {"enabled": True, "output_path": str(tmp_path), "job_name": "job"},
        "steps_per_print": 2,
    }
    steps = ["train", "status=400", "train", "status=300", "train", "train"]
    (rank,) = harness.run(pp=1, mb=2, steps=["attach", *steps], config=config)
    assert warnings(rank) == []
    energies = (tmp_path / "job" / "Train_Samples_perseus_iteration_energy_j.csv").read_text().splitlines()
    assert energies == ["step,perseus_iteration_energy_j", "8,400.0", "16,300.0"]
    found = {path.stem.removeprefix("Train_Samples_perseus_") for path in (tmp_path / "job").glob("*perseus*")}
    assert found == {
        "iteration_energy_j",
        "iteration_time_s",
        "gpu_iteration_energy_j",
        "gpu_clock_mhz",
        "predicted_saving",
        "num_stragglers",
        "straggler_degree",
    }


def write_profile(machine: SimulatedMachine, path: Path, *, num_stages: int = 2) -> None:
    """What a sweep would find, which takes half a minute: of the GPU's model, and of constants that take 1 ms.

    Two stages are on two ranks, four as DualPipeV has them.
    """
    rows = []
    for stage in range(num_stages):
        for kind, kernel, seconds in [("F", "forward", FORWARD_S), ("B", "backward", BACKWARD_S)]:
            for clock in machine.preset.clocks_mhz[:40:4]:
                whole_s = seconds * (1 + stage * IMBALANCE / (num_stages - 1)) * 2 / num_stages
                time_s = machine.preset.kernel_time_s(kernel, whole_s, clock)
                rows.append(Row(0, stage, kind, clock, time_s, time_s * machine.preset.kernel_power_w(kernel, clock)))
        loads = ("LOAD",) * (num_stages == 2 or stage == 0)
        constants = (*loads, *WITHOUT_MICROBATCH) if stage < 2 else ()
        rows += [Row(0, stage, kind, machine.preset.clocks_mhz[0], 1e-3, 0.08) for kind in constants]
    write_rows(path, rows)


@pytest.mark.parametrize(
    ("steps", "module"),
    [
        (["train_until_enforced=80"], "DualPipeVModule"),
        (["train_until_enforced=80", "drop", "train_until_enforced=80"], "PipelineModule"),
    ],
)
@pytest.mark.stress
def test_the_loop_closes_on_simulated_gpus(newest: Harness, tmp_path: Path, steps: list[str], module: str) -> None:
    """Also for an engine that is made again, whose agent gets the clocks that the first one's had."""
    with SimulatedMachine("a100", count=2) as machine:
        write_profile(machine, tmp_path / "profile.csv", num_stages=4 if module == "DualPipeVModule" else 2)
        transfer_s = 0.005 if module == "DualPipeVModule" else 0.0
        work = work_environment(forward_s=FORWARD_S, backward_s=BACKWARD_S, imbalance=IMBALANCE, transfer_s=transfer_s)
        seen = newest.run(
            pp=2,
            mb=4,
            module=module,
            steps=steps,
            real_agents=True,
            environment={**machine.environment(), **work},
            # On a busy machine transfers vary by so much that no clock is lower at T_min.
            options={
                "report": str(tmp_path / "report"),
                "profile": str(tmp_path / "profile.csv"),
                "target": "slowdown=1.05",
            },
        )
        end_s = time.monotonic() + PATIENCE_S
        while not all(gpu.state().is_unlocked for gpu in machine.gpus):
            assert time.monotonic() < end_s
            time.sleep(0.05)
        num_sets = [gpu.state().num_sets for gpu in machine.gpus]
    for rank in seen:
        assert warnings(rank) == []
        assert len(rank["losses"]) >= 3
        if len(steps) == 1:
            assert rank["losses"] == rank["plain_losses"][: len(rank["losses"])]
    assert min(num_sets) > 0
    job = json.loads((tmp_path / "report" / "job.json").read_text())
    assert job["simulated"]
    if len(steps) > 1:  # the second engine begins with the plan of the first, and may end before a probe
        phases = [phase["phase"] for phase in job["phases"]]
        before = job["phases"][: phases.index("enforcing")]
        # On a busy machine transfers may have changed by so much that it is made again.
        assert all("planning again" in phase["reason"] for phase in before if phase["phase"] == "planning")
        assert not any(phase["phase"] == "profiling" for phase in before)
        return
    # The first stage waits for the second, whose clock stays up.
    assert job["enforced"]["energy_j"] < 0.97 * job["baseline"]["energy_j"]
    # 5 % longer than planned at full clocks, where transfers that other processes hold up count too.
    assert job["enforced"]["time_s"] < 1.2 * job["baseline"]["time_s"]
