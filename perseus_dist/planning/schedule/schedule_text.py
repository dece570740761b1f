"""Schedules from text files, captured from a framework or written by hand.

One line per pp_rank, its instructions in execution order apart by spaces or commas; a ``+`` behind one says that it
exchanges jointly with the next (``Schedule.joint``). ``#`` starts a comment, of which one counts, on a line of its own:
``# exchange: serial``, for one (``Schedule.exchange``). The ``compute_only`` CSV files of
``torch.distributed.pipelining`` are of this form; their empty cells are idle steps.
"""

import re
from os import PathLike

from perseus_dist.errors import ScheduleError
from perseus_dist.planning.input_file import InputFileError, read_input
from perseus_dist.planning.schedule.dry_run import check_joint, check_schedule
from perseus_dist.planning.schedule.instruction import Instruction, parse_instruction
from perseus_dist.planning.schedule.schedule import Exchange, Schedule

_EXCHANGE = re.compile(r"\s*#\s*exchange:\s*(\S*)\s*")


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


def parse_schedule(text: str) -> Schedule:
    """A schedule from its text form, complete and free of deadlock; the inverse of ``format_schedule``.

    Raises:
        ScheduleError: A token is not in the grammar, the exchange is unknown, or ``check_schedule`` refuses the whole;
            names the line.
    """
    ranks: list[tuple[Instruction, ...]] = []
    joint: set[Instruction] = set()
    places: list[str] = []
    exchange = Exchange.BATCHED
    for number, line in enumerate(text.split("\n"), start=1):
        if marked := _EXCHANGE.fullmatch(line):
            exchange = _exchange(marked[1], number)
        content = line.partition("#")[0]
        if content.strip():
            order, joint_in_line = _parse_line(content, number)
            ranks.append(order)
            joint |= joint_in_line
            places.append(f"pp_rank {len(places)} (line {number})")
    schedule = Schedule(ranks=tuple(ranks), joint=frozenset(joint), exchange=exchange)
    check_schedule(schedule, places=places)
    return schedule


def _exchange(name: str, number: int) -> Exchange:
    if name not in set(Exchange):
        raise ScheduleError(f"line {number}: exchange: {name}: expected one of {', '.join(Exchange)}")
    return Exchange(name)


def _parse_line(content: str, number: int) -> tuple[tuple[Instruction, ...], set[Instruction]]:
    """The instructions of a line in their order, and those of them that are joint."""
    order: list[Instruction] = []
    joint_places: dict[int, str] = {}
    for position, token in enumerate(re.finditer(r"[^\s,]+", content)):
        name = re.sub(r"(?<=\w)\+$", "", token[0]) if "+" in token[0] else token[0]
        try:
            order.append(parse_instruction(name))
        except ScheduleError as error:
            raise ScheduleError(f"{_place(number, token)}: {error}") from None
        if name != token[0]:
            joint_places[position] = _place(number, token)
    for position, place in joint_places.items():
        check_joint(order[position], next(iter(order[position + 1 :]), None), place=place)
    return tuple(order), {order[position] for position in joint_places}


def _place(line: int, token: re.Match[str]) -> str:
    return f"line {line}, column {token.start() + 1}"
