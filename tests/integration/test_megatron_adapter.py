"""The adapter on megatron-core's real schedules and models: what it tells the agent, and that training never notices.

``PERSEUS_TEST_MEGATRON`` names a folder with a folder for each version of Megatron, unpacked; build/megatron otherwise.
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from framework_harness import Harness, Seen
from python_path import python_path

from perseus_dist.planning.schedule.instruction import Instruction
from perseus_dist.planning.schedule.schedule import Schedule, interleaved, joint_exchanges, one_f_one_b, overlapped
from perseus_dist.planning.schedule.schedule_text import parse_schedule
from perseus_dist.training.rank.constant_kinds import REDUCE, STEP

MEGATRON = Path(os.environ.get("PERSEUS_TEST_MEGATRON", Path(__file__).parents[2] / "build" / "megatron"))
VERSION = "0.16.1"  # the newest that says it runs on Python 3.11
OTHERS = (pytest.param("0.13.1", marks=pytest.mark.stress), "0.19.2")  # the oldest that is supported and the newest

CASES: dict[str, dict[str, Any]] = {
    "pp=4,m=8": {"pp": 4, "mb": 8},
    "pp=4,m=2": {"pp": 4, "mb": 2},
    "pp=4,m=8,vpp=2": {"pp": 4, "mb": 8, "vp": 2},
    "pp=4,m=8,vpp=2,overlap=True": {"pp": 4, "mb": 8, "vp": 2, "overlap": True},
    "pp=4,m=10,vpp=2,group=5": {"pp": 4, "mb": 10, "vp": 2, "group": 5},
    "pp=2,m=4,vpp=3,overlap=True": {"pp": 2, "mb": 4, "vp": 3, "overlap": True},
    "pp=1,m=4": {"pp": 1, "mb": 4},
    "pp=2,m=4,tp=2": {"pp": 2, "mb": 4, "tp": 2},
    "pp=2,m=4,dp=2": {"pp": 2, "mb": 4, "dp": 2, "ddp": True},
    "pp=2,m=4,vpp=2,dp=1": {"pp": 2, "mb": 4, "vp": 2, "overlap": True, "ddp": True},
    "pp=2,m=2,ep=2": {"pp": 2, "mb": 2, "dp": 2, "ep": 2},
}
PAIRS: dict[str, dict[str, Any]] = {
    "pp=1,m=4,ep=2": {"pp": 1, "mb": 4, "dp": 2, "ep": 2, "experts": 4, "pairs": True},
    "pp=2,m=4,vpp=2,ep=2": {"pp": 2, "mb": 4, "vp": 2, "dp": 2, "ep": 2, "overlap": True, "experts": 4, "pairs": True},
    "pp=2,m=6,vpp=2,ep=2,group=3": {
        "pp": 2,
        "mb": 6,
        "vp": 2,
        "group": 3,
        "dp": 2,
        "ep": 2,
        "experts": 4,
        "pairs": True,
    },
}
CASES |= PAIRS
SECOND_OF_A_KIND = ("pp=4,m=8,vpp=2,overlap=True", "pp=2,m=4,vpp=2,ep=2", "pp=2,m=6,vpp=2,ep=2,group=3")
NUM_ITERATIONS = 2  # of a case; ranks other than rank 0 may miss the first
WITHOUT_RECORD = (*PAIRS, "pp=2,m=4,dp=2", "pp=2,m=4,vpp=2,dp=1", "pp=2,m=2,ep=2")


class MegatronHarness(Harness):
    """A process with Megatron imported."""

    def __init__(self, version: str) -> None:
        folder = MEGATRON / version
        if not (folder / "megatron" / "core").is_dir():
            pytest.skip(f"megatron-core {version} is not unpacked in {MEGATRON}")
        environment = {"CUDA_DEVICE_MAX_CONNECTIONS": "1", "PYTHONPATH": python_path(folder)}
        super().__init__("megatron_harness.py", environment, runner=["-m", "perseus_dist.simulation.megatron_on_cpu"])
        self._seen: dict[str, list[Seen]] = {}

    def run(self, **case: Any) -> list[Seen]:
        """What each rank saw; losses and errors are those of training without."""
        seen = super().run(**{"options": {}, **case})
        for rank in seen:
            assert rank.get("losses") == rank.get("plain_losses")
            assert rank.get("caught") == rank.get("plain_caught")
            assert rank.get("left_behind", []) == []
        return seen

    def run_once(self, name: str) -> list[Seen]:
        """What each rank saw in the iterations of one of ``CASES``, which is run when it is first asked for."""
        if name not in self._seen:
            self._seen[name] = self.run(**CASES[name], steps=["train"] * NUM_ITERATIONS)
        return self._seen[name]


@pytest.fixture(scope="module")
def harness() -> Iterator[MegatronHarness]:
    with MegatronHarness(VERSION).running() as harness:
        yield harness


@pytest.fixture(scope="module", params=OTHERS)
def other(request: pytest.FixtureRequest) -> Iterator[MegatronHarness]:
    with MegatronHarness(request.param).running() as harness:
        yield harness


def iterations(agent: Seen) -> dict[int, list[Instruction]]:
    """The instructions of whole iterations, by number; each ends before the next begins."""
    spec, whole = agent["spec"], {}
    for number, group in groupby(agent["boundaries"], key=lambda boundary: boundary[4]):
        boundaries = [boundary for boundary in group if boundary[0] not in ("MARK", "CLOSE")]
        if [boundaries[0][0], boundaries[-1][0]] != ["ITERATION_BEGIN", "ITERATION_END"]:
            continue
        begins, ends = boundaries[1:-1:2], boundaries[2:-1:2]
        assert [begin[1:] for begin in begins] == [end[1:] for end in ends]
        assert {begin[0] for begin in begins} == {"BEGIN"}
        whole[number] = [
            Instruction(chunk * spec["pp_size"] + spec["pp_rank"], kind, microbatch)
            for _, kind, chunk, microbatch, _ in begins
        ]
    return whole


def check_agent(agent: Seen, numbers: range) -> None:
    """Whole iterations with these numbers, each in the promised order."""
    seen = iterations(agent)
    assert list(seen) == list(numbers)
    promised = list(parse_schedule(agent["spec"]["schedule"]).ranks[agent["spec"]["pp_rank"]])
    assert all(order == promised for order in seen.values())


def first_number(agent: Seen) -> int:
    number: int = agent["boundaries"][0][4]
    return number


def marks(agent: Seen) -> list[str]:
    return [boundary[1] for boundary in agent["boundaries"] if boundary[0] == "MARK" and boundary[1] != "grad_sync"]


def warnings(rank: Seen) -> list[str]:
    """Without the one that there is no GPU."""
    return [said for said in rank["said"] if said.startswith("WARNING") and "does not run on a GPU" not in said]


def computations(schedule: Schedule) -> Schedule:
    ranks = tuple(tuple(i for i in order if i.kind not in (REDUCE, STEP)) for order in schedule.ranks)
    return Schedule(ranks=ranks, joint=schedule.joint)


def expected_schedule(case: dict[str, Any]) -> Schedule:
    """Megatron's, as far as it computes."""
    if "vp" not in case:
        schedule = one_f_one_b(pp=case["pp"], microbatches=case["mb"])
        return overlapped(schedule) if case.get("pairs") else schedule
    schedule = interleaved(
        pp=case["pp"], microbatches=case["mb"], chunks=case["vp"], microbatch_group_size=case.get("group")
    )
    schedule = schedule if case.get("overlap") else joint_exchanges(schedule)
    return overlapped(schedule) if case.get("pairs") else schedule


def in_tiers(names: Iterable[str], second: Sequence[str] = SECOND_OF_A_KIND) -> list[Any]:
    """Cases, of which those that are much as another are the stress tier's."""
    return [pytest.param(name, marks=[pytest.mark.stress] if name in second else []) for name in names]


@pytest.mark.parametrize("name", in_tiers(CASES))
def test_boundaries_are_those_of_megatrons_schedule(harness: MegatronHarness, name: str) -> None:
    check_case(harness, name)


@pytest.mark.parametrize("name", ["pp=4,m=8", "pp=4,m=8,vpp=2", "pp=1,m=4", "pp=2,m=4,vpp=2,dp=1"])
def test_boundaries_on_other_versions(other: MegatronHarness, name: str) -> None:
    check_case(other, name)


@pytest.mark.parametrize("other", ["0.19.2"], indirect=True)
@pytest.mark.parametrize("name", in_tiers(PAIRS, SECOND_OF_A_KIND[-1:]))
def test_pairs_that_run_as_one_on_the_newest_version(other: MegatronHarness, name: str) -> None:
    check_case(other, name)


def check_case(harness: MegatronHarness, name: str) -> None:
    case = CASES[name]
    seen = harness.run_once(name)
    pp, num_peers = case["pp"], case.get("dp", 1) * case.get("tp", 1)
    tp = case.get("tp", 1) * case.get("ep", 1)  # experts hold together the ranks that compute them
    assert len(seen) == pp * num_peers
    specs = []
    for number, rank in enumerate(seen):
        assert warnings(rank) == []
        (agent,) = rank["agents"]
        first = first_number(agent)
        assert first == 0 if number == 0 else first in (0, 1)  # as soon as rank 0 has said what the job is
        check_agent(agent, range(first, NUM_ITERATIONS))
        specs.append(agent["spec"])
    assert len({(spec["job_id"], spec["rendezvous"], spec["schedule"]) for spec in specs}) == 1
    assert {(spec["pp_size"], spec["dp_size"] * spec["tp_size"], spec["tp_size"]) for spec in specs} == {
        (pp, num_peers, tp)
    }
    assert [(spec["pp_rank"], spec["dp_rank"], spec["tp_rank"]) for spec in specs] == [
        (pp_rank, peer // tp, peer % tp) for pp_rank in range(pp) for peer in range(num_peers)
    ]
    schedule = parse_schedule(specs[0]["schedule"])  # complete, and without deadlock
    assert computations(schedule) == expected_schedule(case)
    constants = ["REDUCE", "STEP"] if case.get("ddp") else ["STEP"]
    assert all([i.kind for i in order if i.kind in (REDUCE, STEP)] == constants for order in schedule.ranks)


@pytest.mark.parametrize("name", in_tiers(name for name in CASES if name not in WITHOUT_RECORD))
def test_orders_are_those_that_were_recorded_by_other_means(
    harness: MegatronHarness, shared_data: Path, name: str
) -> None:
    case = CASES[name]
    recorded = json.loads((shared_data / "megatron_orders.json").read_text())["cases"][name]["ranks"]
    for rank in harness.run_once(name):
        (agent,) = rank["agents"]
        *_, order = iterations(agent).values()
        computed = [[i.kind, i.stage // case["pp"], i.microbatch] for i in order if not i.is_constant]
        assert computed == recorded[str(agent["spec"]["pp_rank"])]["order"]


def test_tensor_parallel_ranks_tell_the_same(harness: MegatronHarness) -> None:
    seen = harness.run(pp=1, tp=2, mb=2, steps=["train"] * 3)
    first, second = (iterations(rank["agents"][0]) for rank in seen)
    assert first[2] == second[2]


def work(agent: Seen, name: str) -> list[int]:
    """What whole iterations did, in their order."""
    assert [int(number) for number in agent["work"]] == list(iterations(agent))
    return [iteration[name] for iteration in agent["work"].values()]


@pytest.mark.parametrize("name", ["pp=4,m=2", "pp=4,m=8,vpp=2", "pp=2,m=4,tp=2"])
def test_every_stage_counts_the_tokens_of_its_microbatches(harness: MegatronHarness, name: str) -> None:
    check_tokens(harness, name)


@pytest.mark.parametrize("name", ["pp=4,m=8", "pp=4,m=8,vpp=2"])
def test_tokens_on_other_versions(other: MegatronHarness, name: str) -> None:
    check_tokens(other, name)


def check_tokens(harness: MegatronHarness, name: str) -> None:
    case = CASES[name]
    for rank in harness.run_once(name):
        assert set(work(rank["agents"][0], "tokens")) == {16 * case["mb"]}


def test_tokens_follow_the_sequences_lengths(harness: MegatronHarness) -> None:
    for rank in harness.run(pp=3, mb=4, lengths=[3, 9, 16, 5], steps=["train"] * 3):
        assert set(work(rank["agents"][0], "tokens")) == {33}


def test_without_a_pipeline_no_shape_says_the_tokens(harness: MegatronHarness) -> None:
    (rank,) = harness.run_once("pp=1,m=4")
    assert set(work(rank["agents"][0], "tokens")) == {0}


@pytest.mark.parametrize("loader", ["generator", "replaying", "torch"])
def test_waiting_for_input_is_told(harness: MegatronHarness, loader: str) -> None:
    check_input_wait(harness, loader)


def test_waiting_for_input_is_told_on_other_versions(other: MegatronHarness) -> None:
    check_input_wait(other, "replaying")


def check_input_wait(harness: MegatronHarness, loader: str) -> None:
    wait_s = 0.0 if loader == "torch" else 0.03  # its batches are there before the iteration
    for case in ({"pp": 1}, {"pp": 2, "vp": 2}):
        for rank in harness.run(**case, mb=4, loader=loader, wait_s=wait_s, steps=["train"] * 3):
            assert warnings(rank) == []
            waits_ns = work(rank["agents"][0], "wait_ns")
            assert min(waits_ns) >= case.get("vp", 1) * 4 * wait_s * 1e9
            assert min(waits_ns) > 0


@pytest.mark.parametrize("loader", ["own", "none"])
def test_nothing_is_said_of_unknown_loaders_and_of_none(harness: MegatronHarness, loader: str) -> None:
    for rank in harness.run(pp=2, mb=2, loader=loader, wait_s=0.01, steps=["train"] * 3):
        assert warnings(rank) == []
        assert set(work(rank["agents"][0], "wait_ns")) == {-1}


def test_ones_own_loop_has_no_step(harness: MegatronHarness) -> None:
    (rank,) = harness.run(pp=1, mb=2, ddp=True, steps=["loop"] * 3)
    (agent,) = rank["agents"]
    check_agent(agent, range(3))
    assert agent["spec"]["schedule"] == "0F0 0B0 0F1 0B1 0REDUCE\n"


REINFORCING = {
    "pp=2": {"pp": 2, "mb": 4, "ddp": True, "lengths": [16, 8, 12]},
    "pp=2,vpp=2": {"pp": 2, "mb": 4, "vp": 2, "overlap": True, "ddp": True, "lengths": [16]},
}  # verl and slime leave all lengths to what stages send each other


@pytest.mark.parametrize(
    ("loop", "name"),
    [
        ("verl", "pp=2,vpp=2"),
        ("slime", "pp=2"),
        pytest.param("verl", "pp=2", marks=pytest.mark.soak),
        pytest.param("slime", "pp=2,vpp=2", marks=pytest.mark.soak),
    ],
)
def test_loops_of_reinforcement_learning(harness: MegatronHarness, loop: str, name: str) -> None:
    """Log-probabilities are evaluation, each update an iteration that ends with its schedule."""
    case = REINFORCING[name]
    for rank in harness.run(**case, steps=[{"verl": "verl=2", "slime": "slime=4,4"}[loop]] * 3):
        (agent,) = rank["agents"]
        assert marks(agent).count("eval_begin") >= 2
        check_agent(agent, range(first_number(agent), 6))
        orders = [line for line in agent["spec"]["schedule"].splitlines() if not line.startswith("#")]
        assert {token for token in " ".join(orders).split() if token[-1].isalpha()} == {"0REDUCE", "1REDUCE"}
        assert rank["losses"] == rank["plain_losses"]


def test_a_loop_whose_number_of_microbatches_always_changes_trains_on(harness: MegatronHarness) -> None:
    """Batches of as many tokens, cut anew at each step: there is no iteration that a plan could be for."""
    for rank in harness.run(**REINFORCING["pp=2"], steps=["slime=4,6"] * 6):
        assert len(rank["agents"]) <= 4
        assert all(len(list(iterations(agent))) <= 1 for agent in rank["agents"])
        assert rank["losses"] == rank["plain_losses"]


def test_two_models_that_train_in_turn_are_not_mixed_up(harness: MegatronHarness) -> None:
    """As an actor and a critic in the same processes."""
    for rank in harness.run(pp=1, mb=2, steps=["loop", "another_model"] * 8):
        assert all(len(list(iterations(agent))) <= 1 for agent in rank["agents"])
        assert rank["losses"] == rank["plain_losses"]


def test_evaluation_and_checkpoints_are_marked_and_silent(harness: MegatronHarness) -> None:
    steps = ["train", "train", "eval", "train", "save", "train"]
    for rank in harness.run(pp=2, mb=4, steps=steps):
        (agent,) = rank["agents"]
        assert marks(agent) == ["eval_begin", "eval_end", "checkpoint"]
        check_agent(agent, range(first_number(agent), 4))


def test_another_number_of_microbatches_is_planned_anew(harness: MegatronHarness) -> None:
    steps = ["train"] * 3 + ["microbatches=6"] + ["train"] * 5
    seen = harness.run(pp=2, mb=4, steps=steps)
    for rank in seen:
        before, after = rank["agents"]
        assert before["boundaries"][-1][0] == "CLOSE"
        assert list(iterations(before))[-1] == 2
        assert before["spec"]["job_id"] == after["spec"]["job_id"]
        assert first_number(after) in (5, 6)  # once it has stayed for two iterations
        check_agent(after, range(first_number(after), 8))
    assert [len(warnings(rank)) for rank in seen] == [1, 0]
    assert "the batch changed from 4 to 6" in warnings(seen[0])[0]


def test_another_model_is_planned_anew(harness: MegatronHarness) -> None:
    (rank,) = harness.run(pp=1, mb=2, steps=["train", "another_model", "train", "train", "train"])
    before, after = rank["agents"]
    assert list(iterations(before)) == [0]
    assert list(iterations(after)) == [2, 3] or list(iterations(after)) == [3]
    assert "another model is trained" in warnings(rank)[0]


def test_a_pass_that_is_run_again_releases_clocks(harness: MegatronHarness) -> None:
    (rank,) = harness.run(pp=1, mb=2, steps=["train", "train=2", "train", "train"])
    (agent,) = rank["agents"]
    assert list(iterations(agent)) == [0, 3]
    assert marks(agent) == ["release"]
    (warning,) = warnings(rank)
    assert "saw 0F0, expected 0STEP" in warning


def test_a_backward_that_cannot_be_named_releases_clocks(harness: MegatronHarness) -> None:
    (rank,) = harness.run(pp=1, mb=2, steps=["train", "lose_tags", "train", "train"])
    (agent,) = rank["agents"]
    assert list(iterations(agent)) == [0]
    assert marks(agent) == ["release"]
    (warning,) = warnings(rank)
    assert "saw 0B, expected 0B0" in warning


def test_an_instruction_that_fails(harness: MegatronHarness) -> None:
    (rank,) = harness.run(pp=1, mb=2, fails_at=4, steps=["train", "fail", "train", "train"])
    assert rank["caught"] == ["the layer has failed"]
    (agent,) = rank["agents"]
    assert list(iterations(agent)) == [0, 3]
    failed = [boundary for boundary in agent["boundaries"] if boundary[4] == 1]
    assert [boundary[:2] for boundary in failed[-2:]] == [["BEGIN", "F"], ["MARK", "release"]]


def test_installed_twice_and_asked_for_later(harness: MegatronHarness) -> None:
    steps = ["train", "install", "install", "train", "ask", "install", "train", "train"]
    (rank,) = harness.run(pp=1, mb=2, steps=steps)
    assert warnings(rank) == []
    (agent,) = rank["agents"]
    check_agent(agent, range(2))


def test_a_restart_within_the_process_is_a_new_job(harness: MegatronHarness) -> None:
    seen = harness.run(pp=2, mb=2, steps=["train", "train", "restart", "train", "train"])
    for rank in seen:
        before, after = rank["agents"]
        assert before["boundaries"][-1][0] == "CLOSE"
        assert before["spec"]["job_id"] != after["spec"]["job_id"]
        check_agent(after, range(first_number(after), 2))
        assert warnings(rank) == []
    assert len({rank["agents"][1]["spec"]["job_id"] for rank in seen}) == 1


def test_trouble_of_ours_never_reaches_training(harness: MegatronHarness) -> None:
    (rank,) = harness.run(pp=1, mb=2, steps=["train", "break", "train", "train"])
    assert warnings(rank) == ["WARNING: perseus: clocks stay as they are: the hook is broken"]
    (agent,) = rank["agents"]
    assert agent["boundaries"][-1][0] == "CLOSE"


@pytest.mark.parametrize("case", [{"options": None}, {"environment": {"PERSEUS_DISABLE": "1"}}])
def test_not_asked_for_or_disabled(harness: MegatronHarness, case: dict[str, Any]) -> None:
    (rank,) = harness.run(pp=1, mb=2, steps=["train", "eval", "save", "train"], **case)
    assert rank["agents"] == []
    assert rank["said"] == []


def test_all_options_reach_the_agent(harness: MegatronHarness) -> None:
    options = {"planner": "127.0.0.1:1", "profile": "/profile.csv", "job": "job", "target": "slowdown=1.05"}
    (rank,) = harness.run(pp=1, mb=1, steps=["train"], options=options)
    spec = rank["agents"][0]["spec"]
    assert {name: spec[name] for name in ("planner", "profile", "target")} | {"job": spec["job_id"]} == options
    assert spec["control"] == "observe"  # whatever was asked for: it trains on the CPU


@pytest.mark.parametrize(
    ("case", "sentence"),
    [
        ({"without": ["forward_step", "current_microbatch"]}, "forward_step has no parameter current_microbatch"),
        ({"iteration_graph": True}, "--cuda-graph-scope"),
    ],
)
def test_refused_by_rank_0_in_one_line_and_training_goes_on(
    harness: MegatronHarness, case: dict[str, Any], sentence: str
) -> None:
    seen = harness.run(**{"pp": 2, "mb": 2, **case}, steps=["train", "train", "eval"])
    assert [len(warnings(rank)) for rank in seen] == [1, 0]
    assert "perseus: clocks stay as they are" in warnings(seen[0])[0]
    assert sentence in warnings(seen[0])[0]
    assert all(rank["agents"] == [] for rank in seen)


def check_unseen(agent: Seen, numbers: range) -> None:
    """Whole iterations with these numbers, in which nothing is seen."""
    assert agent["spec"]["granularity"] == "rank"
    seen = iterations(agent)
    assert list(seen) == list(numbers)
    assert set(map(tuple, seen.values())) == {(Instruction(agent["spec"]["pp_rank"], "ITERATION", -1),)}
    assert all(work["tokens"] == 0 for work in agent["work"].values())


@pytest.mark.parametrize("case", [{}, {"vp": 2, "overlap": True, "mb": 4}, {"dp": 2, "ddp": True}])
def test_in_a_graph_of_the_whole_iteration_a_rank_has_one_clock(harness: MegatronHarness, case: dict[str, Any]) -> None:
    case = {"pp": 2, "mb": 2, **case}
    steps = ["train"] * 4 + ["eval"] + ["train"] * 2
    for number, rank in enumerate(harness.run(**case, graph_after=2, steps=steps)):
        assert warnings(rank) == []
        (agent,) = rank["agents"]
        check_unseen(agent, range(first_number(agent), 4))
        assert first_number(agent) == 0 if number == 0 else first_number(agent) in (0, 1)
        assert marks(agent) == ["eval_begin", "eval_end"]
        schedule = parse_schedule(agent["spec"]["schedule"])
        assert computations(schedule) == expected_schedule(case)  # that of what cannot be seen
        assert [i.kind for i in schedule.ranks[0] if i.is_constant] == ["REDUCE"] * ("ddp" in case) + ["STEP"]


@pytest.mark.parametrize("other", ["0.19.2"], indirect=True)
def test_graphs_of_the_whole_iteration_on_the_newest_version(other: MegatronHarness) -> None:
    for rank in other.run(pp=2, mb=2, graph_after=1, steps=["train"] * 4):
        (agent,) = rank["agents"]
        check_unseen(agent, range(first_number(agent), 3))


def test_instructions_are_seen_until_the_graph_is_made(harness: MegatronHarness) -> None:
    seen = harness.run(pp=2, mb=2, graph_after=20, steps=["train"] * 26)
    assert [len(warnings(rank)) for rank in seen] == [1, 0]
    assert "each rank has one clock from now on: clocks are released" in warnings(seen[0])[0]
    for number, rank in enumerate(seen):
        eager, graph = rank["agents"]
        assert eager["spec"]["granularity"] == "instruction"
        check_agent(eager, range(first_number(eager), 20))
        check_unseen(graph, range(22 + (number == 1 and first_number(graph) == 23), 26))
        assert graph["spec"]["job_id"] == eager["spec"]["job_id"]
        assert graph["spec"]["schedule"] == eager["spec"]["schedule"]


def test_a_refusal_is_not_said_where_nobody_asks(harness: MegatronHarness) -> None:
    case = {"without": ["forward_step", "current_microbatch"], "options": None}
    (rank,) = harness.run(pp=1, mb=2, steps=["train"], **case)
    assert rank["said"] == []


@pytest.mark.parametrize(
    ("case", "places"),
    [
        # Each: pp_rank, dp_rank, tp_rank, pp_size, dp_size, tp_size.
        ({"pp": 2, "cp": 2}, [[0, 0, 0, 2, 1, 2], [0, 0, 1, 2, 1, 2], [1, 0, 0, 2, 1, 2], [1, 0, 1, 2, 1, 2]]),
        ({"pp": 1, "dp": 2, "cp": 2, "ep": 4}, [[0, 0, rank, 1, 1, 4] for rank in range(4)]),
        ({"pp": 1, "dp": 4, "ep": 2}, [[0, rank // 2, rank % 2, 1, 2, 2] for rank in range(4)]),
        ({"pp": 1, "tp": 2, "dp": 2, "etp": 1}, [[0, rank // 2, rank % 2, 1, 2, 2] for rank in range(4)]),
        ({"pp": 2, "dp": 2, "order": "tp-cp-ep-pp-dp"}, [[rank % 2, rank // 2, 0, 2, 2, 1] for rank in range(4)]),
        ({"pp": 2, "tp": 2, "decentralized": True}, [[rank // 2, 0, rank % 2, 2, 1, 2] for rank in range(4)]),
    ],
)
def test_places_are_read_from_megatrons_groups(
    harness: MegatronHarness, case: dict[str, Any], places: list[list[int]]
) -> None:
    assert [rank["place"] for rank in harness.run(**case, mb=1, steps=["place"])] == places


def test_groups_that_cross_are_refused_on_every_rank(harness: MegatronHarness) -> None:
    for rank in harness.run(pp=1, tp=3, dp=2, ep=2, etp=1, mb=1, steps=["place"]):
        error, sentence = rank["place"]
        assert error == "TopologyError"
        assert "--expert-tensor-parallel-size" in sentence
