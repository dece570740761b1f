"""Schedules by their names, as the command line has them."""

from dataclasses import replace

from perseus_dist.errors import ScheduleError
from perseus_dist.planning.schedule.calls.dualpipev import dualpipev
from perseus_dist.planning.schedule.schedule import (
    Exchange,
    Schedule,
    gpipe,
    interleaved,
    joint_exchanges,
    one_f_one_b,
)

SCHEDULE_NAMES = ("gpipe", "1f1b", "interleaved", "dualpipev")
MAX_INSTRUCTIONS = 1 << 20
"""Of a schedule that is made by its name; 32 times what plans have been measured with."""


def make_schedule(
    name: str,
    *,
    pp: int,
    microbatches: int,
    chunks: int = 1,
    microbatch_group_size: int | None = None,
    overlap_p2p: bool = True,
) -> Schedule:
    """A schedule by its name. The interleaved one is Megatron-LM's: ``Exchange.OVERLAPPED``, or ``joint_exchanges`` if
    point-to-point calls do not overlap; DualPipeV is DeepSpeed's.

    Messages name arguments as in ``pp=4``, or ``pp=`` without a value.

    Raises:
        ScheduleError: An unknown name, or sizes that the schedule cannot have.
    """
    if name not in SCHEDULE_NAMES:
        raise ScheduleError(f"schedule={name}: expected one of {', '.join(SCHEDULE_NAMES)}")
    num_instructions = 2 * pp * microbatches * (2 if name == "dualpipev" else chunks)
    if num_instructions > MAX_INSTRUCTIONS:
        raise ScheduleError(
            f"schedule={name}: saw {num_instructions} instructions, expected at most {MAX_INSTRUCTIONS}; lower pp=, "
            "microbatches= or chunks="
        )
    if name == "interleaved":
        schedule = interleaved(
            pp=pp, microbatches=microbatches, chunks=chunks, microbatch_group_size=microbatch_group_size
        )
        return replace(schedule, exchange=Exchange.OVERLAPPED) if overlap_p2p else joint_exchanges(schedule)
    for option, is_given, reason in (
        (f"chunks={chunks}", chunks != 1, "says by itself how many chunks a pp_rank has"),
        (f"microbatch_group_size={microbatch_group_size}", microbatch_group_size is not None, "has no groups"),
        ("overlap_p2p=False", not overlap_p2p, "exchanges no two instructions jointly"),
    ):
        if is_given:
            raise ScheduleError(
                f"{option} with schedule={name}, which {reason}: leave {option.partition('=')[0]}= out, or use "
                "schedule=interleaved"
            )
    make = {"gpipe": gpipe, "1f1b": one_f_one_b, "dualpipev": dualpipev}[name]
    return make(pp=pp, microbatches=microbatches)
