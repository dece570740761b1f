"""A rank's boundaries, published as long as they come in the order that was promised.

fits       publishes; one instruction out of order, and clocks are released, with one warning
astray     silent for the rest of the iteration
following  silent for an iteration, to see whether the order fits again
"""

import logging
from collections.abc import Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING

from perseus_dist.boundaries.record import Mark
from perseus_dist.planning.schedule.instruction import Instruction
from perseus_dist.training.rank.constant_kinds import REDUCE, TIED

if TYPE_CHECKING:
    from perseus_dist.hooks import Hook

_log = logging.getLogger(__name__)

_SYNCHRONISING = frozenset({TIED, REDUCE})


class _State(Enum):
    FITS = auto()
    ASTRAY = auto()
    FOLLOWING = auto()


class OrderedBoundaries:
    """Feeds one rank's hook.

    Args:
        hook: The rank's.
        order: Its instructions in execution order, as the planner has it.
        rank: For messages.
    """

    def __init__(self, hook: "Hook", order: Sequence[Instruction], *, rank: int) -> None:
        self.hook = hook
        self._order = tuple(order)
        stages = sorted({instruction.stage for instruction in order})
        self._chunks = {stage: chunk for chunk, stage in enumerate(stages)}
        self._rank = rank
        self._state = _State.FITS
        self._index = 0
        self._is_synchronising = False
        self._has_warned = False

    def begin_iteration(self, iteration: int) -> None:
        """An iteration begins."""
        if self._state is _State.ASTRAY:
            self._state = _State.FOLLOWING
        self._index = 0
        self._is_synchronising = False
        if self._state is _State.FITS:
            self.hook.iteration_begin(iteration)

    def begin(self, instruction: Instruction) -> None:
        """An instruction begins."""
        if self._state is _State.ASTRAY:
            return
        expected = self._order[self._index] if self._index < len(self._order) else None
        if instruction != expected:
            self._leave_order(f"saw {instruction}, expected {expected or 'the end'}")
        elif self._state is _State.FITS:
            if instruction.kind in _SYNCHRONISING and not self._is_synchronising:
                self._is_synchronising = True
                self.hook.mark(Mark.GRAD_SYNC)
            self.hook.begin(instruction.kind, self._chunks[instruction.stage], instruction.microbatch)

    def end(self, instruction: Instruction) -> None:
        """The instruction ends."""
        self._index += 1
        if self._state is _State.FITS:
            self.hook.end(instruction.kind, self._chunks[instruction.stage], instruction.microbatch)

    def end_iteration(self, iteration: int, tokens: int = 0, input_wait_ns: int | None = None) -> None:
        """The iteration is over.

        Args:
            iteration: Its number.
            tokens: As in ``Hook.work``.
            input_wait_ns: As there.
        """
        if self._state is not _State.ASTRAY and self._index < len(self._order):
            self._leave_order(f"saw the end, expected {self._order[self._index]}")
        elif self._state is _State.FITS:
            if tokens or input_wait_ns is not None:
                self.hook.work(tokens, input_wait_ns)
            self.hook.iteration_end(iteration)
        elif self._state is _State.FOLLOWING:
            self._state = _State.FITS
            _log.info("perseus: rank %d runs in the promised order again", self._rank)

    def abandon_iteration(self) -> None:
        """The iteration failed: whatever comes next, no plan was made for it."""
        if self._state is _State.FITS:
            self.hook.release()
        self._state = _State.ASTRAY

    def _leave_order(self, sentence: str) -> None:
        if self._state is _State.FITS:
            self.hook.release()
        self._state = _State.ASTRAY
        if not self._has_warned:
            self._has_warned = True
            _log.warning(
                "perseus: rank %d runs in another order than its plan is made for (%s): clocks are released until the "
                "order fits again",
                self._rank,
                sentence,
            )
