"""``perseus-dist watch``: a job's status, as it changes."""

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING

from perseus_dist.cli.planner_client import add_planner_arguments, planner_calls

if TYPE_CHECKING:
    from perseus_dist.rpc.v1 import planner_pb2 as pb

_EPILOG = """\
example:
  perseus-dist watch llama-70b
  perseus-dist watch llama-70b --json | jq .phase

On a terminal the status is redrawn in place; elsewhere a line is printed for each change of phase, plan or straggler.
Ends when the planner forgets the job, or at Ctrl-C.
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "watch",
        help="follow a running job",
        description="Follow a running job's status.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("job", metavar="JOB")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line, at every change")
    add_planner_arguments(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Watch."""
    with planner_calls(args) as (planner, metadata):
        from perseus_dist.cli.job_view import status_document
        from perseus_dist.rpc.v1 import planner_pb2 as pb

        show = _on_terminal if sys.stdout.isatty() else _Lines()
        for status in planner.WatchJob(pb.WatchJobRequest(job_id=args.job), metadata=metadata):
            if args.json:
                print(json.dumps(status_document(status)), flush=True)
            else:
                show(status)
    return 0


def _on_terminal(status: "pb.JobStatus") -> None:
    from perseus_dist.cli.job_view import format_jobs, format_pipelines, format_troubles

    home_and_clear = "\x1b[H\x1b[2J"
    tables = f"{format_jobs([status])}\n{format_pipelines(status)}"
    print(f"{home_and_clear}{tables}{format_troubles(status)}", end="", flush=True)


class _Lines:
    """A line for each decision; iterations alone are no news."""

    def __init__(self) -> None:
        self._said = ""

    def __call__(self, status: "pb.JobStatus") -> None:
        from perseus_dist.cli.job_view import format_target

        stragglers = "".join(f", {one.id}: pipeline {one.dp_rank} x {one.degree:g}" for one in status.stragglers)
        line = (
            f"{status.phase}: {status.reason} (table {status.table_revision}, switch {status.switch_revision}, "
            f"target {format_target(status.target)}{stragglers})"
        )
        line = "\n  ".join((line, *status.troubles))
        if line != self._said:
            self._said = line
            print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)
