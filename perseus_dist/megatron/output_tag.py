"""Tags that name the backward of a ``forward_step``'s output: Megatron hands on tensors, and no number with them."""

from contextlib import suppress
from typing import Any

from perseus_dist.planning.schedule.instruction import Instruction
from perseus_dist.training.rank.iteration_work import first_tensor

_TAG = "_perseus_instruction"


def tag_output(output: Any, instruction: Instruction) -> None:
    """Leave the backward's name on the first tensor. Freeing its memory does not take it away.

    Args:
        output: What ``forward_step`` returned, tensors nested in any way; one without tensors stays without a name.
        instruction: The backward that will be run on it.
    """
    with suppress(AttributeError):
        setattr(first_tensor(output), _TAG, instruction)


def instruction_of(output: Any) -> Instruction | None:
    """The backward that was named for it; None where none was."""
    instruction: Instruction | None = getattr(first_tensor(output), _TAG, None)
    return instruction
