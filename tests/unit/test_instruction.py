import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseus_dist.errors import ProfileError, ScheduleError
from perseus_dist.planning.schedule.instruction import (
    NO_MICROBATCH,
    Instruction,
    Kind,
    kind_from_profile_name,
    parse_instruction,
    profile_name,
)

COMPUTATION_NAMES = {"FORWARD", "BACKWARD", "BACKWARD_INPUT", "BACKWARD_WEIGHT"}
CONSTANT_NAMES = st.from_regex(r"[A-Z][A-Z_]{0,8}[A-Z]", fullmatch=True).filter(
    lambda name: name not in COMPUTATION_NAMES
)
MICROBATCHES = st.integers(0, 999_999_999)
INSTRUCTIONS = st.builds(Instruction, st.integers(0, 999_999_999), st.sampled_from(Kind) | CONSTANT_NAMES, MICROBATCHES)


@given(INSTRUCTIONS)
def test_text_reads_back(instruction: Instruction) -> None:
    assert parse_instruction(str(instruction)) == instruction


@pytest.mark.parametrize(
    ("token", "instruction"),
    [
        ("2F0", (2, "F", 0)),
        ("0B11", (0, "B", 11)),
        ("3I4", (3, "I", 4)),
        ("3W4", (3, "W", 4)),
        ("0LOAD3", (0, "LOAD", 3)),
        ("1SEND_F2", (1, "SEND_F", 2)),
        ("0STEP", (0, "STEP", NO_MICROBATCH)),
    ],
)
def test_grammar(token: str, instruction: tuple[int, str, int]) -> None:
    parsed = parse_instruction(token)
    assert parsed == instruction
    assert str(parsed) == token
    assert parsed.is_constant == (instruction[1] not in "FBIW")


def test_kind_written_as_text_or_as_enum_is_one_instruction() -> None:
    assert {Instruction(2, Kind.FORWARD, 0): "one"}[parse_instruction("2F0")] == "one"
    assert str(Instruction(2, Kind.FORWARD, 0)) == "2F0"


@pytest.mark.parametrize(
    "token",
    [
        "",
        "F0",
        "2f0",
        "2D0",
        "-1F0",
        "2F-1",
        "2F0x",
        "2 F0",
        "2F0.1",
        "2LOAD!",
        "2LOAD_3",
        "\u0662F0",
        "1" * 5000 + "F0",
    ],
)
def test_refuses_what_is_not_in_the_grammar(token: str) -> None:
    with pytest.raises(ScheduleError, match=r"is not an instruction: write stage, kind, microbatch as in 2F0"):
        parse_instruction(token)


@pytest.mark.parametrize("token", ["2F", "2B", "2I", "2W", "2SEND_F", "2SEND_B"])
def test_refuses_work_on_a_microbatch_without_its_number(token: str) -> None:
    with pytest.raises(ScheduleError, match=rf"'{token}' names no microbatch: write {token}0 for microbatch 0"):
        parse_instruction(token)


def test_refuses_a_constant_whose_profile_rows_would_be_a_computations() -> None:
    with pytest.raises(ScheduleError, match="BACKWARD_INPUT is no name for a constant; write the kind as I"):
        parse_instruction("2BACKWARD_INPUT0")


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("F", "forward"),
        ("B", "backward"),
        ("I", "backward_input"),
        ("W", "backward_weight"),
        ("LOAD", "load"),
        ("SEND_F", "send_f"),
    ],
)
def test_profile_names(kind: str, name: str) -> None:
    assert profile_name(kind) == name
    assert kind_from_profile_name(name) == kind


@given(CONSTANT_NAMES)
def test_profile_names_of_constants_lead_back(kind: str) -> None:
    assert kind_from_profile_name(profile_name(kind)) == kind


@pytest.mark.parametrize("name", ["", "Forward", "FORWARD", "f", "load 2", "load2", "_x"])
def test_refuses_unknown_profile_names(name: str) -> None:
    with pytest.raises(
        ProfileError, match="expected forward, backward, backward_input, backward_weight, forward_backward, or"
    ):
        kind_from_profile_name(name)
