"""``perseus-dist target``: how fast a running job is to be."""

import argparse
import json

from perseus_dist.cli.jobs.job_arguments import add_job_argument, finite_number
from perseus_dist.cli.jobs.planner_client import TIMEOUT_S, add_planner_arguments, planner_calls

_EPILOG = """\
example:
  perseus-dist target llama-70b --t-min
  perseus-dist target llama-70b --slowdown 1.05
  perseus-dist target llama-70b --deadline-s 3.2
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "target",
        help="set how fast a running job is to be",
        description="Set how fast a running job is to be: the planner finds the least energy for it.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_job_argument(parser)
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--t-min", action="store_true", help="as fast as at maximum clocks")
    target.add_argument("--slowdown", type=finite_number, metavar="X", help="times that, 1 or more")
    target.add_argument("--deadline-s", type=finite_number, metavar="S", help="seconds an iteration")
    parser.add_argument("--json", action="store_true", help="print the job's new status as one JSON object")
    add_planner_arguments(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Set a job's target; the command's exit code."""
    with planner_calls(args) as (planner, metadata):
        from perseus_dist.cli.jobs.job_view import format_target, status_document
        from perseus_dist.rpc.v1 import planner_pb2 as pb

        target = pb.Target()
        if args.t_min:
            target.t_min = True
        elif args.slowdown is not None:
            target.slowdown = args.slowdown
        else:
            target.deadline_s = args.deadline_s
        request = pb.SetTargetRequest(job_id=args.job, target=target)
        status = planner.SetTarget(request, timeout=TIMEOUT_S, metadata=metadata)
    shown = f"target {format_target(status.target)}; {status.phase}: {status.reason}"
    print(json.dumps(status_document(status)) if args.json else shown)
    return 0
