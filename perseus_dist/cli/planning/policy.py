"""``perseus-dist policy``: what a power budget, or a price of energy over time, makes of jobs with saved frontiers."""

import argparse
import json
from pathlib import Path
from typing import Any

from perseus_dist.cli.jobs.policies.budgets import add_budget_actions
from perseus_dist.cli.moment_option import moment
from perseus_dist.cli.number_options import real, watts
from perseus_dist.cli.planning.policy_jobs import JOB_HELP, job_text, member_of, members_of
from perseus_dist.cli.planning.policy_simulate import add_simulate
from perseus_dist.cli.planning.price_options import add_work_options, expected_prices, pieces_of, slots_of
from perseus_dist.library.tables import format_table
from perseus_dist.policies.pace import Pace, constant_pace, pace
from perseus_dist.policies.power_budget import Objective, share_power
from perseus_dist.policies.rolling import rolling_pace
from perseus_dist.policies.signals import JOULES_PER_KWH

_SHARE_EPILOG = """\
example:
  perseus-dist policy share big/frontier.npz,pipelines=8 small/frontier.npz,weight=2,slowdown=1.1 --watts 60000

Each job takes one of its plans, so that all together draw no more than the cap. Slowdowns are against full clocks,
times the job's weight; their sum is least, and the last line says what no choice of plans can be better than. With
--objective max-min the largest of them is least. What cannot be kept is said, and the exit code is 1.
"""
_PACE_EPILOG = """\
example:
  perseus-dist policy pace plans/frontier.npz --signal examples/signals/day_ahead.csv --iterations 55000 --hours 24

The cheapest way to so many iterations in so many hours: slower where energy is dear, faster where it is cheap. Beside
it full speed, and the constant pace that finishes at the same time. With --forecast the way is planned anew in each
slot by the forecasts of the file, and what it then cost is shown as well. A signal is CSV (timestamp,duration,value
and forecast or hist; minutes, per kWh), the JSON of Electricity Maps, UK Carbon Intensity or OpenEI's tariffs, or a
file in .toml that says which provider to ask.
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    form = argparse.RawDescriptionHelpFormatter
    parser = subparsers.add_parser(
        "policy",
        help="power budgets for jobs, and prices to follow",
        description="Power budgets for the jobs of a planner, and what budgets and prices make of saved frontiers.",
        epilog="example:\n  perseus-dist policy set --help\n  perseus-dist policy share --help\n",
        formatter_class=form,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    share = actions.add_parser(
        "share",
        help="share a power budget between jobs",
        description="Choose a plan for each job, so that all keep a power budget.",
        epilog=_SHARE_EPILOG,
        formatter_class=form,
    )
    share.add_argument("jobs", nargs="+", type=job_text, metavar="JOB", help=JOB_HELP)
    share.add_argument(
        "--watts",
        type=watts,
        required=True,
        metavar="W",
        help="that all may draw",
    )
    share.add_argument(
        "--objective", choices=[*Objective], default=Objective.TOTAL, help="what is least (default: %(default)s)"
    )
    share.add_argument(
        "--guard-band",
        type=real(0, 0.99, "a share from 0 to 0.99"),
        default=0.0,
        metavar="SHARE",
        help="share of the cap to leave free for peaks (default: 0)",
    )
    share.add_argument("--json", action="store_true", help="print one JSON object")
    share.set_defaults(run=_run_share)
    paced = actions.add_parser(
        "pace",
        help="the cheapest pace while a price changes",
        description="The cheapest pace of a job while the price of its energy, or its carbon, changes.",
        epilog=_PACE_EPILOG,
        formatter_class=form,
    )
    paced.add_argument("job", type=job_text, metavar="JOB", help=JOB_HELP)
    paced.add_argument("--signal", type=Path, required=True, metavar="FILE", help="prices or carbon intensities")
    add_work_options(paced, "to be done")
    paced.add_argument(
        "--start", type=moment, metavar="TIME", help="begin, as 2026-11-24T00:00:00-05:00 (default: the signal's)"
    )
    paced.add_argument("--forecast", action="store_true", help="also go by the signal's forecasts")
    paced.add_argument("--json", action="store_true", help="print one JSON object")
    paced.set_defaults(run=_run_pace)
    add_simulate(actions)
    add_budget_actions(actions)


def _run_share(args: argparse.Namespace) -> int:
    members, objective = members_of(args.jobs), Objective(args.objective)
    shares = share_power(members, args.watts, objective=objective, guard_band=args.guard_band)
    rows = [
        {
            "job": member.name,
            "slowdown_percent": 100 * member.points.slowdown(point),
            "time_s": member.points.times_s[point],
            "power_w": member.points.powers_w[point],
            "full_power_w": member.points.full_power_w,
        }
        for member, point in zip(members, shares.points, strict=True)
    ]
    if args.json:
        shown: dict[str, Any] = {
            "jobs": rows,
            "power_w": shares.power_w,
            "cap_w": shares.cap_w,
            "usable_w": shares.usable_w,
            "least_power_w": shares.least_power_w,
            "objective": str(objective),
            "weighted_slowdown": shares.cost,
            "weighted_slowdown_bound": shares.cost_bound,
            "slowdown_per_w": shares.slowdown_per_w,
            "is_met": shares.is_met,
        }
        print(json.dumps(shown))
        return 0 if shares.is_met else 1
    columns = (
        ("job", "job", "s"),
        ("slowdown [%]", "slowdown_percent", ".2f"),
        ("iteration [s]", "time_s", ".4f"),
        ("power [W]", "power_w", ",.0f"),
        ("at full clocks [W]", "full_power_w", ",.0f"),
    )
    print(format_table(columns, rows))
    what = "largest" if objective is Objective.MAX_MIN else "sum of"
    print(
        f"{shares.power_w:,.0f} W of {shares.usable_w:,.0f} W; {what} weighted slowdowns {100 * shares.cost:.3f} %, "
        f"at best {100 * shares.cost_bound:.3f} %"
    )
    if not shares.is_met:
        band = f" with a guard band of {100 * args.guard_band:g} %" if args.guard_band else ""
        print(f"the cap cannot be kept{band}: at their slowest these jobs draw {shares.least_power_w:,.0f} W")
    return 0 if shares.is_met else 1


def _run_pace(args: argparse.Namespace) -> int:
    member = member_of(args.job)
    points = member.points if member.max_slowdown is None else member.points.no_slower_than(member.max_slowdown)
    pieces = pieces_of(args)
    slots = slots_of(pieces)
    best = pace(points, slots, args.iterations)
    ways = {
        "full speed": constant_pace(points, slots, args.iterations, args.iterations * points.times_s[0]),
        "constant": constant_pace(points, slots, args.iterations, best.finish_s),
        "cheapest": best,
    }
    if args.forecast:
        ways["by forecasts"] = rolling_pace(
            points, slots, args.iterations, lambda first: expected_prices(pieces[first:])
        )
    is_done = best.iterations >= (1 - 1e-9) * args.iterations
    rows = [_row(name, way, ways["constant"]) for name, way in ways.items()]
    if args.json:
        print(json.dumps({"job": member.name, "paces": rows, "is_done": is_done}))
        return 0 if is_done else 1
    columns = (
        ("pace", "pace", "s"),
        ("hours", "hours", ".2f"),
        ("energy [kWh]", "energy_kwh", ",.2f"),
        ("cost", "cost", ",.4g"),
        ("against constant [%]", "cost_percent", "+z.2f"),
    )
    print(format_table(columns, rows))
    if not is_done:
        print(f"{best.iterations:,.0f} of {args.iterations:,.0f} iterations can be done in {args.hours:g} hours")
    return 0 if is_done else 1


def _row(name: str, way: Pace, constant: Pace) -> dict[str, str | float]:
    return {
        "pace": name,
        "hours": way.finish_s / 3600,
        "energy_kwh": way.energy_j / JOULES_PER_KWH,
        "cost": way.cost,
        "cost_percent": 100 * (way.cost - constant.cost) / abs(constant.cost) if constant.cost else 0.0,
    }
