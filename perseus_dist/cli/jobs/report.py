"""``perseus-dist report``: what a job took before the plan and under it, from what its agents left behind."""

import argparse
import json
from pathlib import Path

from perseus_dist.cli.number_options import whole
from perseus_dist.errors import PerseusError

_EPILOG = """\
example:
  deepspeed --perseus --perseus-report perseus-report train.py ...
  perseus-dist report perseus-report

'deepspeed --perseus' calls this by itself when the job has ended. It writes into the folder, as far as there is
something to say: report.html (everything in one file, for a browser), report.json, frontier.svg, timeline.svg (one
iteration before the plan and one under it, as measured), stragglers.svg (where a GPU was slow: each pipeline's time and
energy, and what was done about it), and trace.json, which https://ui.perfetto.dev opens. Of a job that still runs, or
that was killed, it reports what there is.
"""


class ReportOptionsError(PerseusError):
    """Options that do not go together."""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "report",
        help="write the savings report of a job",
        description="Write the savings report of a job into the folder that its agents measured into.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="what the job was given as --perseus-report")
    losses = parser.add_argument_group("losses", 'to compare bit by bit; JSON lines {"step": 3, "loss": 5.4321}')
    losses.add_argument("--losses", type=Path, metavar="FILE", help="of this job")
    losses.add_argument("--reference-losses", type=Path, metavar="FILE", help="of the same job without Perseus")
    parser.add_argument(
        "--clocks-left-locked",
        type=whole(0, 10**6, "how many: 0, 1, 2, ..."),
        metavar="N",
        help="GPUs that were found locked after the job, to be told",
    )
    parser.add_argument("--json", action="store_true", help="print report.json instead of the table")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Make the report of a run's folder; the command's exit code."""
    if (args.losses is None) != (args.reference_losses is None):
        raise ReportOptionsError("--losses and --reference-losses go together: give both or none")
    from perseus_dist.report.analysis.losses import losses_equal
    from perseus_dist.report.run_report import build_report, summary_text, write_report
    from perseus_dist.runlog.accounting.finish import finish_if_possible

    equal = None if args.losses is None else losses_equal(args.losses, args.reference_losses)
    report = build_report(args.folder, losses_equal=equal, clocks_left_locked=args.clocks_left_locked)
    report = write_report(report, args.folder)
    finish_if_possible(args.folder, is_final=False)
    if args.json:
        print(json.dumps(report.document()))
    else:
        print(summary_text(report))
        print(f"\n{args.folder / 'report.html'} written; open it in a browser")
    return 0
