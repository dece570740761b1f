"""Troubles of running jobs, in the words of their planners."""

import argparse
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from perseus_dist.cli.jobs.planner_client import embedded_planners, planner_calls
from perseus_dist.errors import PerseusError
from perseus_dist.messages.finding import Finding, Level

if TYPE_CHECKING:
    from perseus_dist.rpc.v1 import planner_pb2 as pb

_PLANNER_TIMEOUT_S = 3.0


def inspect_embedded(args: argparse.Namespace) -> Iterator[Finding]:
    """Troubles of the jobs on this node that embed their planner; a job that ends meanwhile has no more.

    Files of TLS that cannot be used are for ``inspect_credentials``.
    """
    for endpoint in embedded_planners():
        with suppress(PerseusError), planner_calls(args, endpoint) as (planner, metadata):
            from perseus_dist.rpc.v1 import planner_pb2 as pb

            found = planner.ListJobs(pb.ListJobsRequest(), timeout=_PLANNER_TIMEOUT_S, metadata=metadata)
            yield from job_findings(found.jobs)


def job_findings(jobs: "Iterable[pb.JobStatus]", options: str = "") -> Iterator[Finding]:
    """A warning for each trouble of a job, in the planner's words: iterations that are not as predicted among them.

    Args:
        jobs: As their planner lists them.
        options: By which ``watch`` finds the planner, after a space.
    """
    for job in jobs:
        for trouble in job.troubles:
            remedy = f"perseus-dist watch {job.job_id}{options}"
            yield Finding(level=Level.WARN, subject=f"job {job.job_id}", what=trouble, remedy=remedy)
