"""Calls of Megatron-LM's interleaved schedule where they overlap computations (``overlap_p2p_comm``).

Before and after the steady state, calls block: one sends a result and receives what the next instruction needs. In the
steady state a pp_rank begins transfers and goes on. Before a computation it waits for what it receives, the oldest that
it has not waited for yet; when it has begun to send, for what it sent the same way before:

    0F5 | begin 0SEND_F5, and to receive for 0F6 | wait for 0SEND_F4 | wait for what 0B2 needs | 0B2

Source: ``forward_backward_pipelining_with_interleaving`` of megatron-core 0.16.1 and 0.19.2.
"""

from collections import deque
from collections.abc import Sequence

from perseus_dist.planning.schedule.calls.program import Begin, Program, Wait, blocking
from perseus_dist.planning.schedule.instruction import Instruction, Kind
from perseus_dist.planning.schedule.schedule import Exchange, Schedule, interleaved_warm_up


def overlapped_programs(schedule: Schedule, group: int) -> list[Program]:
    """Instructions and calls of each pp_rank, in their order.

    Args:
        schedule: One of ``interleaved``; constants may come after the last backward of a pp_rank.
        group: Its microbatch group size.
    """
    return [_program(schedule, pp_rank, group) for pp_rank in range(schedule.num_ranks)]


def _program(schedule: Schedule, pp_rank: int, group: int) -> Program:
    pp, last_stage = schedule.num_ranks, schedule.num_stages - 1
    forwards, backwards = (_of_kind(schedule, pp_rank, kind) for kind in (Kind.FORWARD, Kind.BACKWARD))
    total = len(forwards)
    warm_up = min(total, interleaved_warm_up(pp, pp_rank, schedule.num_stages // pp, group))
    first_f, receives_f = _received(schedule, pp_rank, forwards, Kind.FORWARD)
    first_b, receives_b = _received(schedule, pp_rank, backwards, Kind.BACKWARD)
    sends_f = [None if one.stage == last_stage else one for one in forwards]
    sends_b = [None if one.stage == 0 else one for one in backwards]

    program = blocking(first_f)
    for at in range(warm_up):
        program += [forwards[at], *blocking(sends_f[at], receives_f[at])]
    going_f, going_b = _Going(), _Going()
    if warm_up < total:
        program += going_b.begin(None, first_b)
    else:
        program += blocking(first_b)
    for at, backward in enumerate(backwards):
        if warm_up + at < total:
            forward = forwards[warm_up + at]
            program += [*going_f.received(is_needed=forward.stage > 0), forward]
            program += going_f.begin(sends_f[warm_up + at], receives_f[warm_up + at])
            if schedule.exchange == Exchange.OVERLAPPED_BACKWARDS:
                program += going_f.sent()
        program += [*going_b.received(is_needed=backward.stage < last_stage), backward]
        if warm_up + at < total:
            program += going_b.begin(sends_b[at], receives_b[at])
        else:
            program += blocking(sends_b[at], receives_b[at])
    return [*program, *going_b.sent(), *schedule.ranks[pp_rank][2 * total :]]


class _Going:
    """Transfers one way, forward or backward, that a pp_rank has begun and not waited for."""

    def __init__(self) -> None:
        self._sent: Instruction | None = None
        self._received: deque[Instruction] = deque()

    def begin(self, sent: Instruction | None, received: Instruction | None) -> Program:
        """Send and receive; None stands for nothing. What was sent before is waited for."""
        found = tuple(result for result in (sent, received) if result is not None)
        program: Program = [Begin(found)] if found else []
        program += self.sent()
        self._sent = sent
        if received is not None:
            self._received.append(received)
        return program

    def sent(self) -> Program:
        """Wait for what was sent last, unless that is over."""
        waits: Program = [] if self._sent is None else [Wait(self._sent)]
        self._sent = None
        return waits

    def received(self, *, is_needed: bool) -> Program:
        """Wait for the oldest before a computation that needs a result of another pp_rank."""
        return [Wait(self._received.popleft())] if is_needed and self._received else []


def _received(
    schedule: Schedule, pp_rank: int, order: Sequence[Instruction], kind: Kind
) -> tuple[Instruction | None, list[Instruction | None]]:
    """The results that a pp_rank receives before its first instruction of a kind, and after each.

    That is what the next one needs. Where the model begins, forward or backward, it is what the pp_rank at the other
    end has made, which runs each instruction ``num_ranks - 1`` later.
    """
    pp, last_stage = schedule.num_ranks, schedule.num_stages - 1
    begins_at, ends_at, distance, end = (0, pp - 1, 1, last_stage) if kind == Kind.FORWARD else (pp - 1, 0, -1, 0)
    if pp_rank != begins_at:
        first, *others = (one._replace(stage=one.stage - distance) for one in order)
        return first, [*others, None]
    made = [None if one.stage == end else one for one in _of_kind(schedule, ends_at, kind)]
    return None, [*[None] * (pp - 1), *made][: len(order)]


def _of_kind(schedule: Schedule, pp_rank: int, kind: Kind) -> list[Instruction]:
    return [one for one in schedule.ranks[pp_rank] if one.kind == kind]
