"""``perseus-dist jobs``: what planners know of their jobs."""

import argparse
import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from perseus_dist.cli.jobs.planner_client import (
    TIMEOUT_S,
    Endpoint,
    PlannerAwayError,
    PlannerCallError,
    add_planner_arguments,
    find_planners,
    planner_calls,
)

if TYPE_CHECKING:
    from perseus_dist.rpc.v1 import planner_pb2 as pb

_EPILOG = """\
example:
  perseus-dist jobs
  perseus-dist jobs --planner planner.cluster:50151 --tls-ca ca.pem --token-file job.token --json
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "jobs",
        help="list your running jobs on this node, or the jobs of a planner",
        description="List the jobs that the token opens: those of the planner that is named, else those of the node's "
        "planner and of all jobs of yours on this node that embed one.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_planner_arguments(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the jobs of one planner, or of this node; the command's exit code."""
    endpoints = find_planners(args)
    jobs: list[pb.JobStatus] = []
    failed: list[PlannerCallError] = []
    for endpoint in endpoints:
        try:
            jobs += _jobs_at(args, endpoint)
        except PlannerCallError as error:
            failed.append(error)
    # The node's planner and those of jobs that have just ended are only looked for, not asked for.
    if len(failed) == len(endpoints):
        raise failed[0]
    for refusal in failed:
        if not isinstance(refusal, PlannerAwayError):
            print(f"perseus-dist: {refusal}", file=sys.stderr)
    from perseus_dist.cli.jobs.job_view import format_jobs, status_document

    if args.json:
        print(json.dumps({"jobs": [status_document(job) for job in jobs]}))
    elif jobs:
        print(format_jobs(jobs), end="")
    else:  # a planner lists none to a token that it does not know, and does not say that it knows none
        by_token = any(endpoint.is_named and endpoint.token for endpoint in endpoints)
        print("no jobs that this token opens" if by_token else "no jobs")
    return 0


def _jobs_at(args: argparse.Namespace, endpoint: Endpoint) -> "list[pb.JobStatus]":
    """The jobs of a planner, and where it is one of several replicas those of the others."""
    listed = _list(args, endpoint)
    jobs = {job.job_id: job for job in listed.jobs}
    for address in listed.replicas:
        try:
            others = _list(args, replace(endpoint, address=address)).jobs
        except PlannerCallError as error:
            print(f"perseus-dist: jobs of the replica {address} are not listed: {error}", file=sys.stderr)
            continue
        jobs = {job.job_id: job for job in others} | jobs  # one that moves meanwhile is listed once
    return [jobs[job_id] for job_id in sorted(jobs)]


def _list(args: argparse.Namespace, endpoint: Endpoint) -> "pb.ListJobsResponse":
    with planner_calls(args, endpoint) as (planner, metadata):
        from perseus_dist.rpc.v1 import planner_pb2 as pb

        listed: pb.ListJobsResponse = planner.ListJobs(pb.ListJobsRequest(), timeout=TIMEOUT_S, metadata=metadata)
    return listed
