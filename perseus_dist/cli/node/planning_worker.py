"""``perseus-dist planning-worker``: plan for the planners of a database, and nothing else."""

import argparse
import asyncio
import logging

from perseus_dist.cli.node.log_format import add_json_option, add_log_option, begin_log, print_served
from perseus_dist.cli.node.planner import add_store_options, check_store, store_address
from perseus_dist.cli.number_options import whole
from perseus_dist.cli.output_option import Output
from perseus_dist.planning.output_file import check_writable

_log = logging.getLogger(__name__)

_EPILOG = """\
example:
  perseus-dist planning-worker --store postgresql://perseus@db.example/perseus --workers 4

Planners on the database plan by themselves while their workers are free, and put what would wait into its queue: any
of them whose workers have nothing to do takes it from there, and so do processes like this one, of the same version,
on any machine that reaches the database. Add as many as jobs wait for plans, without adding planners.
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "planning-worker",
        help="plan for all planners on a PostgreSQL database",
        description="Plan for all planners on a PostgreSQL database, until SIGTERM.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_store_options(parser, what="plan for the planners that keep their jobs", is_required=True)
    parser.add_argument(
        "--workers",
        type=whole(1, 256, "a number from 1 to 256"),
        default=2,
        metavar="N",
        help="requests that are planned at once; of several workers one takes urgent ones alone (default: %(default)s)",
    )
    parser.add_argument(
        "--alive-file",
        action=Output,
        metavar="FILE",
        help="touch this file every two seconds, for probes: health --planning-worker FILE",
    )
    add_log_option(parser)
    add_json_option(parser, "store, workers, pid, version")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Plan until SIGTERM.

    Returns:
        0.

    Raises:
        PlannerOptionsError: psycopg is missing.
        StoreError: The address or the user's rights are of no use.
        OutputError: The file for probes cannot be written.
    """
    check_store(args)
    if args.alive_file is not None:
        check_writable(args.alive_file)
    from perseus_dist.cli.settings.defaults import log_sources
    from perseus_dist.planner.worker.shared.queue_process import serve_queue

    begin_log(args.log_format, text="%(asctime)s %(levelname)s %(message)s")
    log_sources(args, _log)

    def on_serving(store: str) -> None:
        if args.json:
            print_served(command="planning-worker", store=store, workers=args.workers)

    asyncio.run(serve_queue(store_address(args), args.workers, on_serving, alive_file=args.alive_file))
    return 0
