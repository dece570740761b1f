"""Schedules from text files, captured from a framework or written by hand.

One line per pp_rank, its instructions in execution order apart by spaces or commas. ``#`` starts a comment. The
``compute_only`` CSV files of ``torch.distributed.pipelining`` are of this form; their empty cells are idle steps.
"""

import re
from os import PathLike
from pathlib import Path

from perseus_dist.errors import ScheduleError
from perseus_dist.planning.dry_run import check_schedule
from perseus_dist.planning.instruction import Instruction, parse_instruction
from perseus_dist.planning.schedule import Schedule


def read_schedule(path: str | PathLike[str]) -> Schedule:
    """A schedule from a file, complete and free of deadlock.

    Raises:
        ScheduleError: The file cannot be read, or ``parse_schedule`` refuses its text; names the file, and the line.
    """
    try:
        return parse_schedule(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ScheduleError(f"{path}: {error.strerror}: expected a schedule file that can be read") from None
    except UnicodeDecodeError:
        raise ScheduleError(f"{path}: not text: expected a line per pp_rank, such as 0F0 0B0") from None
    except ScheduleError as error:
        raise ScheduleError(f"{path}: {error}") from None


def parse_schedule(text: str) -> Schedule:
    """A schedule from its text form, complete and free of deadlock; the inverse of ``format_schedule``.

    Raises:
        ScheduleError: A token is not in the grammar, or ``check_schedule`` refuses the whole; names the line.
    """
    ranks: list[tuple[Instruction, ...]] = []
    places: list[str] = []
    for number, line in enumerate(text.split("\n"), start=1):
        content = line.partition("#")[0]
        if content.strip():
            ranks.append(_parse_line(content, number))
            places.append(f"pp_rank {len(places)} (line {number})")
    schedule = Schedule(ranks=tuple(ranks))
    check_schedule(schedule, places=places)
    return schedule


def _parse_line(content: str, number: int) -> tuple[Instruction, ...]:
    order = []
    for token in re.finditer(r"[^\s,]+", content):
        try:
            order.append(parse_instruction(token[0]))
        except ScheduleError as error:
            raise ScheduleError(f"line {number}, column {token.start() + 1}: {error}") from None
    return tuple(order)
