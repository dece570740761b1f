"""One rank's instructions in execution order, named the way boundaries name them. Standard library only."""

from hashlib import sha256
from typing import Final, NamedTuple

from perseus_dist.errors import ScheduleError
from perseus_dist.planning.schedule.granularity import ITERATION
from perseus_dist.planning.schedule.instruction import NO_MICROBATCH, Instruction
from perseus_dist.planning.schedule.schedule_tokens import ScheduleLine, schedule_lines


class Work(NamedTuple):
    """One instruction as its rank sees it.

    Attributes:
        chunk: Index of the model chunk on this rank.
        kind: F, B, I, W, a constant's name, or ``ITERATION``.
        microbatch: Index in the iteration, or ``planning.schedule.instruction.NO_MICROBATCH``.
        is_constant: Whether no clock changes it.
    """

    chunk: int
    kind: str
    microbatch: int
    is_constant: bool


WHOLE_ITERATION: Final = Work(chunk=0, kind=ITERATION, microbatch=NO_MICROBATCH, is_constant=False)
"""The whole program of a rank whose instructions cannot be seen."""


def rank_order(schedule_text: str, pp_rank: int) -> tuple[Work, ...]:
    """The order of one pp_rank. Whether the whole schedule can run is the planner's business.

    Raises:
        ScheduleError: A token of this rank's line is not in the grammar, or there is no such line, or an empty one.
    """
    lines = _lines(schedule_text)
    if pp_rank >= len(lines):
        raise ScheduleError(
            f"the schedule has {len(lines)} lines, and none for pp_rank {pp_rank}: one line per pp_rank"
        )
    tokens = lines[pp_rank].tokens()
    if not tokens:
        raise ScheduleError(f"pp_rank {pp_rank} has no instructions: give it a stage, or leave its line out")
    # When results leave, as a "+" says, changes what is waited for and not the order.
    order = [token.instruction() for token in tokens]
    chunk_of_stage = {stage: chunk for chunk, stage in enumerate(sorted({i.stage for i in order}))}
    return tuple(_work(instruction, chunk_of_stage) for instruction in order)


def num_stages(schedule_text: str) -> int:
    """Of the whole pipeline, over all model chunks.

    Raises:
        ScheduleError: A token is not in the grammar.
    """
    tokens = (token for line in _lines(schedule_text) for token in line.tokens())
    return 1 + max((token.instruction().stage for token in tokens), default=-1)


def schedule_digest(schedule_text: str) -> str:
    """The same digest as ``Schedule.digest`` of the schedule with this text, without parsing its instructions."""
    lines = (" ".join(token.text for token in line.tokens()) for line in _lines(schedule_text))
    return sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()


def _lines(schedule_text: str) -> list[ScheduleLine]:
    """Of each pp_rank."""
    return [line for line in schedule_lines(schedule_text) if line.is_rank]


def _work(instruction: Instruction, chunk_of_stage: dict[int, int]) -> Work:
    return Work(
        chunk=chunk_of_stage[instruction.stage],
        kind=str(instruction.kind),
        microbatch=instruction.microbatch,
        is_constant=instruction.is_constant,
    )
