"""``perseus-dist doctor``: what is wrong on this node, with one remedy each."""

import argparse
import json
import os
from dataclasses import asdict
from importlib.metadata import version

from perseus_dist.cli.jobs.planner_client import add_planner_arguments
from perseus_dist.cli.node.doctor.backup import inspect_backup
from perseus_dist.cli.node.doctor.certificates import inspect_certificates
from perseus_dist.cli.node.doctor.credentials import check_named_files, inspect_credentials
from perseus_dist.cli.node.doctor.job_options import inspect_job_options
from perseus_dist.cli.node.doctor.jobs import inspect_embedded
from perseus_dist.cli.node.doctor.packages import inspect_packages
from perseus_dist.cli.node.doctor.planner import inspect_planner, inspect_relay
from perseus_dist.cli.node.doctor.rights import inspect_rights
from perseus_dist.cli.node.doctor.served import inspect_served
from perseus_dist.cli.node.doctor.settings import inspect_settings
from perseus_dist.cli.output_option import Output
from perseus_dist.device.inspection.node import inspect_device
from perseus_dist.device.inspection.slurm import inspect_slurm_settings
from perseus_dist.device.node_metrics import node_metrics
from perseus_dist.errors import PerseusError
from perseus_dist.messages.finding import Level
from perseus_dist.planning.output_file import check_writable, write_output

_EPILOG = """\
example:
  perseus-dist doctor
  perseus-dist doctor --planner planner.example:50151 --json
  perseus-dist doctor --metrics /var/lib/prometheus/node-exporter/perseus.prom

Looks at packages, settings files and variables, certificates, the database of tokens and the newest backup of a planner
on this node, its page and metrics, the options and the cache of jobs that start here, driver, GPUs, the right to set
clocks, clock daemons, other jobs, operators' locks and power caps, Slurm's settings and the folders that its hooks
write to, the node relay, and the planner with its tokens and the troubles of its jobs; without --planner, at those of
jobs on this node that embed theirs. Asks clockd for a lease of each GPU and gives it back; sets nothing. Exits with 1
if something keeps perseus-dist from working.
"""

_READABLE_BY_ALL = 0o644  # node_exporter is another user


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
        action=Output,
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
        PerseusError: Metrics cannot be written, or the command line names files that cannot be read, and no planner.
    """
    if args.metrics is not None:
        return _write_metrics(args)
    check_named_files(args)
    of_settings, settings = inspect_settings(os.environ)
    findings = [*inspect_packages(), *of_settings, *inspect_certificates(args, settings), *inspect_rights(settings)]
    findings += [*inspect_backup(settings), *inspect_served(settings), *inspect_job_options(os.environ)]
    findings += inspect_device(os.environ)
    findings += [*inspect_slurm_settings(os.environ), *inspect_relay(os.environ), *inspect_credentials(args)]
    if args.planner is None:
        findings += inspect_embedded(args)
    else:
        for address in args.planner.split(","):
            findings += inspect_planner(args, address.strip())
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
    write_output(args.metrics, node_metrics(os.environ, version("perseus-dist")).encode(), mode=_READABLE_BY_ALL)
    return 0
