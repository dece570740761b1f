"""The options that describe a schedule, the same for every command that needs one."""

import argparse
import re
from collections.abc import Iterator
from contextlib import contextmanager

from perseus_dist.errors import PerseusError, ScheduleError
from perseus_dist.number_text import read_whole
from perseus_dist.planning.schedule.named import SCHEDULE_NAMES, make_schedule
from perseus_dist.planning.schedule.schedule import Schedule, interleaved, joint_exchanges
from perseus_dist.planning.schedule.schedule_text import read_schedule

_ARGUMENT = re.compile(r"(?<![^\s(])(schedule|pp|microbatches|chunks|microbatch_group_size|overlap_p2p)=(-?\w*)")
_MAX_SIZE = 999_999_999


@contextmanager
def naming_options() -> Iterator[None]:
    """Have a refusal name options as in ``--pp 4`` where the planning core names its arguments as in ``pp=4``."""
    try:
        yield
    except PerseusError as error:
        raise type(error)(_ARGUMENT.sub(_option, str(error))) from None


def _option(argument: re.Match[str]) -> str:
    name, value = argument.groups()
    return "--no-overlap-p2p" if name == "overlap_p2p" else f"--{name.replace('_', '-')} {value}".rstrip()


def positive_int(text: str) -> int:
    """An argparse type: an integer from 1, in decimal digits."""
    try:
        return read_whole(text, 1, _MAX_SIZE)
    except ValueError:
        limit = f" of at most {_MAX_SIZE}" if text.isdecimal() and text.strip("0") else ""
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive integer{limit}") from None


def add_schedule_arguments(parser: argparse.ArgumentParser) -> "argparse._MutuallyExclusiveGroup":
    """Add the options that ``schedule_from_args`` reads; the group of those of which one is needed."""
    group = parser.add_argument_group("schedule")
    source = group.add_mutually_exclusive_group(required=True)
    source.add_argument("--schedule", choices=SCHEDULE_NAMES, help="make the schedule of this name")
    source.add_argument(
        "--schedule-file", metavar="FILE", help="read it from a file: a line per pp_rank, such as 0F0 0F1 0B0 0B1"
    )
    group.add_argument("--pp", type=positive_int, metavar="P", help="pipeline-parallel size: number of pp_ranks")
    group.add_argument("--microbatches", type=positive_int, metavar="M", help="number of microbatches per iteration")
    group.add_argument("--chunks", type=positive_int, metavar="V", help="interleaved: model chunks per pp_rank")
    group.add_argument(
        "--microbatch-group-size",
        type=positive_int,
        metavar="G",
        help="interleaved: Megatron's microbatch_group_size_per_vp_stage (default: P)",
    )
    group.add_argument(
        "--no-overlap-p2p",
        action="store_false",
        dest="overlap_p2p",
        help="interleaved: as Megatron runs it with --no-overlap-p2p-communication; in the steady state a pp_rank "
        "exchanges the tensors of a forward and the backward after it jointly, written 0F4+ 4B0",
    )
    return source


def schedule_from_args(args: argparse.Namespace) -> Schedule:
    """The schedule that parsed options ask for.

    Raises:
        ScheduleError: Options are missing, contradict each other or the file, or no such schedule can run.
    """
    if args.schedule_file is not None:
        schedule = read_schedule(args.schedule_file)
        _check_file_against_options(schedule, args)
        return schedule
    for option, value in (("--pp P", args.pp), ("--microbatches M", args.microbatches)):
        if value is None:
            raise ScheduleError(f"--schedule {args.schedule} without its size: add {option}")
    with naming_options():
        return make_schedule(
            args.schedule,
            pp=args.pp,
            microbatches=args.microbatches,
            chunks=args.chunks or 1,
            microbatch_group_size=args.microbatch_group_size,
            overlap_p2p=args.overlap_p2p,
        )


def _check_file_against_options(schedule: Schedule, args: argparse.Namespace) -> None:
    """A file says all its sizes itself; an option that says otherwise means the wrong file or the wrong option."""
    group = args.microbatch_group_size
    for option, given, agrees in (
        ("--pp", args.pp, args.pp == schedule.num_ranks),
        ("--microbatches", args.microbatches, args.microbatches == schedule.num_microbatches),
        ("--chunks", args.chunks, args.chunks == schedule.num_stages / schedule.num_ranks),
        ("--microbatch-group-size", group, group is not None and _is_interleaved(schedule, group)),
    ):
        if given is not None and not agrees:
            raise ScheduleError(
                f"{option} {given} does not fit {args.schedule_file}: its {schedule.num_stages} stages on "
                f"{schedule.num_ranks} pp_ranks run {schedule.num_microbatches} microbatches in an order of its own; "
                f"leave {option} out, or give the file that you mean"
            )
    if not args.overlap_p2p and not _is_joint(schedule):
        raise ScheduleError(
            f"--no-overlap-p2p does not fit {args.schedule_file}: Megatron's steady-state pairs are not joint, as "
            "in 0F4+ 4B0; leave --no-overlap-p2p out, or give the file that you mean"
        )


def _is_interleaved(schedule: Schedule, microbatch_group_size: int) -> bool:
    try:
        return (
            schedule.ranks
            == interleaved(
                pp=schedule.num_ranks,
                microbatches=schedule.num_microbatches,
                chunks=schedule.num_stages // schedule.num_ranks,
                microbatch_group_size=microbatch_group_size,
            ).ranks
        )
    except ScheduleError:
        return False


def _is_joint(schedule: Schedule) -> bool:
    try:
        return schedule == joint_exchanges(schedule)
    except ScheduleError:
        return False
