"""``perseus-dist jobs``: what a planner knows of its jobs."""

import argparse
import json

from perseus_dist.cli.planner_client import TIMEOUT_S, add_planner_arguments, planner_calls

_EPILOG = """\
example:
  perseus-dist jobs
  perseus-dist jobs --planner planner.cluster:50151 --tls-ca ca.pem --token-file job.token --json
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "jobs",
        help="list the jobs of a planner",
        description="List the jobs of a planner that the token opens.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_planner_arguments(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """List."""
    with planner_calls(args) as (planner, metadata):
        from perseus_dist.cli.job_view import format_jobs, status_document
        from perseus_dist.rpc.v1 import planner_pb2 as pb

        jobs = list(planner.ListJobs(pb.ListJobsRequest(), timeout=TIMEOUT_S, metadata=metadata).jobs)
    if args.json:
        print(json.dumps({"jobs": [status_document(job) for job in jobs]}))
    elif jobs:
        print(format_jobs(jobs), end="")
    else:
        print("no jobs")
    return 0
