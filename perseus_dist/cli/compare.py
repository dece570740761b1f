"""``perseus-dist compare``: the plan beside the baselines."""

import argparse
import json
from typing import Any

from perseus_dist.cli.deadline_option import add_deadline_arguments, deadline_ps_from_args
from perseus_dist.cli.problem_options import add_problem_arguments, problem_from_args, switch_latency_ps_from_args
from perseus_dist.cli.table import format_table
from perseus_dist.planning.comparison import ComparedPlan, compare
from perseus_dist.planning.frontier import plan_frontier
from perseus_dist.planning.replay import replay_all_max
from perseus_dist.units import j_from_uj, s_from_ps

_EPILOG = """\
example:
  perseus-dist compare profile.csv --schedule 1f1b --pp 4 --microbatches 16 --blocking-power-w 80 --slowdown 1.05

Slowdown and saving are against all-max, every computation at the maximum clock. Zeus-global has one clock for all GPUs,
Zeus-per-stage one for each stage; both are shown with the least energy no later than the deadline, which is the time of
all-max unless you give one, and with the least energy at any time. Where nothing meets the deadline, the fastest stands
in its place and says so. EnvPipe has a single plan.
"""
_COLUMNS = (  # header, key of a record, format
    ("plan", "name", "s"),
    ("time\n[s]", "time_s", ".6f"),
    ("slowdown\n[%]", "slowdown_percent", "+z.3f"),
    ("energy\n[J]", "energy_j", ".2f"),
    ("saving\n[%]", "saving_percent", ".2f"),
    ("power\n[W]", "power_w", ".1f"),
    ("clock changes\nper rank", "max_changes_per_rank", "d"),
)


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "compare",
        help="set the plan beside all-max, Zeus and EnvPipe",
        description="Print time and energy of an iteration under the plan and under the baselines.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_problem_arguments(parser)
    add_deadline_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Compare the plan with the baselines."""
    problem = problem_from_args(args)
    deadline_ps = deadline_ps_from_args(args, replay_all_max(problem).time_ps)
    frontier = plan_frontier(
        problem,
        switch_latency_ps=switch_latency_ps_from_args(args),
        deadlines_ps=[] if deadline_ps is None else [deadline_ps],
    )
    comparison = compare(frontier, deadline_ps=deadline_ps)
    num_gpus = problem.dag.schedule.num_ranks * problem.tensor_parallel
    records = [_record(plan) for plan in comparison.plans]
    if args.json:
        shown = {
            "source": args.profile,
            "num_gpus": num_gpus,
            "switch_latency_ms": args.switch_latency_ms,
            "deadline_s": None if deadline_ps is None else float(s_from_ps(deadline_ps)),
            "plans": records,
            "sweeps": {key: [_record(plan) for plan in sweep] for key, sweep in comparison.sweeps.items()},
        }
        print(json.dumps(shown))
        return 0
    print(format_table(_COLUMNS, records))
    print(
        f"One iteration of one pipeline of {num_gpus} GPUs that wait at blocking power until it ends, replayed on "
        f"measured times and energies; a clock change takes {args.switch_latency_ms:g} ms."
    )
    return 0


def _record(plan: ComparedPlan) -> dict[str, Any]:
    return {
        "plan": plan.key,
        "name": plan.name,
        "time_s": float(s_from_ps(plan.execution.time_ps)),
        "slowdown_percent": 100 * plan.slowdown_share,
        "energy_j": float(j_from_uj(plan.execution.total_uj)),
        "saving_percent": 100 * plan.saving_share,
        "power_w": plan.power_w,
        "max_changes_per_rank": int(plan.execution.changes.max()),
    }
