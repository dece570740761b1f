"""Actions of ``perseus-dist policy`` at a planner: ``set``, ``load-target``, ``price``, ``show`` and ``clear``."""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perseus_dist.cli.jobs.job_arguments import name, pattern, signal_file
from perseus_dist.cli.jobs.planner_client import (
    NODE_PLANNER,
    TIMEOUT_S,
    PlannerCallError,
    add_planner_arguments,
    node_planner,
    planner_calls,
)
from perseus_dist.cli.jobs.policies.budget_view import budget_document, format_budgets
from perseus_dist.cli.jobs.policies.load_target_file import LoadTargetRow, read_load_targets
from perseus_dist.cli.jobs.policies.load_target_setting import LoadTargetSetting
from perseus_dist.cli.jobs.policies.price_view import format_prices, price_document
from perseus_dist.cli.moment_option import moment
from perseus_dist.cli.number_options import real, watts, whole
from perseus_dist.errors import PerseusError
from perseus_dist.number_text import read_real

if TYPE_CHECKING:
    from perseus_dist.rpc.v1 import planner_pb2 as pb

_SET_EPILOG = """\
example:
  perseus-dist policy set hall-2 --watts 900000 --job 'llama-*' --job gpt --guard-band 0.02
  perseus-dist policy set fleet --max-slowdown 'prod-*=1.05' --weight 'prod-*=4'

Jobs of the group, those that are to come included, take slower plans so that all together draw no more than the cap;
their own targets stay the fastest that they run. A job without a frontier counts at full power. Without --watts load
targets alone cap the group. What cannot be kept is said, and the exit code is 1. Takes the role operate for these jobs.
"""
_LOAD_EPILOG = """\
example:
  perseus-dist policy load-target fleet --name peak-17h --watts 600000 \\
    --start 2026-11-24T17:00:00-05:00 --end 2026-11-24T20:00:00-05:00
  perseus-dist policy load-target fleet --file targets.csv

Between two moments the group of a budget draws no more than so many watts. One that is known to be impossible is
refused, unless it is best effort. A file is CSV with the columns name,start,end,watts,best_effort (yes or no); where
one of its load targets is refused, those before it are taken back where the planner lets them; the command says which
stay.
"""
_SHOW_EPILOG = "example:\n  perseus-dist policy show --json\n"
_CLEAR_EPILOG = """\
example:
  perseus-dist policy clear hall-2
  perseus-dist policy clear fleet --load-target peak-17h
  perseus-dist policy clear cheap --price
"""
_PRICE_EPILOG = """\
example:
  perseus-dist policy price cheap --job llama --signal day_ahead.csv --deadline 2026-11-27T08:00:00+01:00 \\
    --iterations 200000

The planner has each job go slower where energy is dear and faster where it is cheap, never faster than its own target,
so that it has done so many iterations by the deadline, which wins over prices. Where the signal says nothing of the
present, or the deadline is near, jobs are at their own targets, and that is said. A power budget may make jobs slower
still. The exit code is 1 where a deadline cannot be kept. Takes the role operate for these jobs.
"""


class LoadTargetOptionsError(PerseusError):
    """Options of ``policy load-target`` that do not go together."""


def add_budget_actions(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the actions."""

    def add(action: str, run: Callable[[argparse.Namespace], int], text: str, epilog: str) -> argparse.ArgumentParser:
        form = argparse.RawDescriptionHelpFormatter
        description = f"{text[0].upper()}{text[1:]}."
        parser = actions.add_parser(action, help=text, description=description, epilog=epilog, formatter_class=form)
        parser.set_defaults(run=run)
        return parser

    setting = add("set", run_set, "set a power budget for a group of jobs of a planner", _SET_EPILOG)
    setting.add_argument("name", type=name, metavar="NAME", help="of the budget; one of that name is replaced")
    _add_watts(setting, "that the group may draw; default: no limit but load targets")
    setting.add_argument(
        "--job",
        dest="patterns",
        action="append",
        default=[],
        type=pattern,
        metavar="PATTERN",
        help="jobs of this name, with * and ? as wildcards; may be repeated; default: all jobs",
    )
    setting.add_argument(
        "--objective",
        choices=["total", "max-min"],
        default="total",
        help="the least sum of weighted slowdowns, or the least of the largest one (default: %(default)s)",
    )
    setting.add_argument(
        "--guard-band",
        type=real(0, 0.99, "a share from 0 to 0.99"),
        default=0.0,
        metavar="SHARE",
        help="share of the cap to leave free for peaks and probes (default: 0)",
    )
    setting.add_argument(
        "--weight",
        dest="weights",
        action="append",
        default=[],
        type=_pattern_value("weight", 1e-6),
        metavar="PATTERN=W",
        help="by which slowdowns of such jobs count; may be repeated, the first that fits counts; default: 1",
    )
    setting.add_argument(
        "--max-slowdown",
        dest="max_slowdowns",
        action="append",
        default=[],
        type=_pattern_value("slowdown", 1.0),
        metavar="PATTERN=X",
        help="longest iteration of such jobs, in times of one at full clocks; may be repeated; default: no limit",
    )
    load = add("load-target", run_load_target, "cap the group of a budget between two moments", _LOAD_EPILOG)
    load.add_argument("budget", type=name, metavar="BUDGET", help="whose group")
    load.add_argument("--file", type=Path, metavar="CSV", help="of load targets, instead of one by the options below")
    load.add_argument("--name", type=name, metavar="NAME", help="of the load target; one of that name is replaced")
    _add_watts(load, "that the group may draw")
    load.add_argument("--start", type=moment, metavar="TIME", help="begin, as 2026-11-24T17:00:00-05:00")
    load.add_argument("--end", type=moment, metavar="TIME", help="end")
    load.add_argument("--best-effort", action="store_true", help="accept it although it is not known to be possible")
    show = add("show", run_show, "show a planner's power budgets and price policies", _SHOW_EPILOG)
    clear = add("clear", run_clear, "clear a power budget, a load target of it, or a price policy", _CLEAR_EPILOG)
    clear.add_argument("name", type=name, metavar="NAME", help="of the budget, or with --price of the price policy")
    part = clear.add_mutually_exclusive_group()
    part.add_argument("--load-target", type=name, metavar="NAME", help="clear this load target alone")
    part.add_argument("--price", action="store_true", help="clear the price policy of this name")
    price = add("price", run_price, "have jobs follow a price, or carbon, to a deadline", _PRICE_EPILOG)
    price.add_argument("name", type=name, metavar="NAME", help="of the policy; one of that name is replaced")
    price.add_argument(
        "--job", dest="jobs", action="append", required=True, type=name, metavar="NAME", help="may be repeated"
    )
    price.add_argument(
        "--signal",
        required=True,
        type=signal_file,
        metavar="FILE",
        help="name of a file in the folder of 'planner --signals'",
    )
    price.add_argument(
        "--deadline", required=True, type=moment, metavar="TIME", help="end, as 2026-11-24T17:00:00-05:00"
    )
    price.add_argument(
        "--iterations",
        required=True,
        type=whole(1, 10**12, "a number of iterations from 1 to 1000000000000"),
        metavar="N",
        help="that each of the jobs is to do from now until the deadline",
    )
    for parser in (setting, load, show, clear, price):
        parser.add_argument("--json", action="store_true", help="print one JSON object")
        add_planner_arguments(parser, NODE_PLANNER)


def run_set(args: argparse.Namespace) -> int:
    """Set a budget."""
    with planner_calls(args, node_planner(args)) as (planner, metadata):
        from perseus_dist.rpc.v1 import planner_pb2 as pb

        budget = pb.Budget(
            name=args.name,
            watts=args.watts or 0.0,
            jobs=args.patterns,
            objective=args.objective,
            guard_band=args.guard_band,
            weights=[pb.PatternValue(pattern=pattern, value=value) for pattern, value in args.weights],
            max_slowdowns=[pb.PatternValue(pattern=pattern, value=value) for pattern, value in args.max_slowdowns],
        )
        status = planner.SetBudget(pb.SetBudgetRequest(budget=budget), timeout=TIMEOUT_S, metadata=metadata)
    return _shown(args, status, only=args.name)


def run_load_target(args: argparse.Namespace) -> int:
    """Set load targets."""
    rows = _load_targets(args)
    if over := next(
        (row for row in rows if row.end_s <= time.time()), None
    ):  # the planner would, with others set by then
        raise LoadTargetOptionsError(
            f"load target {over.name} is over already; give those that are not, and none is set"
        )
    setting = LoadTargetSetting(args.budget, rows)
    try:
        with planner_calls(args, node_planner(args)) as (planner, metadata):
            status = setting.set_all(planner, metadata)
    except PlannerCallError as error:
        raise setting.with_outcome(error) from error
    except KeyboardInterrupt:
        if setting.outcome:
            print(f"perseus-dist: {setting.outcome.removeprefix('; ')}", file=sys.stderr, flush=True)
        raise
    return _shown(args, status, only=args.budget)


def run_price(args: argparse.Namespace) -> int:
    """Set a price policy."""
    with planner_calls(args, node_planner(args)) as (planner, metadata):
        from perseus_dist.rpc.v1 import planner_pb2 as pb

        policy = pb.PricePolicy(
            name=args.name,
            jobs=args.jobs,
            signal=args.signal,
            deadline_s=args.deadline.timestamp(),
            iterations=args.iterations,
        )
        status = planner.SetPricePolicy(pb.SetPricePolicyRequest(policy=policy), timeout=TIMEOUT_S, metadata=metadata)
    return _shown(args, status, price=args.name)


def run_show(args: argparse.Namespace) -> int:
    """Print all budgets and price policies; the command's exit code."""
    with planner_calls(args, node_planner(args)) as (planner, metadata):
        from perseus_dist.rpc.v1 import planner_pb2 as pb

        status = planner.GetPolicy(pb.GetPolicyRequest(), timeout=TIMEOUT_S, metadata=metadata)
    return _shown(args, status, only=None)


def run_clear(args: argparse.Namespace) -> int:
    """Remove a budget, a load target of it, or a price policy; the command's exit code."""
    with planner_calls(args, node_planner(args)) as (planner, metadata):
        from perseus_dist.rpc.v1 import planner_pb2 as pb

        if args.price:
            of_price = pb.ClearPricePolicyRequest(name=args.name)
            status = planner.ClearPricePolicy(of_price, timeout=TIMEOUT_S, metadata=metadata)
        elif args.load_target is None:
            request = pb.ClearBudgetRequest(name=args.name)
            status = planner.ClearBudget(request, timeout=TIMEOUT_S, metadata=metadata)
        else:
            of_target = pb.ClearLoadTargetRequest(budget=args.name, name=args.load_target)
            status = planner.ClearLoadTarget(of_target, timeout=TIMEOUT_S, metadata=metadata)
    return _shown(args, status, only=None)


def _shown(args: argparse.Namespace, status: "pb.PolicyStatus", only: str | None = "", price: str = "") -> int:
    """Print the budget or the price policy of a name, or all; 1 where a cap or a deadline is not kept."""
    budgets = [budget for budget in status.budgets if only in (None, budget.budget.name)]
    prices = [one for one in status.prices if only is None or one.policy.name == price]
    if args.json:
        found = {"budgets": [*map(budget_document, budgets)], "prices": [*map(price_document, prices)]}
        print(json.dumps(found))
    else:
        texts = [*([format_budgets(budgets)] if budgets else []), *([format_prices(prices)] if prices else [])]
        print("\n".join(texts) or "no power budgets and no price policies\n", end="")
    is_on_time = all(job.is_on_time for one in prices for job in one.jobs)
    return 0 if is_on_time and all(budget.is_met for budget in budgets) else 1


def _load_targets(args: argparse.Namespace) -> list[LoadTargetRow]:
    one = (args.name, args.start, args.end, args.watts)
    if args.file is not None:
        if any(value is not None for value in one) or args.best_effort:
            raise LoadTargetOptionsError("saw --file and options of one load target, expected either")
        return read_load_targets(args.file)
    if any(value is None for value in one):
        raise LoadTargetOptionsError("saw too few options, expected --name, --watts, --start and --end, or --file")
    return [
        LoadTargetRow(
            name=args.name,
            start_s=args.start.timestamp(),
            end_s=args.end.timestamp(),
            watts=args.watts,
            best_effort=args.best_effort,
        )
    ]


def _add_watts(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--watts", type=watts, metavar="W", help=text)


def _pattern_value(what: str, low: float) -> Callable[[str], tuple[str, Any]]:
    def parse(text: str) -> tuple[str, Any]:
        jobs, _, value = text.rpartition("=")
        try:
            return pattern(jobs), read_real(value, low, 1e6)
        except (ValueError, argparse.ArgumentTypeError):
            expected = f"PATTERN=VALUE, a {what} from {low:g} to 1e+06"
            raise argparse.ArgumentTypeError(f"saw {text[:80]!r}, expected {expected}") from None

    return parse
