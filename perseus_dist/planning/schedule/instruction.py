"""Instructions: the unit of work that has one clock, and its text ``2F0`` (stage, kind, microbatch).

The grammar is that of ``torch.distributed.pipelining``, so that schedules interchange. Standard library only: the
trainer's adapters import this module.
"""

import re
from enum import StrEnum
from typing import NamedTuple

from perseus_dist.errors import ProfileError, ScheduleError

NO_MICROBATCH = -1
"""Microbatch of a constant instruction that runs once per iteration, such as the optimizer step ``0STEP``."""

SEND_FORWARD = "SEND_F"
"""Constant kind: a blocking transfer of activations over a slow link to the next stage."""

SEND_BACKWARD = "SEND_B"
"""Constant kind: a blocking transfer of gradients over a slow link to the previous stage."""

SENDS = frozenset({SEND_FORWARD, SEND_BACKWARD})
"""Kinds of transfers. Of a schedule that does not run them itself, a profile may say how long they take."""

BETWEEN_ITERATIONS = "BETWEEN_ITERATIONS"
"""Name under which a profile says what an iteration takes behind all instructions and transfers, while every GPU waits.
Nothing that a schedule runs has it."""

TIMED_APART = SENDS | {BETWEEN_ITERATIONS}
"""Kinds that take time where a profile says so, and are no instructions of a schedule."""

OVERLAPPED_FORWARD = "OVERLAP_F"
"""Constant kind: says which forward the ``FB`` next on its pp_rank runs beside its backward, and takes hardly any time:
``0OVERLAP_F4 4FB0`` is the forward ``0F4`` and the backward ``4B0``, run as one."""

LOAD = "LOAD"
"""Constant kind: a microbatch is loaded; a pp_rank that receives as well does so first."""

CLOCK_CHANGE = "CLOCK_CHANGE"
"""Name under which a profile says how long changes to a clock take. Nothing that a schedule runs has it."""


class Kind(StrEnum):
    """Computations: the kinds whose time and energy depend on the clock. Every other kind is a constant's name."""

    FORWARD = "F"
    BACKWARD = "B"
    INPUT_GRADIENT = "I"
    WEIGHT_GRADIENT = "W"
    FORWARD_BACKWARD = "FB"
    """A backward that runs as one with a forward, of another microbatch: ``OVERLAPPED_FORWARD`` before it says which.
    Stage and microbatch are the backward's."""


_COMPUTATIONS = frozenset(Kind)
_NEEDS_MICROBATCH = _COMPUTATIONS | SENDS | {OVERLAPPED_FORWARD}
_PROFILE_NAMES: dict[str, str] = {
    Kind.FORWARD: "forward",
    Kind.BACKWARD: "backward",
    Kind.INPUT_GRADIENT: "backward_input",
    Kind.WEIGHT_GRADIENT: "backward_weight",
    Kind.FORWARD_BACKWARD: "forward_backward",
}
_NAMES_OF_PROFILES = {CLOCK_CHANGE: "changes of clocks", BETWEEN_ITERATIONS: "time between iterations"}
_KINDS: dict[str, str] = {name: kind for kind, name in _PROFILE_NAMES.items()}
# Nine digits are more than any pipeline has, and keep a slip of the keyboard from becoming a huge number. A constant's
# name has two letters or more, so that the typing error 2D0 is not taken for a constant.
_TOKEN = re.compile(r"([0-9]{1,9})([FBIW]|[A-Z][A-Z_]*[A-Z])([0-9]{0,9})")
_CONSTANT_PROFILE_NAME = re.compile(r"[a-z][a-z_]*[a-z]")


class Instruction(NamedTuple):
    """One unit of work: a stage does something for a microbatch. A tensor-parallel group does it together, as one.

    Attributes:
        stage: Virtual stage over the whole model.
        kind: A ``Kind``, or the upper-case name of a constant instruction: work that no clock changes.
        microbatch: Index in the iteration, or ``NO_MICROBATCH``.
    """

    stage: int
    kind: str
    microbatch: int

    def __str__(self) -> str:
        """Text as in ``2F0``; ``0STEP`` without a microbatch."""
        return f"{self.stage}{self.kind}{'' if self.microbatch == NO_MICROBATCH else self.microbatch}"

    @property
    def is_constant(self) -> bool:
        """Whether it has a single choice of time and energy."""
        return self.kind not in _COMPUTATIONS


def parse_instruction(token: str) -> Instruction:
    """The inverse of ``str(instruction)``.

    Raises:
        ScheduleError: The token is not in the grammar.
    """
    match = _TOKEN.fullmatch(token)
    if match is None:
        raise ScheduleError(
            f"{token!r} is not an instruction: write stage, kind, microbatch as in 2F0 (kinds F, B, I, W, FB), or a "
            "constant's name in two capitals or more as in 0LOAD3 or 0STEP"
        )
    stage, kind, microbatch = match.groups()
    if kind.lower() in _KINDS:  # its profile rows would look like the computation's
        raise ScheduleError(f"{token!r}: {kind} is no name for a constant; write the kind as {_KINDS[kind.lower()]}")
    if kind in _NAMES_OF_PROFILES:
        raise ScheduleError(f"{token!r}: {kind} is what profiles call {_NAMES_OF_PROFILES[kind]}; name it otherwise")
    if not microbatch and kind in _NEEDS_MICROBATCH:
        raise ScheduleError(f"{token!r} names no microbatch: write {token}0 for microbatch 0")
    return Instruction(int(stage), kind, int(microbatch) if microbatch else NO_MICROBATCH)


def profile_name(kind: str) -> str:
    """A kind's name in a profile's column ``instruction``: ``forward`` for ``F``, ``load`` for a constant ``LOAD``."""
    return _PROFILE_NAMES.get(kind, kind.lower())


def kind_from_profile_name(name: str) -> str:
    """The inverse of ``profile_name``.

    Raises:
        ProfileError: The name is neither a computation's nor a possible constant's.
    """
    if name in _KINDS:
        return _KINDS[name]
    if _CONSTANT_PROFILE_NAME.fullmatch(name) is None or name.upper() in _COMPUTATIONS:
        raise ProfileError(
            f"unknown instruction {name!r}: expected {', '.join(_KINDS)}, or a constant's name in two lower-case "
            "letters or more, such as load"
        )
    return name.upper()
