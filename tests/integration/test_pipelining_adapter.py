"""The adapter on real schedules of ``torch.distributed.pipelining``: what agents are told, and what training is.

Every case is one start of workers, which take all of its schedules in turn.
"""

from collections.abc import Iterator
from importlib.util import find_spec
from itertools import groupby
from typing import Any

import pytest
from pipelining_harness_client import STEPS, Harness, Seen

from perseus_dist.planning.schedule.instruction import Instruction, Kind, parse_instruction
from perseus_dist.planning.schedule.schedule import Exchange, Schedule, format_schedule
from perseus_dist.planning.schedule.schedule_text import parse_schedule

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")

SCHEDULES = (
    "Schedule1F1B",
    "ScheduleGPipe",
    "ScheduleInterleaved1F1B",
    "ScheduleInterleavedZeroBubble",
    "ScheduleZBVZeroBubble",
    "ScheduleDualPipeV",
)
EXCHANGES = {
    "Schedule1F1B": Exchange.DEFERRED,
    "ScheduleGPipe": Exchange.DEFERRED,
}


@pytest.fixture(scope="module")
def harness() -> Iterator[Harness]:
    with Harness().running() as harness:
        yield harness


def test_orders_of_all_schedules_are_what_ran(harness: Harness) -> None:
    ranks = harness.run_schedules(*SCHEDULES)
    for name in SCHEDULES:
        schedule = check_order(ranks, name)
        assert schedule.num_microbatches == 4
        assert schedule.exchange == EXCHANGES.get(name, Exchange.POSTED)
    zero_bubble = schedule_of(ranks, "ScheduleZBVZeroBubble")
    assert zero_bubble.rank_of_stage == (0, 1, 1, 0)
    assert {Kind.INPUT_GRADIENT, Kind.WEIGHT_GRADIENT} <= {i.kind for i in zero_bubble.ranks[0]}


@pytest.mark.stress
def test_orders_of_longer_pipelines_are_what_ran(harness: Harness) -> None:
    ranks = harness.run_schedules(*SCHEDULES[:2], *SCHEDULES[4:], "ScheduleLoopedBFS", pp=4, mb=11)
    for name in ranks[0]:
        check_order(ranks, name)


def check_order(ranks: list[dict[str, Seen]], name: str) -> Schedule:
    """Every rank promised, told and ran the same; losses and parameters are those of the job without."""
    schedule = schedule_of(ranks, name)  # complete and free of deadlock
    for pp_rank, answers in enumerate(ranks):
        rank = answers[name]
        assert rank["losses"][0] == rank["losses"][1]
        assert rank["parameters"][0] == rank["parameters"][1]
        assert not any(rank["left"])
        assert rank["hooks_left"] == 0
        (agent,) = rank["agents"]
        assert agent["spec"]["pp_rank"] == pp_rank
        assert agent["spec"]["schedule"] == ranks[0][name]["agents"][0]["spec"]["schedule"]
        order = schedule.ranks[pp_rank]
        ran = [[parse_instruction(text) for text in texts] for texts in rank["ran"]]
        training = [ran[place] for place, step in enumerate(STEPS) if step == "train"]
        assert training == [[i for i in order if i.kind in frozenset(Kind)]] * len(training)
        told = instructions_by_iteration(agent["boundaries"], order)
        assert len(told) >= 2  # a rank that asks before rank 0 has spoken joins an iteration later
        assert all(instructions == list(order) for instructions in told.values())
        assert {work["tokens"] for work in agent["work"].values()} == {16 * schedule.num_microbatches}
    return schedule


def schedule_of(ranks: list[dict[str, Seen]], name: str) -> Schedule:
    return parse_schedule(ranks[0][name]["agents"][0]["spec"]["schedule"])


def instructions_by_iteration(
    boundaries: list[list[Any]], order: tuple[Instruction, ...]
) -> dict[int, list[Instruction]]:
    """As told; each begins and ends before the next begins, and nothing is told outside of iterations but marks."""
    stages = sorted({instruction.stage for instruction in order})
    told = {}
    for number, group in groupby(boundaries, key=lambda boundary: int(boundary[4])):
        run = [boundary for boundary in group if boundary[0] in ("BEGIN", "END")]
        assert [begin[1:] for begin in run[::2]] == [end[1:] for end in run[1::2]]
        told[number] = [Instruction(stages[chunk], kind, microbatch) for _, kind, chunk, microbatch, _ in run[::2]]
    return told


def test_a_pair_that_overlaps_sends_behind_its_backward(harness: Harness) -> None:
    schedule = schedule_of(harness.run_schedules("ScheduleDualPipeV"), "ScheduleDualPipeV")
    assert "0F3+ 3B1 3F2+ 0B0" in format_schedule(schedule)


def test_evaluation_is_told_as_such_and_nothing_of_it(harness: Harness) -> None:
    steps = ("attach", "train", "train", "eval", "eval", "train")
    for answers in harness.run_schedules("Schedule1F1B", steps=steps):
        boundaries = answers["Schedule1F1B"]["agents"][0]["boundaries"]
        outside = [event[1] for event in boundaries if event[0] == "MARK" and event[1] != "grad_sync"]
        assert outside == ["eval_begin", "eval_end"] * 2
        begin = next(i for i, event in enumerate(boundaries) if event[1] == "eval_begin")
        assert boundaries[begin + 1][1] == "eval_end"


def test_without_the_optimizer_iterations_end_with_the_schedule(harness: Harness) -> None:
    steps = ("attach", "train", "accumulate", "train")
    for answers in harness.run_schedules("Schedule1F1B", steps=steps, has_optimizer=False):
        rank = answers["Schedule1F1B"]
        (agent,) = rank["agents"]
        assert "STEP" not in agent["spec"]["schedule"]
        assert not [event for event in agent["boundaries"] if event[1] in ("release", "STEP")]
        assert rank["losses"][0] == rank["losses"][1]


def test_another_order_than_promised_releases_the_clocks_once(harness: Harness) -> None:
    for answers in harness.run_schedules(
        "Schedule1F1B", steps=("attach", "train", "train", "accumulate", "train", "train")
    ):
        rank = answers["Schedule1F1B"]
        assert sum("saw the end, expected" in sentence for sentence in rank["said"]) == 1
        assert "release" in [event[1] for event in rank["agents"][0]["boundaries"]]
        assert rank["losses"][0] == rank["losses"][1]


def test_an_iteration_that_fails_is_abandoned(harness: Harness) -> None:
    case = {"pp": 1, "mb": 2, "fails_at": 7}  # an iteration has 2 forwards; the first one more, for shapes
    (answers,) = harness.run_schedules("ScheduleGPipe", steps=("attach", "train", "train", "fail"), **case)
    rank = answers["ScheduleGPipe"]
    assert rank["caught"][0] == rank["caught"][1] == ["RuntimeError"]
    assert rank["losses"][0] == rank["losses"][1]
    assert "release" in [event[1] for event in rank["agents"][0]["boundaries"]]


def test_a_schedule_that_is_made_again_takes_the_place_of_the_first(harness: Harness) -> None:
    steps = ("attach", "train", "train", "remake", "attach", *["train"] * 5)  # which joins after two
    for answers in harness.run_schedules("Schedule1F1B", steps=steps):
        first, second = (agent["boundaries"] for agent in answers["Schedule1F1B"]["agents"])
        assert first[-1][0] == "CLOSE"
        assert [event[0] for event in second].count("ITERATION_END") >= 1
        assert answers["Schedule1F1B"]["losses"][0] == answers["Schedule1F1B"]["losses"][1]


def test_a_schedule_that_is_made_again_for_each_step_starts_one_agent_and_leaves_no_hooks(harness: Harness) -> None:
    steps = ("attach", "train", "train", *("remake", "attach", "train") * 6)
    for answers in harness.run_schedules("Schedule1F1B", steps=steps):
        assert len(answers["Schedule1F1B"]["agents"]) == 1
        assert answers["Schedule1F1B"]["hooks_left"] == 0
        assert answers["Schedule1F1B"]["losses"][0] == answers["Schedule1F1B"]["losses"][1]


def test_schedules_that_train_in_turns_are_both_let_go(harness: Harness) -> None:
    steps = ("attach", "train", "train", "remake", "attach", *["train"] * 5, "train_first", "train")
    first, second = (answers["Schedule1F1B"] for answers in harness.run_schedules("Schedule1F1B", steps=steps))
    for rank in (first, second):
        assert [agent["boundaries"][-1][0] for agent in rank["agents"]] == ["CLOSE", "CLOSE"]
        assert rank["losses"][0] == rank["losses"][1]
    assert sum("two schedules train in this process" in sentence for sentence in first["said"]) == 1
    assert not any("two schedules" in sentence for sentence in second["said"])


def test_a_schedule_that_nothing_refers_to_releases_its_clocks(harness: Harness) -> None:
    """Although its optimizer is kept."""
    for answers in harness.run_schedules("ScheduleZBVZeroBubble", steps=("attach", "train", "train", "forget")):
        (agent,) = answers["ScheduleZBVZeroBubble"]["agents"]
        assert agent["boundaries"][-1][0] == "CLOSE"


def test_ranks_are_named_by_the_groups_of_the_job(harness: Harness) -> None:
    ranks = harness.run_schedules("ScheduleInterleaved1F1B", dp=2)
    specs = [answers["ScheduleInterleaved1F1B"]["agents"][0]["spec"] for answers in ranks]
    assert [(spec["dp_rank"], spec["pp_rank"]) for spec in specs] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert {(spec["dp_size"], spec["pp_size"], spec["tp_size"]) for spec in specs} == {(2, 2, 1)}


@pytest.mark.parametrize(
    ("schedule", "case", "sentence"),
    [
        ("Schedule1F1B", {"dp": 2, "is_dp_untold": True}, "4 ranks are not 2 pipeline ranks x 1 data-parallel"),
        ("Schedule1F1B", {"is_none": True}, "attach() was given a NoneType; expected a schedule of"),
        ("ScheduleGPipe", {"no_loss": True}, "the schedule has no loss function"),
        ("Schedule1F1B", {"is_reversed": True}, "stage 1 of 2 is on rank 0 of 2"),
        ("ScheduleDualPipeV", {"custom": True}, "a custom function is registered for OVERLAP_F_B"),
        ("Schedule1F1B", {"environment": {"PERSEUS_TARGET": "fast"}}, "PERSEUS_TARGET is 'fast': expected t_min"),
    ],
)
def test_what_cannot_be_planned_is_refused_in_one_line(
    harness: Harness, schedule: str, case: dict[str, Any], sentence: str
) -> None:
    steps = ("attach", "train") if case.keys() <= {"dp", "is_dp_untold", "is_none", "environment"} else ("attach",)
    first, *others = [
        answers[schedule] for answers in harness.run_schedules(schedule, steps=steps, is_refused=True, **case)
    ]
    (said,) = first["said"]
    assert sentence in said
    for rank in (first, *others):
        assert not rank["agents"]
        assert not any(rank["left"])
        assert rank["losses"][0] == rank["losses"][1]
    assert not any(rank["said"] for rank in others)


def test_options_come_from_the_environment_behind_those_that_were_given(harness: Harness) -> None:
    case = {"environment": {"PERSEUS_TARGET": "slowdown=1.1", "PERSEUS_JOB": "theirs"}, "options": {"job": "ours"}}
    ranks = harness.run_schedules("ScheduleGPipe", **case)
    specs = [answers["ScheduleGPipe"]["agents"][0]["spec"] for answers in ranks]
    assert {(spec["job_id"], spec["target"]) for spec in specs} == {("ours", "slowdown=1.1")}


def test_disabled_it_touches_nothing(harness: Harness) -> None:
    steps = ("attach", "train")
    for answers in harness.run_schedules(
        "Schedule1F1B", steps=steps, is_refused=True, environment={"PERSEUS_DISABLE": "1"}
    ):
        rank = answers["Schedule1F1B"]
        assert not rank["agents"]
        assert not rank["said"]
        assert not any(rank["left"])
        assert rank["hooks_left"] == 0


def test_a_schedule_comes_under_perseus_by_itself_at_its_first_step_that_trains(harness: Harness) -> None:
    steps = ("activate", "eval", "train", "train", "accumulate", "train")
    case = {"options": {"job": "ours"}, "environment": {"PERSEUS_TARGET": "slowdown=1.1"}}
    for pp_rank, answers in enumerate(harness.run_schedules("Schedule1F1B", steps=steps, **case)):
        rank = answers["Schedule1F1B"]
        (agent,) = rank["agents"]
        assert (agent["spec"]["pp_rank"], agent["spec"]["job_id"]) == (pp_rank, "ours")
        assert agent["spec"]["target"] == "slowdown=1.1"
        assert "STEP" not in agent["spec"]["schedule"]  # what the script's optimizer does is not known
        assert "eval_begin" not in [event[1] for event in agent["boundaries"]]
        assert rank["losses"][0] == rank["losses"][1]
        assert rank["parameters"][0] == rank["parameters"][1]


def test_a_script_that_attaches_itself_is_left_to_it(harness: Harness) -> None:
    for answers in harness.run_schedules("ScheduleGPipe", steps=("activate", "attach", "train", "train", "train")):
        rank = answers["ScheduleGPipe"]
        (agent,) = rank["agents"]
        assert "STEP" in agent["spec"]["schedule"]
        assert rank["losses"][0] == rank["losses"][1]


def test_other_groups_than_the_pipeline_are_not_guessed(harness: Harness) -> None:
    first, *others = [
        answers["Schedule1F1B"]
        for answers in harness.run_schedules(
            "Schedule1F1B", steps=("activate", "train", "train"), dp=2, is_refused=True
        )
    ]
    (said,) = first["said"]
    assert "4 ranks are not 2 pipeline ranks x 1 data-parallel" in said
    for rank in (first, *others):
        assert not rank["agents"]
        assert rank["losses"][0] == rank["losses"][1]
    assert not any(rank["said"] for rank in others)


@pytest.mark.parametrize(("accumulation", "has_step"), [(1, True), (2, False)])
def test_torchtitan_says_where_ranks_are_and_what_ends_an_iteration(
    harness: Harness, *, accumulation: int, has_step: bool
) -> None:
    case = {"dp": 2, "accumulation": accumulation}
    ranks = harness.run_schedules("ScheduleInterleaved1F1B", steps=("activate", "train", "train", "train"), **case)
    agents = [answers["ScheduleInterleaved1F1B"]["agents"][0] for answers in ranks]
    specs = [agent["spec"] for agent in agents]
    assert [(spec["pp_rank"], spec["dp_rank"]) for spec in specs] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert {(spec["dp_size"], spec["pp_size"], spec["tp_size"]) for spec in specs} == {(2, 2, 1)}
    assert {"STEP" in spec["schedule"] for spec in specs} == {has_step}
    for answers in ranks:
        rank = answers["ScheduleInterleaved1F1B"]
        assert rank["losses"][0] == rank["losses"][1]
