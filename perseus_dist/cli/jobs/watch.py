"""``perseus-dist watch``: a job's status, as it changes."""

import argparse
import json
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from perseus_dist.cli.jobs.job_arguments import add_job_argument
from perseus_dist.cli.jobs.planner_client import (
    Endpoint,
    PlannerAwayError,
    PlannerCallError,
    add_planner_arguments,
    find_planner,
    planner_calls,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from perseus_dist.rpc.v1 import planner_pb2 as pb

_EPILOG = """\
example:
  perseus-dist watch llama-70b
  perseus-dist watch llama-70b --json | jq .phase

On a terminal the status is redrawn in place; elsewhere a line is printed for each change of phase or plan, for each
quarter of baseline and sweep, and for each straggler, report and switch. 'own time' is a pipeline's until it waits for
gradient synchronisation.
Ends when the planner forgets the job, when the job's own planner ends with it, or at Ctrl-C.
"""

_AWAY_S = 10.0  # an embedded planner that died comes back after some seconds
_LOOK_S = 0.3


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "watch",
        help="follow a running job",
        description="Follow a running job's status.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_job_argument(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object a line, at every change")
    add_planner_arguments(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print a job's status whenever it changes, until the job ends; the command's exit code."""
    endpoint = find_planner(args)
    show = _Json() if args.json else _on_terminal if sys.stdout.isatty() else _Lines()
    while True:
        try:
            _follow(args, endpoint, show)
            return 0
        except PlannerAwayError:
            if not endpoint.is_embedded:
                raise
        # A job's own planner ends with the job, or is started again within moments of its death.
        back = _await_planner(args)
        if back is None:
            print(f"perseus-dist: job {args.job}: its planner has ended, and most likely the job", file=sys.stderr)
            return 0
        endpoint = back


def _follow(args: argparse.Namespace, endpoint: Endpoint, show: "Callable[[pb.JobStatus], None]") -> None:
    with planner_calls(args, endpoint) as (planner, metadata):
        from perseus_dist.rpc.v1 import planner_pb2 as pb

        for status in planner.WatchJob(pb.WatchJobRequest(job_id=args.job), metadata=metadata):
            show(status)


def _await_planner(args: argparse.Namespace) -> Endpoint | None:
    """The planner of the job once it is back; None where it stays away."""
    until_s = time.monotonic() + _AWAY_S
    while time.monotonic() < until_s:
        time.sleep(_LOOK_S)
        with suppress(PlannerCallError):
            endpoint = find_planner(args)
            if not endpoint.is_embedded:
                return None
            with planner_calls(args, endpoint) as (planner, metadata):
                from perseus_dist.rpc.v1 import planner_pb2 as pb

                planner.ListJobs(pb.ListJobsRequest(), timeout=_AWAY_S, metadata=metadata)
            return endpoint
    return None


class _Json:
    """Every status, an object a line."""

    def __call__(self, status: "pb.JobStatus") -> None:
        from perseus_dist.cli.jobs.job_view import status_document

        print(json.dumps(status_document(status)), flush=True)


def _on_terminal(status: "pb.JobStatus") -> None:
    from perseus_dist.cli.jobs.job_view import format_jobs, format_pipelines, format_troubles
    from perseus_dist.cli.jobs.straggler_view import format_events, format_stragglers
    from perseus_dist.messages.progress_text import format_progress

    home_and_clear = "\x1b[H\x1b[2J"
    progress = format_progress(status)
    tables = "\n".join((format_jobs([status]) + progress, format_pipelines(status)))
    below = f"{format_troubles(status)}{format_stragglers(status)}{format_events(status)}"
    print(f"{home_and_clear}{tables}{below}", end="", flush=True)


class _Lines:
    """A line for each decision and each event; iterations alone are no news."""

    def __init__(self) -> None:
        from perseus_dist.messages.progress_text import ProgressSteps

        self._said: tuple[str, ...] = ()
        self._steps = ProgressSteps()
        self._sequence = 0  # of the newest event that was printed; a planner that begins anew ends the call

    def __call__(self, status: "pb.JobStatus") -> None:
        from perseus_dist.cli.jobs.job_view import format_target
        from perseus_dist.cli.jobs.straggler_view import format_event
        from perseus_dist.messages.progress_text import format_progress

        now_s = time.time()
        stragglers = "".join(f", {one.id}: pipeline {one.dp_rank} x {one.degree:g}" for one in status.stragglers)
        wanted = f"target {format_target(status.target)}{stragglers}"
        news = (f"{status.phase}: {status.reason}", f"table {status.table_revision}", wanted, *status.troubles)
        if news != self._said:
            self._said = news
            decided = f"table {status.table_revision}, switch {status.switch_revision}, {wanted}"
            _say(now_s, "\n  ".join((f"{news[0]} ({decided})", *status.troubles)))
        if self._steps.is_next(status):
            _say(now_s, f"{status.phase}: {format_progress(status)}")
        for event in status.events:
            if event.sequence > self._sequence:
                self._sequence = event.sequence
                _say(now_s - event.age_s, format_event(event))


def _say(at_s: float, line: str) -> None:
    print(f"{time.strftime('%H:%M:%S', time.localtime(at_s))} {line}", flush=True)
