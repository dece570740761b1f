"""``perseus-dist doctor``: what is wrong on this node, with one remedy each."""

import argparse
import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version

from perseus_dist.cli.jobs.call_troubles import connection_trouble
from perseus_dist.cli.jobs.planner_client import (
    PlannerCallError,
    add_planner_arguments,
    client_tls,
    named_planner,
    planner_calls,
)
from perseus_dist.device.inspection import Finding, Level, inspect_device

_EPILOG = """\
example:
  perseus-dist doctor
  perseus-dist doctor --planner planner.example:50151 --json

Looks at packages, driver, GPUs, the right to set clocks, clock daemons, other jobs, operators' locks and power caps,
and the planner. Asks clockd for a lease of each GPU and gives it back; sets nothing. Exits with 1 if something keeps
perseus-dist from working.
"""

_PLANNER_TIMEOUT_S = 3.0


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
    add_planner_arguments(parser, "a planner that must be reachable")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Look at everything.

    Returns:
        0; 1 if a finding is a failure.
    """
    findings = [*_inspect_packages(), *inspect_device(os.environ)]
    if args.planner is not None:
        findings.append(_inspect_planner(args))
    if args.json:
        print(json.dumps({"findings": [asdict(finding) for finding in findings]}))
    else:
        for finding in findings:
            print(f"{finding.level:<4}  {finding.subject}: {finding.what}")
            if finding.remedy:
                print(f"      -> {finding.remedy}")
    return 1 if any(finding.level is Level.FAIL for finding in findings) else 0


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


def _inspect_planner(args: argparse.Namespace) -> Finding:
    """Whether it can be reached, serves, and takes the token."""
    address: str = args.planner
    if (trouble := connection_trouble(address, client_tls(args))) is not None:
        return Finding(level=Level.FAIL, subject="planner", what=f"{address}: {trouble.what}", remedy=trouble.remedy)
    try:
        with planner_calls(args, named_planner(args, address)) as (planner, metadata):
            from perseus_dist.rpc.v1 import planner_pb2 as pb

            jobs = planner.ListJobs(pb.ListJobsRequest(), timeout=_PLANNER_TIMEOUT_S, metadata=metadata).jobs
    except PlannerCallError as error:
        what, _, remedy = str(error).partition("; ")
        return Finding(level=Level.FAIL, subject="planner", what=what, remedy=remedy)
    return Finding(level=Level.OK, subject="planner", what=f"{address} serves; jobs that the token opens: {len(jobs)}")
