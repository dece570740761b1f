import json
import subprocess
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseus_dist.errors import ScheduleError
from perseus_dist.planning.schedule.calls.dualpipev import dualpipev
from perseus_dist.planning.schedule.dry_run import check_schedule
from perseus_dist.planning.schedule.instruction import Instruction
from perseus_dist.planning.schedule.named import make_schedule
from perseus_dist.planning.schedule.schedule import (
    Exchange,
    Schedule,
    format_schedule,
    gpipe,
    interleaved,
    joint_exchanges,
    one_f_one_b,
)
from perseus_dist.planning.schedule.schedule_text import parse_schedule


@st.composite
def interleaved_schedules(draw: st.DrawFn) -> Schedule:
    pp = draw(st.integers(2, 6))
    microbatches = draw(st.integers(pp, 30))
    groups = [size for size in range(pp, microbatches + 1) if not 0 < microbatches % size < pp]
    chunks = draw(st.integers(2, 4))
    return interleaved(
        pp=pp, microbatches=microbatches, chunks=chunks, microbatch_group_size=draw(st.sampled_from(groups))
    )


ONE_CHUNK_SCHEDULES = st.builds(
    make_schedule, st.sampled_from(["gpipe", "1f1b"]), pp=st.integers(1, 8), microbatches=st.integers(1, 20)
)


DUALPIPEV = st.integers(1, 6).flatmap(
    lambda pp: st.builds(dualpipev, pp=st.just(pp), microbatches=st.integers(2 * pp, 2 * pp + 9))
)


@given(ONE_CHUNK_SCHEDULES | interleaved_schedules() | interleaved_schedules().map(joint_exchanges) | DUALPIPEV)
def test_generated_schedules_are_complete_end_and_read_back(schedule: Schedule) -> None:
    check_schedule(schedule)
    read_back = parse_schedule(format_schedule(schedule))
    assert read_back == schedule
    assert read_back.digest() == schedule.digest()


def test_gpipe_order() -> None:
    assert format_schedule(gpipe(pp=2, microbatches=3)) == "0F0 0F1 0F2 0B0 0B1 0B2\n1F0 1F1 1F2 1B0 1B1 1B2\n"


def test_fewer_microbatches_than_warm_up() -> None:
    assert format_schedule(one_f_one_b(pp=4, microbatches=1)) == "0F0 0B0\n1F0 1B0\n2F0 2B0\n3F0 3B0\n"


def test_pairs_of_the_steady_state_exchange_jointly() -> None:
    assert format_schedule(make_schedule("interleaved", pp=2, microbatches=4, chunks=2, overlap_p2p=False)) == (
        "0F0 0F1 2F0 2F1 0F2+ 2B0 0F3+ 2B1 2F2+ 0B0 2F3+ 0B1 2B2 2B3 0B2 0B3\n"
        "1F0 1F1 3F0+ 3B0 3F1+ 3B1 1F2+ 1B0 1F3+ 1B1 3F2+ 3B2 3F3+ 3B3 1B2 1B3\n"
    )


def test_one_pair_and_none_look_alike_but_are_told_apart() -> None:
    joint = joint_exchanges(interleaved(pp=4, microbatches=5, chunks=2, microbatch_group_size=5)).joint
    assert [len([i for i in joint if i.stage % 4 == pp_rank]) for pp_rank in range(4)] == [0, 1, 3, 5]


def test_joint_exchanges_of_an_order_with_constants_at_its_end() -> None:
    plain = interleaved(pp=2, microbatches=4, chunks=2)
    ends = [(Instruction(pp_rank, "REDUCE", -1), Instruction(pp_rank, "STEP", -1)) for pp_rank in range(2)]
    whole = Schedule(ranks=tuple((*order, *end) for order, end in zip(plain.ranks, ends, strict=True)))
    joint = joint_exchanges(whole)
    assert joint == Schedule(ranks=whole.ranks, joint=joint_exchanges(plain).joint)
    assert joint_exchanges(joint) == joint
    assert joint.digest() != whole.digest()


@pytest.mark.parametrize(
    "schedule",
    [
        one_f_one_b(pp=2, microbatches=4),
        one_f_one_b(pp=1, microbatches=1),
        Schedule(ranks=interleaved(pp=2, microbatches=4, chunks=2).ranks[::-1]),
        Schedule(
            ranks=tuple((order[1], order[0], *order[2:]) for order in interleaved(pp=2, microbatches=2, chunks=2).ranks)
        ),
    ],
)
def test_joint_exchanges_are_of_the_interleaved_schedule_alone(schedule: Schedule) -> None:
    with pytest.raises(ScheduleError, match="the order is another: give one of schedule=interleaved"):
        joint_exchanges(schedule)


def test_dualpipev() -> None:
    assert format_schedule(dualpipev(pp=2, microbatches=4)) == (
        "0F0 0F1 0F2 3F0 3B0 3F1 0F3 3B1 3F2 0B0 3B2 3F3 0B1 3B3 0B2 0B3\n"
        "1F0 2F0 1F1 2F1 1F2 2B0 2F2 1B0 1F3 2B1 2F3 1B1 2B2 1B2 2B3 1B3\n"
        "# exchange: dualpipev\n"
    )
    with pytest.raises(ScheduleError, match="DualPipeV with pp=3 needs at least 6 microbatches, got 5"):
        dualpipev(pp=3, microbatches=5)
    other = replace(interleaved(pp=2, microbatches=4, chunks=2), exchange=Exchange.DUALPIPEV)
    with pytest.raises(ScheduleError, match="exchange: dualpipev: DeepSpeed's DualPipeV alone"):
        check_schedule(other)


def test_sizes_and_placement() -> None:
    schedule = interleaved(pp=4, microbatches=8, chunks=2)
    assert (schedule.num_ranks, schedule.num_stages, schedule.num_microbatches) == (4, 8, 8)
    assert schedule.rank_of_stage == (0, 1, 2, 3, 0, 1, 2, 3)


def test_digest_is_that_of_the_text() -> None:
    schedule = one_f_one_b(pp=2, microbatches=4)
    assert schedule.digest() == sha256(format_schedule(schedule).encode()).hexdigest()
    assert schedule.digest() != gpipe(pp=2, microbatches=4).digest()


def test_orders_recorded_from_megatron(shared_data: Path) -> None:
    cases = json.loads((shared_data / "megatron_orders.json").read_text())["cases"]
    compared = 0
    for name, case in cases.items():
        config = case["config"]
        if config.get("forward_only"):  # no training iteration
            continue
        pp, chunks = config["pp"], config.get("vpp", 1)
        schedule = make_schedule(
            "interleaved" if chunks > 1 else "1f1b",
            pp=pp,
            microbatches=config["m"],
            chunks=chunks,
            microbatch_group_size=config.get("group"),
        )
        assert schedule.num_ranks == len(case["ranks"]), name
        for rank, recorded in case["ranks"].items():
            expected = [
                Instruction(chunk * pp + int(rank), kind, microbatch) for kind, chunk, microbatch in recorded["order"]
            ]
            assert list(schedule.ranks[int(rank)]) == expected, f"{name}, pp_rank {rank}"
            compared += 1
    assert compared >= 30


def test_orders_recorded_from_deepspeed(shared_data: Path) -> None:
    recorded = json.loads((shared_data / "deepspeed_orders.json").read_text())
    for key, pp, microbatches in (("stages4_mb8", 4, 8), ("stages2_mb4", 2, 4)):
        schedule = one_f_one_b(pp=pp, microbatches=microbatches)
        for stage in range(pp):
            expected = [f"{stage}{token}" for token in recorded[key][str(stage)]["compute_order"]]
            assert [str(instruction) for instruction in schedule.ranks[stage]] == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "zb"}, r"schedule=zb: expected one of gpipe, 1f1b, interleaved"),
        ({"name": "1f1b", "pp": 0}, r"pp=0: expected a positive integer"),
        ({"name": "gpipe", "microbatches": -1}, r"microbatches=-1: expected a positive integer"),
        ({"name": "interleaved", "chunks": 0}, r"chunks=0: expected a positive integer"),
        (
            {"name": "interleaved", "chunks": 2, "microbatch_group_size": 0},
            r"microbatch_group_size=0: expected a positive integer",
        ),
        ({"name": "1f1b", "chunks": 2}, r"chunks=2 with schedule=1f1b.*leave chunks= out"),
        ({"name": "gpipe", "microbatch_group_size": 4}, r"microbatch_group_size=4 with schedule=gpipe.*leave"),
        ({"name": "1f1b", "overlap_p2p": False}, r"overlap_p2p=False with schedule=1f1b.*leave overlap_p2p= out"),
        ({"name": "interleaved"}, r"pp=4 chunks=1: Megatron interleaves 2 chunks or more"),
        ({"name": "interleaved", "pp": 1, "chunks": 2}, r"pp=1 chunks=2: .* on 2 pp_ranks or more"),
        ({"name": "interleaved", "chunks": 2, "microbatches": 3}, r"microbatches=3 with pp=4: .*microbatches=4"),
        (
            {"name": "interleaved", "chunks": 2, "microbatches": 10},
            r"microbatches=10 leaves a last group of 2 after groups of 4 .*: give microbatches=8 or 12, or "
            r"microbatch_group_size=5",
        ),
        (
            {"name": "interleaved", "chunks": 2, "microbatches": 11, "microbatch_group_size": 5},
            r"a last group of 1 after groups of 5 .*microbatches=10 or 15, or microbatch_group_size=6",
        ),
        (
            {"name": "interleaved", "chunks": 2, "microbatch_group_size": 3},
            r"microbatch_group_size=3: Megatron wants it from pp=4 to microbatches=8",
        ),
        (
            {"name": "interleaved", "chunks": 2, "microbatch_group_size": 9},
            r"microbatch_group_size=9: Megatron wants it from pp=4 to microbatches=8",
        ),
    ],
)
def test_refuses_impossible_sizes(arguments: dict[str, str | int], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        make_schedule(**{"pp": 4, "microbatches": 8} | arguments)  # type: ignore[arg-type]


@given(pp=st.integers(2, 8), microbatches=st.integers(1, 40), group=st.none() | st.integers(1, 40))
def test_refuses_exactly_what_megatron_refuses(pp: int, microbatches: int, group: int | None) -> None:
    size = group or pp
    megatron_runs_it = pp <= size <= microbatches and not 0 < microbatches % size < pp
    try:
        interleaved(pp=pp, microbatches=microbatches, chunks=2, microbatch_group_size=group)
    except ScheduleError:
        assert not megatron_runs_it
    else:
        assert megatron_runs_it


def test_trainers_can_import_it_with_the_standard_library_alone() -> None:
    code = (
        "import sys; sys.modules.update(numpy=None, networkx=None)\n"
        "import perseus_dist.planning.schedule.instruction, perseus_dist.planning.schedule.schedule"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_as_many_computations_as_needed_are_not_all_that_are() -> None:
    """Two of a stage for one of another, as many as forwards and backwards of every stage would be."""
    orders = [[(0, "F", -1), (0, "F", 0), (0, "B", -1), (0, "B", 0)], [(1, "LOAD", 0)]]
    schedule = Schedule(ranks=tuple(tuple(Instruction(*one) for one in order) for order in orders))
    with pytest.raises(ScheduleError, match="missing 1F0 and 1B0"):
        check_schedule(schedule)
