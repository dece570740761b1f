"""``perseus-dist lookup``: the plan for a deadline or a straggler, from a saved frontier."""

import argparse
import json

from perseus_dist.cli.output_option import Output
from perseus_dist.cli.planning.deadline_option import (
    add_deadline_arguments,
    add_fastest_argument,
    deadline_ps_from_args,
    naming_deadline_option,
    positive_number,
)
from perseus_dist.library.plan_table import format_plans, interval_note
from perseus_dist.planning.frontier.frontier import Frontier
from perseus_dist.planning.frontier.frontier_file import load_frontier
from perseus_dist.planning.frontier.plan import Plan, plan_document, plan_figures, plan_for_deadline, plan_for_straggler
from perseus_dist.planning.output_file import write_output
from perseus_dist.units import deadline_ps_from_s, s_from_ps

_EPILOG = """\
example:
  perseus-dist lookup plans/frontier.npz --slowdown 1.05
  perseus-dist lookup plans/frontier.npz --straggler-s 3.4 --out plan.json

A deadline gets the plan with the least energy within it. With a straggler, everybody waits in any case until its
iteration ends at T': energies count until then, also that of all-max, and the plan may be slower than T*.
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "lookup",
        help="look a plan up in a saved frontier",
        description="Look up the plan for a deadline or a straggler in the frontier that 'perseus-dist plan' saved.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("frontier", metavar="FRONTIER.npz", help="what 'perseus-dist plan --out DIR' saved in DIR")
    group = add_deadline_arguments(parser, required=True)
    add_fastest_argument(group)
    group.add_argument(
        "--straggler-s", type=positive_number, metavar="T'", help="iteration time of a straggler, in seconds"
    )
    parser.add_argument("--out", action=Output, metavar="FILE", help="write the plan into this JSON file")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Look up a plan."""
    plan = _plan(load_frontier(args.frontier), args)
    if args.out is not None:
        write_output(args.out, json.dumps(plan_document(plan)).encode() + b"\n")
    if args.json:
        print(json.dumps({"source": args.frontier, **plan_figures(plan)}))
        return 0
    print(format_plans({"plan": plan}), end="")
    if note := interval_note(plan.frontier.problem):
        print(f"\n{note}")
    if plan.t_prime_ps:
        print(f"\nEnergies count until the straggler's iteration ends at {float(s_from_ps(plan.t_prime_ps)):.6f} s.")
    return 0


def _plan(frontier: Frontier, args: argparse.Namespace) -> Plan:
    with naming_deadline_option(args):
        if args.fastest:
            return plan_for_deadline(frontier, frontier.fastest_ps)
        if args.straggler_s is not None:
            return plan_for_straggler(frontier, deadline_ps_from_s(args.straggler_s))
        deadline_ps = deadline_ps_from_args(args, frontier.baseline.time_ps)
        assert deadline_ps is not None  # the parser asks for one of the four
        return plan_for_deadline(frontier, deadline_ps)
