"""DualPipeV: the order of its instructions, and the calls in which pp_ranks exchange results between them.

A pp_rank holds two stages: microbatches go out to the last pp_rank through the first of them, and come back through the
second. What is to be sent is put in line behind the instruction that makes it, what is to be received some instructions
before it is needed, and the next call exchanges all that is in line and waits until it is over:

    7B0 | in line: send 7B0, receive 1F3, 2B0 | call | 1F3 | 6B1 | in line: send 1F3, 6B1 ...

A forward and a backward of the steady state run between two calls. Source: ``DualPipeVSchedule`` and
``DualPipeVEngine`` of DeepSpeed 0.19.8, which computes backwards in one part.
"""

from collections import Counter

from perseus_dist.errors import ScheduleError
from perseus_dist.planning.schedule.calls.program import Program, blocking, with_constants
from perseus_dist.planning.schedule.instruction import Instruction, Kind
from perseus_dist.planning.schedule.schedule import Exchange, Schedule

_F, _B = Kind.FORWARD, Kind.BACKWARD
_OUT, _BACK = 0, 1  # the two stages of a pp_rank, in the order in which microbatches come to them


def dualpipev(*, pp: int, microbatches: int) -> Schedule:
    """DualPipeV with backwards in one part.

    Args:
        pp: Number of pp_ranks, each of which holds the stages ``pp_rank`` and ``2 * pp - 1 - pp_rank``.
        microbatches: Two for each pp_rank at least.

    Raises:
        ScheduleError: There are no such sizes.
    """
    if pp < 1 or microbatches < 2 * pp:
        raise ScheduleError(f"DualPipeV with pp={pp} needs at least {2 * pp} microbatches, got {microbatches}")
    ranks = (_Walk(pp, pp_rank, microbatches).program for pp_rank in range(pp))
    return Schedule(
        ranks=tuple(tuple(one for one in program if isinstance(one, Instruction)) for program in ranks),
        exchange=Exchange.DUALPIPEV,
    )


def dualpipev_programs(schedule: Schedule) -> list[Program] | None:
    """Instructions and calls of each pp_rank, in their order; None where the order is another.

    Args:
        schedule: One of ``dualpipev``, with whatever constants.
    """
    pp, microbatches = schedule.num_ranks, schedule.num_microbatches
    if microbatches < 2 * pp:
        return None
    programs = []
    for pp_rank, order in enumerate(schedule.ranks):
        known = _Walk(pp, pp_rank, microbatches).program
        if [one for one in order if not one.is_constant] != [one for one in known if isinstance(one, Instruction)]:
            return None
        programs.append(with_constants(order, known))
    return programs


class _Walk:
    """One pp_rank's iteration, written down move by move.

    Attributes:
        program: Its instructions and calls.
    """

    def __init__(self, pp: int, pp_rank: int, microbatches: int) -> None:
        self._stages = pp_rank, 2 * pp - 1 - pp_rank
        self._last_stage = 2 * pp - 1
        self._num: Counter[tuple[str, int, str]] = Counter()
        self._line: list[Instruction] = []
        self.program: Program = []
        num_behind, num_until = pp - 1 - pp_rank, pp_rank + 1  # pp_ranks behind it, and up to it
        is_last = num_behind == 0
        for _ in range(2 * num_behind):
            self._forward(_OUT)
        self._receive(_OUT, _F)
        for number in range(num_until):
            self._run(_OUT, _F)
            self._receive(_OUT, _F)
            self._receive(_BACK, _F)
            self._run(_BACK, _F)
            if not is_last or number < num_until - 1:
                self._send(_BACK, _F)
            self._send(_OUT, _F)
        for _ in range(num_behind):
            self._backward(_BACK)
            self._receive(_BACK, _F)
            self._call()
            self._run(_BACK, _F)
            self._send(_BACK, _F)
        for number in range(microbatches - 2 * pp + num_until):
            if number == 0 and is_last:  # what its second stage made last leaves with this forward
                self._run(_OUT, _F)
                self._send(_BACK, _F)
                self._receive(_BACK, _B)
                self._run(_BACK, _B)
                self._send(_OUT, _F)
                self._send(_BACK, _B)
            else:
                self._pair(_OUT, _BACK, has_received=number == 0)
            self._pair(_BACK, _OUT)
        for _ in range(num_behind):
            self._backward(_BACK)
            self._pair(_BACK, _OUT)
        for _ in range(num_until):
            self._backward(_BACK)
            self._backward(_OUT)
        for _ in range(num_behind):
            self._call()
            self._backward(_OUT)
        self._call()

    def _forward(self, place: int) -> None:
        self._receive(place, _F)
        self._run(place, _F)
        self._send(place, _F)

    def _backward(self, place: int) -> None:
        self._receive(place, _B)
        self._run(place, _B)
        self._send(place, _B)

    def _pair(self, of_forward: int, of_backward: int, *, has_received: bool = False) -> None:
        """A forward and a backward between two calls."""
        if not has_received:
            self._receive(of_forward, _F)
        self._receive(of_backward, _B)
        self._run(of_forward, _F)
        self._compute(of_backward, _B)
        self._send(of_forward, _F)
        self._send(of_backward, _B)

    def _run(self, place: int, kind: Kind) -> None:
        self._call()
        self._compute(place, kind)

    def _compute(self, place: int, kind: Kind) -> None:
        self.program.append(self._next("run", self._stages[place], kind))

    def _receive(self, place: int, kind: Kind) -> None:
        stage = self._stages[place] + (-1 if kind == _F else 1)
        if self._is_elsewhere(stage):
            self._line.append(self._next("receive", stage, kind))

    def _send(self, place: int, kind: Kind) -> None:
        stage = self._stages[place]
        if self._is_elsewhere(stage + (1 if kind == _F else -1)):
            self._line.append(self._next("send", stage, kind))

    def _call(self) -> None:
        self.program += blocking(*self._line)
        self._line.clear()

    def _is_elsewhere(self, stage: int) -> bool:
        """Whether there is such a stage, on another pp_rank."""
        return 0 <= stage <= self._last_stage and stage not in self._stages

    def _next(self, move: str, stage: int, kind: Kind) -> Instruction:
        microbatch = self._num[move, stage, kind]
        self._num[move, stage, kind] += 1
        return Instruction(stage, kind, microbatch)
