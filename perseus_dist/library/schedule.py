"""Schedules as a researcher makes them: by name, from text, from a file."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from perseus_dist.errors import ArgumentError, ScheduleError
from perseus_dist.library import arguments
from perseus_dist.library.pictures import can_draw, draw_schedule, html_picture
from perseus_dist.library.tables import Column, format_table, html_table
from perseus_dist.library.unit_times import unit_times
from perseus_dist.planning.output_file import write_output
from perseus_dist.planning.schedule import schedule as core
from perseus_dist.planning.schedule.dry_run import check_schedule
from perseus_dist.planning.schedule.instruction import Instruction, Kind
from perseus_dist.planning.schedule.named import make_schedule
from perseus_dist.planning.schedule.schedule_text import parse_schedule, read_schedule

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS: tuple[Column, ...] = (
    ("pp_rank", "pp_rank", "d"),
    ("stages", "stages", "s"),
    ("instructions", "num_instructions", "d"),
    ("warm-up\nforwards", "num_warm_up", "d"),
    ("waiting\n[%]", "waiting_percent", ".1f"),
)
_EXAMPLE = "Schedule.one_f_one_b(pp=4, microbatches=8)"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Schedule(core.Schedule):
    """The instructions of one training iteration: for each pp_rank, in the order in which it runs them.

    Make one by ``gpipe``, ``one_f_one_b``, ``interleaved``, ``from_text`` or ``read``. ``str(schedule)`` is its text
    form, a line for each pp_rank.

    Attributes:
        ranks: ``ranks[pp_rank]`` is a tuple of instructions, each with ``stage``, ``kind`` and ``microbatch``.
        joint: Instructions that exchange tensors jointly with the next one on their pp_rank, or with ``"posted"`` whose
            results leave with its own.
        exchange: How pp_ranks exchange tensors where that takes time: ``"batched"`` (Megatron-LM), ``"serial"``
            (DeepSpeed), ``"overlapped"`` or ``"overlapped-backwards"`` (Megatron-LM's interleaved schedule with
            ``overlap_p2p_comm``, before and from 0.18), ``"deferred"`` (torch's GPipe and 1F1B), ``"posted"``
            (torch's other schedules), ``"dualpipev"`` (DeepSpeed's DualPipeV) or ``"sender"`` (the sender goes on
            whether or not its result has been asked for).

    Raises:
        ScheduleError: An instruction is missing or repeated, a stage is on two pp_ranks, or the schedule deadlocks.

    Example:
        >>> import perseus_dist
        >>> schedule = perseus_dist.Schedule.one_f_one_b(pp=2, microbatches=3)
        >>> print(schedule)
        0F0 0F1 0B0 0F2 0B1 0B2
        1F0 1B0 1F1 1B1 1F2 1B2
    """

    def __post_init__(self) -> None:
        for order in arguments.instance("ranks", self.ranks, tuple, expected="a tuple of tuples of instructions"):
            if not isinstance(order, tuple) or not all(isinstance(each, Instruction) for each in order):
                raise ArgumentError(
                    f"ranks: saw {arguments.shown(order)} for a pp_rank, expected a tuple of instructions; write the "
                    "schedule as text and use Schedule.from_text"
                )
        joint: object = self.joint
        if not isinstance(joint, (frozenset, set)) or not all(isinstance(each, Instruction) for each in joint):
            raise arguments.refusal("joint", joint, "a set of instructions that ranks has")
        object.__setattr__(self, "joint", frozenset(joint))
        if not isinstance(self.exchange, str) or self.exchange not in set(core.Exchange):
            raise arguments.refusal("exchange", self.exchange, f"one of {', '.join(core.Exchange)}")
        object.__setattr__(self, "exchange", core.Exchange(self.exchange))
        check_schedule(self)

    @classmethod
    def gpipe(cls, *, pp: int, microbatches: int) -> "Schedule":
        """GPipe: all forwards, then all backwards.

        Args:
            pp: Number of pp_ranks, one stage on each.
            microbatches: Number of microbatches of an iteration.

        Raises:
            ValueError: A size is not a whole number from 1.

        Example:
            >>> print(Schedule.gpipe(pp=2, microbatches=2))
            0F0 0F1 0B0 0B1
            1F0 1F1 1B0 1B1
        """
        return cls._by_name("gpipe", pp=pp, microbatches=microbatches)

    @classmethod
    def one_f_one_b(cls, *, pp: int, microbatches: int) -> "Schedule":
        """1F1B, as Megatron-LM and DeepSpeed run it.

        Args:
            pp: Number of pp_ranks, one stage on each.
            microbatches: Number of microbatches of an iteration.

        Raises:
            ValueError: A size is not a whole number from 1.

        Example:
            >>> Schedule.one_f_one_b(pp=4, microbatches=8)
            <Schedule: 4 pp_ranks, 8 microbatches>
        """
        return cls._by_name("1f1b", pp=pp, microbatches=microbatches)

    @classmethod
    def interleaved(
        cls,
        *,
        pp: int,
        microbatches: int,
        chunks: int,
        microbatch_group_size: int | None = None,
        overlap_p2p: bool = True,
    ) -> "Schedule":
        """Interleaved 1F1B, as Megatron-LM runs it; chunk ``c`` of pp_rank ``r`` is stage ``c * pp + r``.

        Args:
            pp: Number of pp_ranks, 2 or more.
            microbatches: Number of microbatches of an iteration, ``pp`` or more.
            chunks: Model chunks on each pp_rank, 2 or more (Megatron's virtual pipeline size).
            microbatch_group_size: Microbatches that a chunk runs before the next chunk's turn (Megatron's
                ``microbatch_group_size_per_vp_stage``); ``pp`` unless given.
            overlap_p2p: False where Megatron runs without ``overlap_p2p_comm``: in the steady state each forward and
                the backward after it exchange tensors jointly.

        Raises:
            ValueError: Sizes that Megatron refuses.

        Example:
            >>> Schedule.interleaved(pp=4, microbatches=8, chunks=2)
            <Schedule: 4 pp_ranks with 2 chunks, 8 microbatches>
        """
        if not isinstance(overlap_p2p, bool):
            raise arguments.refusal("overlap_p2p", overlap_p2p, "True or False")
        return cls._by_name(
            "interleaved",
            pp=pp,
            microbatches=microbatches,
            chunks=arguments.positive_int("chunks", chunks),
            microbatch_group_size=None
            if microbatch_group_size is None
            else arguments.positive_int("microbatch_group_size", microbatch_group_size),
            overlap_p2p=overlap_p2p,
        )

    @classmethod
    def from_text(cls, text: str) -> "Schedule":
        """A schedule of your own: a line for each pp_rank, its instructions in the order in which it runs them.

        An instruction is written as ``torch.distributed.pipelining`` writes it: stage, kind, microbatch. Kinds are
        ``F`` (forward) and ``B`` (backward), or in place of ``B`` its halves ``I`` (input gradient) and ``W`` (weight
        gradient); a name in two capitals or more, as in ``0LOAD3`` or ``0STEP``, is a constant, which no clock changes.

        Args:
            text: Instructions apart by spaces or commas; ``#`` starts a comment, and ``+`` after an instruction says
                that it exchanges tensors jointly with the next.

        Raises:
            ValueError: The text is not in this form, an instruction is missing or repeated, or the schedule deadlocks;
                names line and column.

        Example:
            A backward in two halves, the weight gradients where the pp_rank would wait:

            >>> Schedule.from_text('''
            ... 0F0 0F1 0I0 0W0 0I1 0W1
            ... 1F0 1I0 1F1 1I1 1W0 1W1
            ... ''')
            <Schedule: 2 pp_ranks, 2 microbatches>
        """
        if isinstance(text, os.PathLike):
            raise arguments.refusal("text", text, "a schedule's text; for a file use Schedule.read")
        text = arguments.instance("text", text, str, expected="lines such as '0F0 0F1 0B0 0B1', one for each pp_rank")
        try:
            return cls._of(parse_schedule(text))
        except ScheduleError as error:
            raise ScheduleError(f"text: {error}") from None

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "Schedule":
        """A schedule from a file in the form of ``from_text``, which ``torch.distributed.pipelining``'s CSV files have.

        Args:
            path: The file.

        Raises:
            ValueError: The file cannot be read, or ``from_text`` refuses what it says; names file and line.

        Example:
            >>> Schedule.gpipe(pp=2, microbatches=2).save("orders.txt")
            >>> Schedule.read("orders.txt") == Schedule.gpipe(pp=2, microbatches=2)
            True
        """
        return cls._of(read_schedule(arguments.path("path", path, expected="a file's path, such as 'orders.txt'")))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the text form, for ``read`` and for ``perseus-dist plan --schedule-file``.

        Raises:
            ValueError: ``path`` is no path.
            OutputError: The place cannot be written to.

        Example:
            >>> Schedule.one_f_one_b(pp=2, microbatches=2).save("orders.txt")
        """
        write_output(
            arguments.path("path", path, expected="a file's path, such as 'orders.txt'"),
            core.format_schedule(self).encode(),
        )

    def summary(self) -> str:
        """A line for each pp_rank: stages, instructions, forwards before its first backward, and how long it waits.

        Waiting is the share of the iteration if a backward takes two forwards, its halves one each, constants and
        transfers no time.

        Example:
            >>> print(Schedule.one_f_one_b(pp=2, microbatches=3).summary())
            2 pp_ranks, 3 microbatches
            <BLANKLINE>
                                            warm-up  waiting
            pp_rank  stages  instructions  forwards      [%]
                  0  0                  6         2     25.0
                  1  1                  6         1     25.0
        """
        return f"{shape_text(self)}\n\n{format_table(_COLUMNS, self._records(), is_plain=True)}".rstrip("\n")

    def plot(self, *, title: str | None = None, ax: "Axes | None" = None) -> "Figure":
        """Draw the order: each pp_rank's instructions with their microbatches, in the times of ``summary``.

        Args:
            title: Above the picture; the schedule's size unless given.
            ax: Matplotlib axes to draw into; without it a figure is made.

        Returns:
            The figure, for ``savefig``; a notebook shows it. ``Plan.plot`` draws measured times.

        Raises:
            ModuleNotFoundError: There is no matplotlib; the message says how to install it.

        Example:
            >>> Schedule.interleaved(pp=4, microbatches=8, chunks=2).plot().savefig("order.svg")
        """
        return draw_schedule(self, title=shape_text(self) if title is None else title, ax=ax)

    def __str__(self) -> str:
        return core.format_schedule(self).rstrip("\n")

    def __repr__(self) -> str:
        return f"<Schedule: {shape_text(self)}>"

    def _repr_html_(self) -> str:
        picture = html_picture(self.plot()) if can_draw() else ""
        return f"<p>{shape_text(self)}</p>{html_table(_COLUMNS, self._records())}{picture}"

    def _records(self) -> list[dict[str, Any]]:
        waiting = unit_times(self).waiting_shares.tolist()
        return [
            {
                "pp_rank": pp_rank,
                "stages": ", ".join(map(str, sorted({each.stage for each in order}))),
                "num_instructions": len(order),
                "num_warm_up": _num_warm_up(order),
                "waiting_percent": 100 * waiting[pp_rank],
            }
            for pp_rank, order in enumerate(self.ranks)
        ]

    @classmethod
    def _by_name(cls, name: str, *, pp: int, microbatches: int, **options: int | None) -> "Schedule":
        with _naming_methods():
            return cls._of(
                make_schedule(
                    name,
                    pp=arguments.positive_int("pp", pp),
                    microbatches=arguments.positive_int("microbatches", microbatches),
                    **options,  # type: ignore[arg-type]  # of interleaved alone
                )
            )

    @classmethod
    def _of(cls, schedule: core.Schedule) -> "Schedule":
        """Of one that is known to be complete: the check takes several times as long as making it."""
        made = object.__new__(cls)
        for field in fields(core.Schedule):
            object.__setattr__(made, field.name, getattr(schedule, field.name))
        return made


def as_schedule(value: object) -> core.Schedule:
    """The argument ``schedule``; one of the planning core's own is checked as ours are.

    Raises:
        ArgumentError: The value is no schedule.
        ScheduleError: The schedule is not complete, or deadlocks.
    """
    schedule = arguments.instance("schedule", value, core.Schedule, expected=f"a Schedule, such as {_EXAMPLE}")
    if not isinstance(schedule, Schedule):
        check_schedule(schedule)
    return schedule


def _num_warm_up(order: Sequence[Instruction]) -> int:
    """Forwards before the first instruction of a backward."""
    computations = [each.kind for each in order if not each.is_constant]
    return next((index for index, kind in enumerate(computations) if kind != Kind.FORWARD), len(computations))


def shape_text(schedule: core.Schedule) -> str:
    """The schedule's size in words."""
    chunks, rest = divmod(schedule.num_stages, schedule.num_ranks)
    each = "" if schedule.num_stages == schedule.num_ranks else f" with {chunks} chunks"
    if rest:
        each = f" with {schedule.num_stages} stages"
    return f"{schedule.num_ranks} pp_ranks{each}, {schedule.num_microbatches} microbatches"


@contextmanager
def _naming_methods() -> Iterator[None]:
    """Have a refusal name the method where the planning core names the schedule."""
    try:
        yield
    except ScheduleError as error:
        text = str(error)
        for name, method in (("gpipe", "gpipe"), ("1f1b", "one_f_one_b"), ("interleaved", "interleaved")):
            text = text.replace(f"schedule={name}", f"Schedule.{method}")
        raise ScheduleError(text) from None
