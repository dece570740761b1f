"""``perseus-dist fetch``: a running job's profile and frontier, into files."""

import argparse
import json

from perseus_dist.cli.jobs.job_arguments import add_job_argument
from perseus_dist.cli.jobs.planner_client import TIMEOUT_S, PlannerCallError, add_planner_arguments, planner_calls
from perseus_dist.cli.output_option import Output
from perseus_dist.planning.output_file import check_writable, write_output

_EPILOG = """\
example:
  perseus-dist fetch llama-70b --profile profile.csv --frontier frontier.csv

The profile is of the form that 'perseus-dist plan' reads; the blocking power that belongs to it is printed.
"""
_OTHER_FORMS = (".npz", ".json")
"""Endings of files that other commands write and read, and not as CSV."""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "fetch",
        help="save the profile and the frontier of a running job",
        description="Save what a planner has measured and planned for a job.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_job_argument(parser)
    parser.add_argument("--profile", action=Output, metavar="FILE.csv", help="write the measured profile")
    parser.add_argument("--frontier", action=Output, metavar="FILE.csv", help="write times and energies of all plans")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_planner_arguments(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write a job's profile and frontier into files; the command's exit code."""
    if args.profile is None and args.frontier is None:
        raise PlannerCallError("nothing to fetch: name --profile FILE.csv, --frontier FILE.csv, or both")
    for option, path in (("--profile", args.profile), ("--frontier", args.frontier)):
        if path is not None and path.suffix.lower() in _OTHER_FORMS:
            raise PlannerCallError(
                f"{option} {path}: saw {path.suffix}, but what is written is CSV; name a file that ends in .csv"
            )
        if path is not None:
            check_writable(path)
    with planner_calls(args) as (planner, metadata):
        from perseus_dist.rpc.v1 import planner_pb2 as pb
        from perseus_dist.runlog.frontier_csv import frontier_csv

        profile = planner.GetProfile(pb.GetProfileRequest(job_id=args.job), timeout=TIMEOUT_S, metadata=metadata)
        frontier = None  # a job that cannot be planned has a profile all the same
        if args.frontier is not None:
            request = pb.GetFrontierRequest(job_id=args.job)
            frontier = planner.GetFrontier(request, timeout=TIMEOUT_S, metadata=metadata)
    if args.profile is not None:
        write_output(args.profile, profile.csv.encode())
    figures = {"blocking_power_w": profile.blocking_power_w}
    if frontier is not None:
        write_output(args.frontier, frontier_csv(frontier.points).encode())
        figures |= {
            "table_revision": frontier.table_revision,
            "fastest_s": frontier.fastest_s,
            "t_star_s": frontier.t_star_s,
            "baseline_time_s": frontier.baseline_time_s,
            "baseline_energy_j": frontier.baseline_energy_j,
        }
    if args.json:
        print(json.dumps(figures))
    else:
        for path in filter(None, (args.profile, args.frontier)):
            print(f"{path} written")
        print(f"blocking power {profile.blocking_power_w:.2f} W")
        if frontier is not None:
            print(
                f"fastest plan {frontier.fastest_s:.4f} s, T_min {frontier.baseline_time_s:.4f} s, "
                f"T* {frontier.t_star_s:.4f} s"
            )
    return 0
