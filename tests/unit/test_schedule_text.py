from dataclasses import replace
from pathlib import Path

import pytest

from perseus_dist.agent.following.rank_program import schedule_digest
from perseus_dist.errors import ScheduleError
from perseus_dist.planning.schedule.dry_run import check_schedule
from perseus_dist.planning.schedule.instruction import parse_instruction
from perseus_dist.planning.schedule.named import make_schedule
from perseus_dist.planning.schedule.schedule import Exchange, Schedule, format_schedule, joint_exchanges, one_f_one_b
from perseus_dist.planning.schedule.schedule_text import parse_schedule, read_schedule


def test_comments_blank_lines_commas_and_idle_cells() -> None:
    text = "# two stages\r\n0F0,0F1,,,0B0,0B1\r\n\r\n,1F0,1B0,1F1,1B1, # the last one\r\n"
    assert format_schedule(parse_schedule(text)) == "0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1\n"


def test_v_shaped_placement() -> None:
    schedule = parse_schedule("0F0 3F0 3B0 0B0\n1F0 2F0 2B0 1B0")
    assert schedule.rank_of_stage == (0, 1, 1, 0)


def test_split_backward_and_constants() -> None:
    text = "0LOAD0 0F0 0SEND_F0 0LOAD1 0F1 0SEND_F1 0I0 0W0 0B1 0STEP\n1F0 1I0 1SEND_B0 1F1 1B1 1SEND_B1 1W0 1STEP\n"
    assert format_schedule(parse_schedule(text)) == text


def test_joint_instructions() -> None:
    text = "0F0 0F1 0F2+ 0B0 0B1 0B2\n1F0 1F1+ 1B0 1B1 1F2+ 1B2\n"
    schedule = parse_schedule(text.replace(" ", ",,"))
    assert schedule.joint == {parse_instruction(token) for token in ("0F2", "1F1", "1F2")}
    assert format_schedule(schedule) == text


def test_a_forward_and_a_backward_that_run_as_one() -> None:
    text = "0F0 0F1 0OVERLAP_F2+ 0FB0 0B1 0B2\n1F0 1OVERLAP_F1 1FB0 1OVERLAP_F2 1FB1 1B2\n"
    schedule = parse_schedule(text)
    assert schedule.joint == {parse_instruction("0OVERLAP_F2")}
    assert format_schedule(schedule) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no instructions: expected a line per pp_rank, such as 0F0 0B0"),
        ("0F0 0B0\n,,", r"pp_rank 1 \(line 2\) has no instructions"),
        ("0F0 0B0\n\n1F0  1b0", r"line 3, column 6: '1b0' is not an instruction"),
        ("0F0 0X0 0B0", r"line 1, column 5: '0X0' is not an instruction"),
        ("# one stage\n0F0 0B0 0F0", r"pp_rank 0 \(line 2\): 0F0 is repeated"),
        ("0F0 0B0 0STEP 0STEP", r"0STEP is repeated"),
        (
            "0F0 0B0\n1F0 1B0+ # end",
            r"line 2, column 5: 1B0\+ cannot .* no instruction follows it on its pp_rank; remove",
        ),
        (
            "0F0, 0B0+ 0STEP",
            r"line 1, column 6: 0B0\+ cannot .*: 0STEP is a constant, and only computations do; remove",
        ),
        ("0F0+ 0F1 0B0 0B1", r"line 1, column 1: 0F0\+ cannot .*: 0F1 sends the same way"),
        ("0F0 0F1 0B0+ 0B1", r"line 1, column 9: 0B0\+ cannot .*: 0B1 sends the same way"),
        ("0LOAD0+ 0F0 0B0", r"line 1, column 1: 0LOAD0\+ cannot .*: 0LOAD0 is a constant"),
        ("0F0++ 0B0", r"line 1, column 1: '0F0\+\+' is not an instruction"),
        ("0F0 + 0B0", r"line 1, column 5: '\+' is not an instruction"),
        (
            "0F0 0B0\n1F0 0F1 1B0",
            r"pp_rank 1 \(line 2\): 0F1 is of stage 0, which pp_rank 0 \(line 1\) has already",
        ),
        ("0F0 0F1 0B0 0B1\n1F0 1B0 1B1", r"pp_rank 1 \(line 2\): missing 1F1: 1B1 waits for 1F1"),
        ("0F0 0F1 0B0 0B1\n1F0 1B0", r"pp_rank 1 \(line 2\): missing 1F1 and 1B1: 0B1 waits for 1B1"),
        ("0F0 0B0\n1F0", r"pp_rank 1 \(line 2\): missing 1B0: 0B0 waits for 1B0"),
        ("0F0\n1F0 1B0", r"pp_rank 0 \(line 1\): missing 0B0: every stage runs forward and backward"),
        ("0F0 0B0\n2F0 2B0", r"no pp_rank has stage 1: missing 1F0 and 1B0: 0B0 waits for 1B0"),
        ("0F0 0F2 0B0 0B2", r"missing 0F1 and 0B1: every stage runs forward and backward of every microbatch"),
        ("0F0 0W0", r"missing 0I0: 0W0 waits for 0I0"),
        ("0F0 0I0", r"missing 0W0: "),
        ("0F0 0B0 0W0", r"0B0 and 0W0 are both there: a backward is B, or I and W"),
        ("0F0 0I0 0W0 0B0", r"0B0 and 0I0 are both there"),
        ("0F0 0F1 0OVERLAP_F1 0FB0 0B1", r"0F1 and 0OVERLAP_F1 are both there: remove one form"),
        ("0F0 0OVERLAP_F1 0FB0 0B0 0B1", r"0B0 and 0FB0 are both there"),
        ("0F0 0OVERLAP_F1 0B0 0B1", r"pp_rank 0 \(line 1\): 0OVERLAP_F1 is half of a pair: .* write both"),
        ("0F0 0F1 0FB0 0B1", r"pp_rank 0 \(line 1\): 0FB0 is half of a pair"),
        ("0F0 0B0 0OVERLAP_F", r"'0OVERLAP_F' names no microbatch"),
        ("0F0 0B0 0LOAD1", r"missing 0F1 and 0B1"),
        ("0STEP", r"missing 0F0 and 0B0"),
        ("0F0 0B0 0F999999999", r"missing 0F1 and 0B1"),
        ("0F0 0B0 999999999F0", r"no pp_rank has stage 1: missing 1F0 and 1B0: 0B0 waits for 1B0"),
    ],
)
def test_refuses_incomplete_schedules(text: str, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        parse_schedule(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "0F0 0B0 0F1 0B1\n1F1 1B1 1F0 1B0",
            "deadlock: pp_rank 0 (line 1) waits at 0B0 for 1B0, which pp_rank 1 (line 2) runs only after 1F1; "
            "pp_rank 1 (line 2) waits at 1F1 for 0F1, which pp_rank 0 (line 1) runs only after 0B0: "
            "reorder one of them",
        ),
        (
            "0F0 0F1 0B0 0B1\n1F0 1F1 1B0 1B1\n2F0 2B0 2B1 2F1",
            "deadlock: pp_rank 2 (line 3) waits at 2B1 for 2F1, which pp_rank 2 (line 3) runs only after 2B1; "
            "2 more wait behind them: reorder one of them",
        ),
        (
            "0F0 0W0 0I0",
            "deadlock: pp_rank 0 (line 1) waits at 0W0 for 0I0, which pp_rank 0 (line 1) runs only after 0W0: "
            "reorder one of them",
        ),
        (
            "0F0 0B0 0SEND_F0\n1F0 1B0",
            "deadlock: pp_rank 0 (line 1) waits at 0B0 for 1B0, which pp_rank 1 (line 2) runs only after 1F0; "
            "pp_rank 1 (line 2) waits at 1F0 for 0SEND_F0, which pp_rank 0 (line 1) runs only after 0B0: "
            "reorder one of them",
        ),
        (
            "0F0+ 0B0\n1F0 1B0",
            "deadlock: pp_rank 0 (line 1) waits at 0F0+ 0B0 for 1B0, which pp_rank 1 (line 2) runs only after 1F0; "
            "pp_rank 1 (line 2) waits at 1F0 for 0F0+ 0B0, which pp_rank 0 (line 1) runs only after 0F0+ 0B0: "
            "reorder one of them or remove a +",
        ),
        (
            "0B0+ 0F0",
            "deadlock: pp_rank 0 (line 1) waits at 0B0 for 0F0, which pp_rank 0 (line 1) runs only after 0B0: "
            "reorder one of them or remove a +",
        ),
    ],
)
def test_refuses_deadlocks(text: str, message: str) -> None:
    with pytest.raises(ScheduleError) as refusal:
        parse_schedule(text)
    assert str(refusal.value) == message


def test_joint_instructions_that_were_not_parsed_are_checked_too() -> None:
    schedule = parse_schedule("0F0 0B0")
    for instruction, message in (("0B0", r"pp_rank 0: 0B0\+ cannot"), ("0F1", "0F1 is joint, but no pp_rank runs it")):
        with pytest.raises(ScheduleError, match=message):
            check_schedule(Schedule(ranks=schedule.ranks, joint=frozenset([parse_instruction(instruction)])))


def test_file_errors_name_the_file(tmp_path: Path) -> None:
    orders = tmp_path / "orders.txt"
    with pytest.raises(ScheduleError, match=r"orders\.txt: cannot be read \(No such file"):
        read_schedule(orders)
    orders.write_bytes(b"\xff\xfe0")
    with pytest.raises(ScheduleError, match=r"orders\.txt: not text"):
        read_schedule(orders)
    orders.write_text("0F0 0B0\n1F0\n")
    with pytest.raises(ScheduleError, match=r"orders\.txt: pp_rank 1 \(line 2\): missing 1B0"):
        read_schedule(orders)
    orders.write_text("\ufeff0F0 0B0\n", encoding="utf-8")
    assert format_schedule(read_schedule(orders)) == "0F0 0B0\n"


def test_how_ranks_exchange_is_a_comment_that_counts() -> None:
    usual = one_f_one_b(pp=2, microbatches=2)
    serial = replace(usual, exchange=Exchange.SERIAL)
    text = format_schedule(serial)
    assert text == format_schedule(usual) + "# exchange: serial\n"
    assert parse_schedule(text) == serial
    assert parse_schedule("  #exchange:serial\n" + format_schedule(usual)) == serial
    assert parse_schedule(format_schedule(usual) + "# exchange rates\n") == usual
    assert parse_schedule(text + "# exchange: serial\n") == serial
    with pytest.raises(ScheduleError, match=r"line 4: exchange: batched: line 3 says serial; keep one"):
        parse_schedule(text + "# exchange: batched\n")
    assert serial.digest() == usual.digest() == schedule_digest(text), "orders alone, which older versions know"
    overlapped = make_schedule("interleaved", pp=2, microbatches=4, chunks=2)
    assert overlapped.exchange == Exchange.OVERLAPPED
    assert parse_schedule(format_schedule(overlapped)) == overlapped
    with pytest.raises(ScheduleError, match="exchange: overlapped: Megatron's interleaved schedule alone"):
        parse_schedule(format_schedule(usual) + "# exchange: overlapped\n")
    with pytest.raises(ScheduleError, match="exchange: overlapped-backwards: Megatron's interleaved schedule alone"):
        parse_schedule(format_schedule(joint_exchanges(overlapped)).replace("overlapped", "overlapped-backwards"))
    deferred = replace(make_schedule("gpipe", pp=2, microbatches=3), exchange=Exchange.DEFERRED)
    assert parse_schedule(format_schedule(deferred)) == deferred
    with pytest.raises(ScheduleError, match="exchange: deferred: GPipe and 1F1B of torch"):
        parse_schedule(format_schedule(overlapped).replace("overlapped", "deferred"))
    posted = replace(usual, exchange=Exchange.POSTED)
    assert parse_schedule(format_schedule(posted)) == posted
    in_pairs = replace(joint_exchanges(overlapped), exchange=Exchange.POSTED)
    assert parse_schedule(format_schedule(in_pairs)) == in_pairs
    with pytest.raises(ScheduleError, match=r"exchange: posted: torch\.distributed\.pipelining alone"):
        parse_schedule("0F0 0SEND_F0 0B0\n1F0 1B0\n# exchange: posted\n")
    with pytest.raises(
        ScheduleError, match="line 3: exchange: parallel: expected one of batched, serial, overlapped, "
    ):
        parse_schedule(format_schedule(usual) + "# exchange: parallel\n")
    with pytest.raises(ScheduleError, match=r"line 3: exchange: serial \(DeepSpeed\): expected one of batched, serial"):
        parse_schedule(format_schedule(usual) + "# exchange: serial (DeepSpeed)\n")
