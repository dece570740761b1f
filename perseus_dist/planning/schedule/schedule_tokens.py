"""Lines and tokens of a schedule's text, the one definition of both: for whole schedules and for a rank's own line.

Standard library alone.
"""

import re
from collections.abc import Iterator
from itertools import starmap
from typing import NamedTuple

from perseus_dist.errors import ScheduleError
from perseus_dist.planning.schedule.instruction import Instruction, parse_instruction

_TOKEN = re.compile(r"[^\s,]+")
_JOINT = re.compile(r".*\w\+", re.DOTALL)


class ScheduleToken(NamedTuple):
    """One instruction as it is written, with the ``+`` behind it if there is one.

    Attributes:
        text: As it stands in the line.
        line, column: Where it begins, counted from 1.
    """

    text: str
    line: int
    column: int

    @property
    def place(self) -> str:
        """How messages call it: ``line 3, column 5``."""
        return f"line {self.line}, column {self.column}"

    @property
    def is_joint(self) -> bool:
        """Whether the instruction exchanges jointly with the next: one ``+``, right behind its name."""
        return self.text.endswith("+") and _JOINT.fullmatch(self.text) is not None

    def instruction(self) -> Instruction:
        """The instruction that is named.

        Raises:
            ScheduleError: The token is not in the grammar; names line and column.
        """
        try:
            return parse_instruction(self.text[:-1] if self.is_joint else self.text)
        except ScheduleError as error:
            raise ScheduleError(f"{self.place}: {error}") from None


class ScheduleLine(NamedTuple):
    """One line of the text.

    Attributes:
        number: Counted from 1.
        text: All of it, comment included.
    """

    number: int
    text: str

    @property
    def is_rank(self) -> bool:
        """Whether it is of a pp_rank: more than white space stands before the comment, if only commas."""
        return bool(self._content.strip())

    def tokens(self) -> list[ScheduleToken]:
        """Of the line, in order, without its comment; not checked yet."""
        return [ScheduleToken(one[0], self.number, one.start() + 1) for one in _TOKEN.finditer(self._content)]

    @property
    def _content(self) -> str:
        return self.text.partition("#")[0]


def schedule_lines(text: str) -> Iterator[ScheduleLine]:
    """All lines of a schedule's text."""
    return starmap(ScheduleLine, enumerate(text.split("\n"), start=1))
