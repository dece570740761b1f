"""``perseus-dist accounting``: what jobs drew and saved, by user, project or job."""

import argparse
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from perseus_dist.cli.jobs.accounting.errors import AccountingError
from perseus_dist.number_text import read_real

if TYPE_CHECKING:
    from collections.abc import Sequence

_EPILOG = """\
example:
  perseus-dist accounting --since 7d
  perseus-dist accounting --since 2026-11-01 --until 2026-12-01 --by project --csv
  perseus-dist accounting --records perseus-report --by job
  perseus-dist accounting --finish perseus-report
  perseus-dist accounting --line perseus-report

Each run of a job that was given a report folder leaves its energy record there, energy-BEGIN.json; Slurm's epilog, as
in launch/slurm, collects them in one folder. Energy is in kWh in the table, in joules in CSV and JSON. The interval of
a saving is that of its measurement, added up without cancelling. Runs that were killed, and those that still run, are
"incomplete": what they drew is counted as far as it is known, and no saving of theirs.

--finish writes the record of a run that has ended, where its agents could not, and prints all of the folder, one a
line. It refuses a run whose agents wrote in the last 10 s, unless --ended says that the job's processes have ended:
then it waits up to 6 s for what is still written. --collect reads records from standard input into the folder of
--records, under the job's user, account and number that Slurm's epilog knows. --line is for the comment of a job in
Slurm: it waits up to 3 s for the last word of all ranks.
"""
_RECORDS = "/var/lib/perseus-dist/records"
_MAX_NAMED = 5
_UNITS_S = {"h": 3600.0, "d": 86400.0, "w": 604800.0}


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "accounting",
        help="sum up what jobs drew and saved, by user and project",
        description="Sum up the energy records of jobs by user, project or job.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--since", type=_time, metavar="TIME", help="runs that ended then or later: 7d, 12h, 2026-11-01 (UTC)"
    )
    parser.add_argument("--until", type=_time, metavar="TIME", help="runs that ended before")
    parser.add_argument("--by", choices=("user", "project", "job"), default="user", help="default: %(default)s")
    parser.add_argument(
        "--records",
        type=Path,
        metavar="DIR",
        help=f"records, or folders of reports, are searched for here and up to 8 folders below (default: "
        f"$PERSEUS_RECORDS, else {_RECORDS})",
    )
    actions = parser.add_mutually_exclusive_group()
    actions.add_argument("--csv", action="store_true", help="print CSV, in joules and seconds")
    actions.add_argument("--json", action="store_true", help="print one JSON object, with all records")
    actions.add_argument("--finish", type=Path, metavar="DIR", help="write the record of a run that is over")
    parser.add_argument(
        "--ended", action="store_true", help="with --finish: the job's processes have ended, as in Slurm's epilog"
    )
    actions.add_argument("--line", type=Path, metavar="DIR", help="print what a report's runs did, in one line")
    actions.add_argument("--collect", action="store_true", help="add the records on standard input to --records")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Sum up, finish or collect."""
    from perseus_dist.cli.jobs.accounting import records as files
    from perseus_dist.cli.jobs.accounting import view

    if args.ended and args.finish is None:
        raise AccountingError("--ended: goes with --finish alone")
    if args.finish is not None:
        print(files.finish(args.finish, has_ended=args.ended))
        return 0
    if args.line is not None:
        found = files.of_report(args.line)
        print(view.line_text(found.records))
        _say_skipped(found.skipped)
        return 0
    root: Path = args.records or Path(os.environ.get("PERSEUS_RECORDS") or _RECORDS)
    if args.collect:
        print(files.collect(root, os.environ))
        return 0
    if args.since is not None and args.until is not None and args.since >= args.until:
        raise AccountingError(f"--until: saw {args.until:%Y-%m-%d %H:%M}, expected a time after --since")
    found = files.find(root, args.since, args.until)
    records = found.records
    if args.csv:
        print(view.csv_text(records, args.by), end="")
    elif args.json:
        print(view.json_text(records, args.by, found.skipped))
    else:
        print(view.table_text(records, args.by), end="")
    _say_skipped(found.skipped)
    return 0


def _say_skipped(skipped: "Sequence[str]") -> None:
    """Name what is in no sum, so that a damaged record is not taken for none."""
    if skipped:
        more = f"; and {len(skipped) - _MAX_NAMED} more" if len(skipped) > _MAX_NAMED else ""
        named = "".join(letter if letter.isprintable() else "?" for letter in "; ".join(skipped[:_MAX_NAMED]))
        print(f"perseus-dist: {len(skipped)} not read and not counted: {named}{more}", file=sys.stderr)


def _time(text: str) -> datetime:
    try:
        if text[-1:] in _UNITS_S:
            return datetime.now(UTC) - timedelta(seconds=read_real(text[:-1], 0.0, 1e5) * _UNITS_S[text[-1]])
        at = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"saw {text[:40]!r}, expected a date as 2026-11-01, a time as 2026-11-01T08:00, or an age as 12h, 7d or 4w"
        ) from None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
