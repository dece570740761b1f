"""``perseus-dist doctor``: what is wrong on this node, with one remedy each."""

import argparse
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from perseus_dist.cli.jobs.call_troubles import connection_trouble
from perseus_dist.cli.jobs.planner_client import (
    Endpoint,
    PlannerCallError,
    add_planner_arguments,
    client_tls,
    embedded_planners,
    named_planner,
    planner_calls,
)
from perseus_dist.device.inspection.node import inspect_device
from perseus_dist.device.node_metrics import node_metrics
from perseus_dist.errors import PerseusError
from perseus_dist.messages.finding import Finding, Level
from perseus_dist.planning.output_file import check_writable, write_output

if TYPE_CHECKING:
    from perseus_dist.rpc.v1 import planner_pb2 as pb

_EPILOG = """\
example:
  perseus-dist doctor
  perseus-dist doctor --planner planner.example:50151 --json
  perseus-dist doctor --metrics /var/lib/prometheus/node-exporter/perseus.prom

Looks at packages, driver, GPUs, the right to set clocks, clock daemons, other jobs, operators' locks and power caps,
and the planner with the troubles of its jobs; without --planner, at those of jobs on this node that embed theirs. Asks
clockd for a lease of each GPU and gives it back; sets nothing. Exits with 1 if something keeps perseus-dist from
working.
"""

_READABLE_BY_ALL = 0o644  # node_exporter is another user
_PLANNER_TIMEOUT_S = 3.0


class DoctorOptionsError(PerseusError):
    """Options of the doctor that do not fit together."""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "doctor",
        help="say what is wrong on this node, with a remedy",
        description="Look for what keeps perseus-dist from working on this node.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--metrics",
        type=Path,
        metavar="FILE.prom",
        help="write leases, clocks left locked and throttling for node_exporter's textfile collector, and "
        "nothing else; asks for no lease, and no planner",
    )
    add_planner_arguments(parser, "a planner that must be reachable")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Look at everything.

    Returns:
        0; 1 if a finding is a failure.

    Raises:
        PerseusError: Metrics cannot be written.
    """
    if args.metrics is not None:
        return _write_metrics(args)
    findings = [*_inspect_packages(), *inspect_device(os.environ)]
    findings += _inspect_embedded(args) if args.planner is None else _inspect_planner(args)
    if args.json:
        print(json.dumps({"findings": [asdict(finding) for finding in findings]}))
    else:
        for finding in findings:
            print(f"{finding.level:<4}  {finding.subject}: {finding.what}")
            if finding.remedy:
                print(f"      -> {finding.remedy}")
    return 1 if any(finding.level is Level.FAIL for finding in findings) else 0


def _write_metrics(args: argparse.Namespace) -> int:
    if args.json:
        raise DoctorOptionsError("--metrics writes for node_exporter, and does not go with --json")
    if args.metrics.suffix != ".prom":
        raise DoctorOptionsError(f"--metrics {args.metrics}: node_exporter reads files whose names end in .prom alone")
    check_writable(args.metrics)
    write_output(args.metrics, node_metrics(os.environ, version("perseus-dist")).encode())
    with suppress(OSError):  # it belongs to another user, who has seen to it
        args.metrics.chmod(_READABLE_BY_ALL)
    return 0


def _inspect_packages() -> Iterator[Finding]:
    needed_for = {"nvidia-ml-py": "reading and setting GPUs", "grpcio": "reaching a planner", "protobuf": "the same"}
    found = [f"perseus-dist {version('perseus-dist')}"]
    for name, purpose in needed_for.items():
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            yield Finding(
                level=Level.FAIL,
                subject="packages",
                what=f"{name} is not installed, which is needed for {purpose}",
                remedy="pip install 'perseus-dist[agent]'",
            )
    yield Finding(level=Level.OK, subject="packages", what=", ".join(found))


def _inspect_planner(args: argparse.Namespace) -> Iterator[Finding]:
    """Whether it can be reached, serves, and takes the token; and what troubles its jobs."""
    address: str = args.planner
    if (trouble := connection_trouble(address, client_tls(args))) is not None:
        yield Finding(level=Level.FAIL, subject="planner", what=f"{address}: {trouble.what}", remedy=trouble.remedy)
        return
    try:
        jobs = _jobs_of(args, named_planner(args, address))
    except PlannerCallError as error:
        what, _, remedy = str(error).partition("; ")
        yield Finding(level=Level.FAIL, subject="planner", what=what, remedy=remedy)
        return
    yield Finding(level=Level.OK, subject="planner", what=f"{address} serves; jobs that the token opens: {len(jobs)}")
    yield from job_findings(jobs, f" --planner {address}")


def _inspect_embedded(args: argparse.Namespace) -> Iterator[Finding]:
    """Troubles of the jobs on this node that embed their planner; a job that ends meanwhile has no more."""
    for endpoint in embedded_planners():
        with suppress(PlannerCallError):
            yield from job_findings(_jobs_of(args, endpoint))


def _jobs_of(args: argparse.Namespace, endpoint: Endpoint) -> "list[pb.JobStatus]":
    with planner_calls(args, endpoint) as (planner, metadata):
        from perseus_dist.rpc.v1 import planner_pb2 as pb

        return list(planner.ListJobs(pb.ListJobsRequest(), timeout=_PLANNER_TIMEOUT_S, metadata=metadata).jobs)


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
