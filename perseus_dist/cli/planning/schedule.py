"""``perseus-dist schedule``: print the order in which each pp_rank runs its instructions."""

import argparse
import json

from perseus_dist.cli.planning.schedule_options import add_schedule_arguments, schedule_from_args
from perseus_dist.planning.schedule.dry_run import dry_run
from perseus_dist.planning.schedule.schedule import Schedule, format_schedule

_EPILOG = """\
example:
  perseus-dist schedule --schedule interleaved --pp 4 --microbatches 8 --chunks 2 > orders.txt
  perseus-dist schedule --schedule-file orders.txt --grid

An instruction is written 2F0: stage 2, forward, microbatch 0. Kinds: F forward, B backward, or its halves I (input
gradient) and W (weight gradient); any longer name in capitals is a constant instruction, such as 0LOAD3 or 0STEP.
A + as in 0F4+ 4B0 says that the two exchange tensors jointly: what either needs has arrived before the first, and what
both made leaves after the second.
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "schedule",
        help="print a schedule, a line per pp_rank",
        description="Print a schedule: a line per pp_rank, its instructions in execution order.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_schedule_arguments(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object")
    form.add_argument(
        "--grid", action="store_true", help="print a row per step, every instruction as long as any other"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the schedule that the options ask for."""
    schedule = schedule_from_args(args)
    if args.json:
        print(json.dumps(_as_json(schedule)))
    elif args.grid:
        print(_grid(schedule))
    else:
        print(format_schedule(schedule), end="")
    return 0


def _as_json(schedule: Schedule) -> dict[str, object]:
    return {
        "ranks": [order.split() for order in format_schedule(schedule).splitlines()[: schedule.num_ranks]],
        "exchange": schedule.exchange,
        "num_stages": schedule.num_stages,
        "num_microbatches": schedule.num_microbatches,
        "digest": schedule.digest(),
    }


def _grid(schedule: Schedule) -> str:
    """A row per step and a column per pp_rank, as ``torch.distributed.pipelining`` draws it; idle steps are empty."""
    heads = [f"pp_rank {pp_rank}" for pp_rank in range(schedule.num_ranks)]
    steps = dry_run(schedule, places=heads)
    rows = [["step", *heads], *([str(step), *[""] * schedule.num_ranks] for step in range(max(steps.values()) + 1))]
    for pp_rank, order in enumerate(schedule.ranks):
        for instruction in order:
            rows[1 + steps[instruction]][1 + pp_rank] = str(instruction)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
