"""``perseus-dist straggler``: tell a planner that a pipeline is slow, and that it no longer is."""

import argparse
import json
import sys

from perseus_dist.cli.jobs.job_arguments import add_job_argument, dp_rank, finite_number, name
from perseus_dist.cli.jobs.planner_client import TIMEOUT_S, add_planner_arguments, planner_calls

_EPILOG = """\
example:
  perseus-dist straggler report llama-70b --id rack7 --pipeline 3 --degree 1.25
  perseus-dist straggler clear llama-70b --id rack7
"""
_REPORT_EPILOG = """\
example:
  perseus-dist straggler report llama-70b --id rack7 --pipeline 3 --degree 1.25

While a pipeline's iterations take 1.25 times what they take at maximum clocks, all others wait for it: they get the
plan that needs least energy in that time. Until it is cleared, the report wins over what the planner detects on that
pipeline by itself: a degree of 1 says that it does not straggle.
"""
_WITHOUT_PLAN = {"observing": "only observes", "done": "is done"}  # phases that need not end with a plan
_CLEAR_EPILOG = """\
example:
  perseus-dist straggler clear llama-70b --id rack7
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    form = argparse.RawDescriptionHelpFormatter
    parser = subparsers.add_parser(
        "straggler",
        help="report a slow pipeline to the planner, or clear the report",
        description="Report a slow pipeline to the planner, or clear the report.",
        epilog=_EPILOG,
        formatter_class=form,
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    report = actions.add_parser(
        "report",
        help="a pipeline is slow",
        description="Report a slow pipeline.",
        epilog=_REPORT_EPILOG,
        formatter_class=form,
    )
    add_job_argument(report)
    report.add_argument(
        "--id", required=True, type=name, help="a name of your own for the report; the same again replaces it"
    )
    report.add_argument("--pipeline", required=True, type=dp_rank, metavar="DP_RANK", help="its data-parallel rank")
    report.add_argument(
        "--degree", required=True, type=finite_number, metavar="X", help="how many times as long, from 1 to 100"
    )
    report.set_defaults(run=run_report)
    clear = actions.add_parser(
        "clear", help="it no longer is", description="Clear a report.", epilog=_CLEAR_EPILOG, formatter_class=form
    )
    add_job_argument(clear)
    clear.add_argument("--id", required=True, type=name, help="that the report was given")
    clear.set_defaults(run=run_clear)
    for action in (report, clear):
        action.add_argument("--json", action="store_true", help="print the job's new status as one JSON object")
        add_planner_arguments(action)


def run_report(args: argparse.Namespace) -> int:
    """Report that a pipeline is slow; the command's exit code."""
    with planner_calls(args) as (planner, metadata):
        from perseus_dist.cli.jobs.job_view import status_document
        from perseus_dist.rpc.v1 import planner_pb2 as pb

        straggler = pb.StragglerReport(id=args.id, degree=args.degree, dp_rank=args.pipeline)
        request = pb.ReportStragglerRequest(job_id=args.job, straggler=straggler)
        status = planner.ReportStraggler(request, timeout=TIMEOUT_S, metadata=metadata)
    print(json.dumps(status_document(status)) if args.json else f"{status.phase}: {status.reason}")
    if status.phase in _WITHOUT_PLAN:
        print(
            f"the report has no effect while job {args.job} {_WITHOUT_PLAN[status.phase]} ({status.reason}): there is "
            "no plan that could change; it is kept, and counts once there is one",
            file=sys.stderr,
        )
    return 0


def run_clear(args: argparse.Namespace) -> int:
    """Take a report back; the command's exit code."""
    with planner_calls(args) as (planner, metadata):
        from perseus_dist.cli.jobs.job_view import status_document
        from perseus_dist.rpc.v1 import planner_pb2 as pb

        request = pb.ClearStragglerRequest(job_id=args.job, id=args.id)
        status = planner.ClearStraggler(request, timeout=TIMEOUT_S, metadata=metadata)
    print(json.dumps(status_document(status)) if args.json else f"{status.phase}: {status.reason}")
    return 0
