"""Schedules from text files, captured from a framework or written by hand.

One line per pp_rank, its instructions in execution order apart by spaces or commas; a ``+`` behind one says that it
exchanges jointly with the next (``Schedule.joint``). ``#`` starts a comment, of which one counts, on a line of its own:
``# exchange: serial``, for one (``Schedule.exchange``). The ``compute_only`` CSV files of
``torch.distributed.pipelining`` are of this form; their empty cells are idle steps.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from os import PathLike

from perseus_dist.errors import ScheduleError
from perseus_dist.planning.input_file import InputFileError, read_input
from perseus_dist.planning.schedule.dry_run import check_joint, check_schedule
from perseus_dist.planning.schedule.instruction import Instruction
from perseus_dist.planning.schedule.schedule import Exchange, Schedule
from perseus_dist.planning.schedule.schedule_tokens import ScheduleToken, schedule_lines

_EXCHANGE = re.compile(r"\s*#\s*exchange:\s*(.*?)\s*")


def read_schedule(path: str | PathLike[str]) -> Schedule:
    """A schedule from a file, complete and free of deadlock.

    Raises:
        ScheduleError: The file cannot be read, or ``parse_schedule`` refuses its text; names the file, and the line.
    """
    try:
        return parse_schedule(read_input(path).decode("utf-8-sig"))
    except InputFileError as error:
        raise ScheduleError(f"{error}; name a schedule file") from None
    except UnicodeDecodeError:
        raise ScheduleError(f"{path}: not text: expected a line per pp_rank, such as 0F0 0B0") from None
    except ScheduleError as error:
        raise ScheduleError(f"{path}: {error}") from None


@lru_cache(maxsize=4)
def parse_schedule(text: str) -> Schedule:
    """A schedule from its text form, complete and free of deadlock; the inverse of ``format_schedule``.

    Raises:
        ScheduleError: A token is not in the grammar, the exchange is unknown or two lines say different ones, or
            ``check_schedule`` refuses the whole; names the line.
    """
    ranks: list[tuple[Instruction, ...]] = []
    joint: set[Instruction] = set()
    places: list[str] = []
    exchange, said = Exchange.BATCHED, 0  # in which line
    for line in schedule_lines(text):
        if marked := _EXCHANGE.fullmatch(line.text):
            also = _exchange(marked[1], line.number)
            if said and also != exchange:
                raise ScheduleError(f"line {line.number}: exchange: {also}: line {said} says {exchange}; keep one")
            exchange, said = also, line.number
        if line.is_rank:
            tokens = line.tokens()
            order = tuple(token.instruction() for token in tokens)
            ranks.append(order)
            joint |= _joint(tokens, order)
            places.append(f"pp_rank {len(places)} (line {line.number})")
    schedule = Schedule(ranks=tuple(ranks), joint=frozenset(joint), exchange=exchange)
    check_schedule(schedule, places=places)
    return schedule


def _exchange(name: str, number: int) -> Exchange:
    if name not in set(Exchange):
        raise ScheduleError(f"line {number}: exchange: {name}: expected one of {', '.join(Exchange)}")
    return Exchange(name)


def _joint(tokens: Sequence[ScheduleToken], order: Sequence[Instruction]) -> set[Instruction]:
    """The instructions of a line that exchange jointly with the next."""
    joint = set()
    for token, instruction, following in zip(tokens, order, [*order, None][1:], strict=True):
        if token.is_joint:
            check_joint(instruction, following, place=token.place)
            joint.add(instruction)
    return joint
