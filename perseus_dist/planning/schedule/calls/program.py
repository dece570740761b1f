"""Programs of pp_ranks, instructions and the calls between them: what has ended before each begins.

A transfer begins when both sides have come to it and the one before it on its link is over. A pp_rank that waits for it
goes on when it is over; until then, one that has begun it goes on. The other modules of ``calls`` write programs.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, takewhile
from typing import NamedTuple

from perseus_dist.planning.schedule.instruction import SEND_FORWARD, Instruction
from perseus_dist.planning.schedule.results import transfers_of
from perseus_dist.planning.schedule.schedule import Schedule

Inputs = dict[Instruction, list[Instruction]]
_Moment = tuple[Instruction, ...]  # when all of these have ended


class Begin(NamedTuple):
    """A pp_rank begins to send or to receive results, and goes on.

    Attributes:
        results: What it sends and receives.
    """

    results: tuple[Instruction, ...]


class Wait(NamedTuple):
    """A pp_rank waits until a result that it has begun to send or to receive is over there.

    Attributes:
        result: The result.
    """

    result: Instruction


Program = list[Instruction | Begin | Wait]


def blocking(*results: Instruction | None) -> Program:
    """A call that begins with all of these at once and waits for all; None stands for nothing."""
    found = tuple(result for result in results if result is not None)
    return [Begin(found), *map(Wait, found)] if found else []


def with_constants(order: Sequence[Instruction], known: Program) -> Program:
    """The program of a pp_rank that also runs constants.

    Args:
        order: All of its instructions.
        known: Its computations and calls. A call comes before constants that stand right before the computation that it
            is for, and before those behind the last one.
    """
    program: Program = []
    at = 0
    for instruction in order:
        calls = list(takewhile(lambda one: not isinstance(one, Instruction), islice(known, at, None)))
        program += [*calls, instruction]
        at += len(calls) + (not instruction.is_constant)
    return program + known[at:]


def inputs_of_programs(
    schedule: Schedule,
    programs: Sequence[Program],
    needs: Mapping[Instruction, Sequence[Instruction]],
    transfers: Mapping[Instruction, Instruction],
) -> Inputs | None:
    """For each instruction and transfer, those that end before it begins.

    Args:
        schedule: The schedule.
        programs: (num_ranks) instructions of each pp_rank in its order, and the calls between them.
        needs: Of each instruction, as ``needs_of`` has them.
        transfers: Those that take time. All others, too, are asked for before they arrive.

    Returns:
        None where the calls would wait for each other for ever, so that the schedule cannot make them.
    """
    links = _Links(schedule, transfers)
    inputs: Inputs = {instruction: [] for instruction in needs}
    now: list[_Moment] = [()] * schedule.num_ranks
    position = [0] * schedule.num_ranks
    ended: set[Instruction] = set()
    is_going = True
    while is_going:
        is_going = False
        for pp_rank, program in enumerate(programs):
            while position[pp_rank] < len(program):
                at = program[position[pp_rank]]
                if isinstance(at, Begin):
                    for result in at.results:
                        links.begin(pp_rank, result, now[pp_rank])
                elif isinstance(at, Wait):
                    if at.result not in links.over:
                        break
                    now[pp_rank] = links.wait(pp_rank, at.result, now[pp_rank])
                else:
                    elsewhere = [result for result in needs[at] if not links.carries(result)]
                    if not ended.issuperset(elsewhere):
                        break
                    ended.add(at)
                    own = (result for result in needs[at] if links.carries(result) and result.stage == at.stage)
                    inputs[at] = list(dict.fromkeys((*elsewhere, *own, *now[pp_rank])))
                    now[pp_rank] = (at,)
                position[pp_rank] += 1
                is_going = True
    if any(position[pp_rank] < len(program) for pp_rank, program in enumerate(programs)):
        return None
    return inputs | links.inputs


class _Links:
    """The links between pp_ranks, and how far their transfers are.

    Attributes:
        inputs: Of each transfer that takes time, once it is known when it begins.
        over: Of each result, once it is known, when it has arrived.
    """

    def __init__(self, schedule: Schedule, transfers: Mapping[Instruction, Instruction]) -> None:
        self.inputs: Inputs = {transfer: [] for transfer in transfers.values()}
        self.over: dict[Instruction, _Moment] = {}
        self._transfers = transfers
        rank_of_stage = schedule.rank_of_stage
        self._link = {
            result: (
                rank_of_stage[result.stage],
                rank_of_stage[result.stage + (1 if transfer.kind == SEND_FORWARD else -1)],
            )
            for result, transfer in transfers_of(schedule, timed=None).items()
        }
        # Of two in the same line the later one ends last: of a pp_rank's instructions, of a link's transfers.
        self._line: dict[Instruction, tuple[object, int]] = {
            one: (pp_rank, place) for pp_rank, order in enumerate(schedule.ranks) for place, one in enumerate(order)
        }
        self._queue: defaultdict[tuple[int, int], list[Instruction]] = defaultdict(list)  # of a link, as sent
        self._num_over: defaultdict[tuple[int, int], int] = defaultdict(int)
        self._came: defaultdict[Instruction, dict[int, _Moment]] = defaultdict(dict)  # by pp_rank
        self._waited: dict[tuple[int, tuple[int, int]], Instruction] = {}  # the last, of a pp_rank and link
        self._follows: set[tuple[Instruction, Instruction]] = set()  # a side came to it after it waited for the other

    def carries(self, result: Instruction) -> bool:
        """Whether a result goes from one pp_rank to another."""
        return result in self._link

    def begin(self, pp_rank: int, result: Instruction, now: _Moment) -> None:
        """A side comes to the transfer of a result."""
        link = self._link[result]
        self._came[result][pp_rank] = now
        if (pp_rank, link) in self._waited:
            self._follows.add((self._waited[pp_rank, link], result))
        queue = self._queue[link]
        if pp_rank == link[0]:
            queue.append(result)
        while self._num_over[link] < len(queue) and len(self._came[queue[self._num_over[link]]]) == 2:
            self._complete(link, queue[self._num_over[link]])

    def _complete(self, link: tuple[int, int], result: Instruction) -> None:
        """The next on a link, to which both sides have come."""
        number = self._num_over[link]
        moments = list(self._came[result].values())
        before = self._queue[link][number - 1] if number else None
        if before is not None and (before, result) not in self._follows:
            moments.append(self.over[before])
        begin = self._latest(one for moment in moments for one in moment)
        self.over[result] = begin
        if result in self._transfers:
            transfer = self._transfers[result]
            self.inputs[transfer] = list(begin)
            self.over[result] = (transfer,)
            self._line[transfer] = link, number
        self._num_over[link] += 1

    def wait(self, pp_rank: int, result: Instruction, now: _Moment) -> _Moment:
        """When a pp_rank goes on that waits until a result has arrived."""
        self._waited[pp_rank, self._link[result]] = result
        came = self._came[result][pp_rank]
        return self._latest((*(one for one in now if one not in came), *self.over[result]))

    def _latest(self, nodes: Iterable[Instruction]) -> _Moment:
        """Of each line the one that ends last."""
        found: dict[object, Instruction] = {}
        for one in nodes:
            line, place = self._line[one]
            if line not in found or self._line[found[line]][1] < place:
                found[line] = one
        return tuple(found.values())
