"""``perseus-dist policy simulate``: what prices and caps over a horizon would make of jobs with saved frontiers."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from perseus_dist.cli.jobs.policies.load_target_file import read_load_targets
from perseus_dist.cli.moment_option import moment
from perseus_dist.cli.number_options import real, watts
from perseus_dist.cli.planning.policy_jobs import JOB_HELP, job_text, members_of
from perseus_dist.cli.planning.price_options import add_work_options, expected_prices, pieces_of, slots_of
from perseus_dist.errors import PlanningError
from perseus_dist.library.tables import format_table
from perseus_dist.policies.forecast_error import forecast_error
from perseus_dist.policies.pace import Slot
from perseus_dist.policies.signals import JOULES_PER_KWH
from perseus_dist.policies.what_if import Cap, Outcome, Work, always_fastest, constant_paces, follow_policies

_EPILOG = """\
example:
  perseus-dist policy simulate big/frontier.npz,pipelines=8 small/frontier.npz --iterations 40000 --hours 24 \\
      --signal examples/signals/day_ahead.csv --watts 60000 --load-targets peaks.csv

Each job is to do so many iterations in so many hours. Under the policies it follows the prices, and all together keep
the cap and the load targets (CSV, as 'policy load-target --file' reads it); without --signal jobs are as fast as the
caps allow. Beside that: all at full speed under plans for T_min, and each at the constant pace that finishes when it
does under the policies, both without caps. What is late or over a cap is said, and the exit code is 1.
"""


def add_simulate(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the action."""
    parser = actions.add_parser(
        "simulate",
        help="what prices and caps would come to over some hours",
        description="Play price policies, power budgets and load targets for saved frontiers; nothing is set.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("jobs", nargs="+", type=job_text, metavar="JOB", help=JOB_HELP)
    add_work_options(parser, "of each job, to be done")
    parser.add_argument("--signal", type=Path, metavar="FILE", help="prices or carbon intensities to follow")
    parser.add_argument("--forecast", action="store_true", help="go by the signal's forecasts, and pay its values")
    parser.add_argument(
        "--watts",
        type=watts,
        metavar="W",
        help="that all may draw at any time",
    )
    parser.add_argument("--load-targets", type=Path, metavar="FILE", help="caps between two moments")
    parser.add_argument(
        "--guard-band",
        type=real(0, 0.99, "a share from 0 to 0.99"),
        default=0.0,
        metavar="SHARE",
        help="share of each cap to leave free for peaks (default: 0)",
    )
    parser.add_argument(
        "--start",
        type=moment,
        metavar="TIME",
        help="begin, as 2026-11-24T00:00:00-05:00 (default: the signal's, or the first load target's)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=_run)


def _moment_of(unix_s: float) -> datetime:
    try:
        return datetime.fromtimestamp(unix_s).astimezone()
    except (ValueError, OverflowError, OSError):  # at an end of the calendar, which the offset from UTC leaves
        raise PlanningError(
            f"--load-targets: saw a begin {unix_s:.0f} s after 1970, expected one in the calendar"
        ) from None


def _run(args: argparse.Namespace) -> int:
    if args.signal is None and args.watts is None and args.load_targets is None:
        raise PlanningError("saw no policy, expected --signal, --watts or --load-targets")
    if args.forecast and args.signal is None:
        raise PlanningError("--forecast: saw no --signal, expected one with forecasts")
    works = [Work(member=member, iterations=args.iterations) for member in members_of(args.jobs)]
    targets = read_load_targets(args.load_targets) if args.load_targets is not None else []
    start = args.start
    if start is None and args.signal is None and targets:
        start = _moment_of(min(target.start_s for target in targets))
    horizon_s = 3600 * args.hours
    pieces = pieces_of(args) if args.signal is not None else ()
    if start is None and pieces:
        start = pieces[0].start
    slots = slots_of(pieces) or [Slot(duration_s=horizon_s, price=0.0)]
    begin_s = start.timestamp() if start is not None else 0.0
    caps = [
        Cap(start_s=target.start_s - begin_s, end_s=target.end_s - begin_s, watts=target.watts) for target in targets
    ]
    if args.watts is not None:
        caps.append(Cap(start_s=0.0, end_s=horizon_s, watts=args.watts))
    policies = follow_policies(
        works,
        slots,
        caps,
        guard_band=args.guard_band,
        follows_prices=args.signal is not None,
        forecast=(lambda first: expected_prices(pieces[first:])) if args.forecast else None,
    )
    finishes_s = [horizon_s if job.finish_s is None else job.finish_s for job in policies.jobs]
    ways = {
        "always T_min": always_fastest(works, slots, caps, guard_band=args.guard_band),
        "constant": constant_paces(works, slots, finishes_s, caps, guard_band=args.guard_band),
        "policies": policies,
    }
    is_kept = policies.finish_s is not None and not policies.over_s
    error = forecast_error(pieces)
    if args.json:
        document: dict[str, Any] = {
            "start": start.isoformat() if start is not None else None,
            "hours": args.hours,
            "ways": [_way_row(name, way, ways["constant"], is_priced=bool(pieces)) for name, way in ways.items()],
            "jobs": _job_rows(works, policies, is_priced=bool(pieces)),
            "forecast_error": None if error is None else asdict(error),
            "is_kept": is_kept,
        }
        print(json.dumps(document))
        return 0 if is_kept else 1
    _print(works, ways, is_priced=bool(pieces), has_caps=bool(caps))
    if error is not None:
        print(error.text)
    for work, job in zip(works, policies.jobs, strict=True):
        if job.finish_s is None:
            print(f"{job.name}: {job.done:,.0f} of {work.iterations:,.0f} iterations are done in {args.hours:g} hours")
    if policies.over_s:
        band = f" with a guard band of {100 * args.guard_band:g} %" if args.guard_band else ""
        print(f"the caps cannot be kept{band} for {policies.over_s / 3600:.2f} hours: jobs are at their slowest then")
    return 0 if is_kept else 1


def _way_row(name: str, way: Outcome, constant: Outcome, *, is_priced: bool) -> dict[str, Any]:
    cost_percent = 100 * (way.cost - constant.cost) / abs(constant.cost) if constant.cost else 0.0
    return {
        "way": name,
        "hours": None if way.finish_s is None else way.finish_s / 3600,
        "energy_kwh": way.energy_j / JOULES_PER_KWH,
        "energy_percent": 100 * (way.energy_j / constant.energy_j - 1),
        "cost": way.cost if is_priced else None,
        "cost_percent": cost_percent if is_priced else None,
        "peak_w": way.peak_w,
        "hours_over_cap": way.over_s / 3600,
    }


def _job_rows(works: Sequence[Work], policies: Outcome, *, is_priced: bool) -> list[dict[str, Any]]:
    return [
        {
            "job": job.name,
            "iterations": job.done,
            "hours": None if job.finish_s is None else job.finish_s / 3600,
            "slowdown_percent": None
            if job.finish_s is None
            else 100 * (job.finish_s / (work.iterations * work.member.points.full_time_s) - 1),
            "energy_kwh": job.energy_j / JOULES_PER_KWH,
            "cost": job.cost if is_priced else None,
        }
        for work, job in zip(works, policies.jobs, strict=True)
    ]


def _print(works: Sequence[Work], ways: dict[str, Outcome], *, is_priced: bool, has_caps: bool) -> None:
    """Two tables: all jobs each way, and each job under the policies; only with columns that say something."""
    late = {"hours": "late", "slowdown_percent": "late"}
    columns = [("pace", "way", "s"), ("hours", "hours", "s"), ("energy [kWh]", "energy_kwh", ",.2f")]
    columns += [("against constant [%]", "energy_percent", "+z.2f")]
    if is_priced:
        columns += [("cost", "cost", ",.4g"), ("against constant [%]", "cost_percent", "+z.2f")]
    columns += [("peak [W]", "peak_w", ",.0f")]
    if has_caps:
        columns += [("hours over a cap", "hours_over_cap", ".2f")]
    shown = [_way_row(name, way, ways["constant"], is_priced=is_priced) for name, way in ways.items()]
    print(format_table(columns, [_texts(row, late) for row in shown]))
    columns = [("job", "job", "s"), ("hours", "hours", "s"), ("slowdown [%]", "slowdown_percent", "s")]
    columns += [("energy [kWh]", "energy_kwh", ",.2f")] + ([("cost", "cost", ",.4g")] if is_priced else [])
    print(format_table(columns, [_texts(row, late) for row in _job_rows(works, ways["policies"], is_priced=is_priced)]))


def _texts(row: dict[str, Any], late: dict[str, str]) -> dict[str, Any]:
    """Hours and slowdowns as text, since there are none of a job that is late."""
    texts = {key: word if row[key] is None else f"{row[key]:z.2f}" for key, word in late.items() if key in row}
    return {**row, **texts}
