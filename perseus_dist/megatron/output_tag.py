"""Which backward belongs to what a ``forward_step`` returned: Megatron hands on its tensors and no number with them."""

from contextlib import suppress
from typing import Any

from perseus_dist.planning.instruction import Instruction
from perseus_dist.training.iteration_work import first_tensor

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
