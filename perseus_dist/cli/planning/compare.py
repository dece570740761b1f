"""``perseus-dist compare``: the plan beside the baselines."""

import argparse
import json

from perseus_dist.cli.planning.deadline_option import add_deadline_arguments, deadline_ps_from_args
from perseus_dist.cli.planning.problem_options import (
    add_problem_arguments,
    changes_text,
    problem_from_args,
    switch_latency_ps_from_args,
)
from perseus_dist.library.comparison import COLUMNS, Comparison
from perseus_dist.library.tables import format_table
from perseus_dist.planning.baselines.comparison import compare
from perseus_dist.planning.frontier.frontier import plan_frontier
from perseus_dist.planning.frontier.plan import latency_figures
from perseus_dist.planning.frontier.replay import replay_all_max
from perseus_dist.units import s_from_ps

_EPILOG = """\
example:
  perseus-dist compare profile.csv --schedule 1f1b --pp 4 --microbatches 16 --blocking-power-w 80 --slowdown 1.05

Slowdown and saving are against all-max, every computation at the maximum clock. Zeus-global has one clock for all GPUs,
Zeus-per-stage one for each stage; both are shown with the least energy no later than the deadline, which is T_min, the
time of all-max, unless you give one, and with the least energy at any time. Where nothing meets the deadline, the
fastest stands in its place and says so. EnvPipe has a single plan. perseus-dist by rank and by phase share clocks, as
'perseus-dist plan --granularity' does; where clocks of a rank's computations differ they are left out.
"""


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
    latency_ps = switch_latency_ps_from_args(args)
    deadline_ps = deadline_ps_from_args(args, replay_all_max(problem, switch_latency_ps=latency_ps).time_ps)
    frontier = plan_frontier(
        problem,
        switch_latency_ps=latency_ps,
        deadlines_ps=[] if deadline_ps is None else [deadline_ps],
    )
    comparison = Comparison(compare(frontier, deadline_ps=deadline_ps))
    num_gpus = problem.dag.schedule.num_ranks * problem.tensor_parallel
    records = [plan._asdict() for plan in comparison.plans]
    if args.json:
        shown = {
            "source": args.profile,
            "num_gpus": num_gpus,
            **latency_figures(problem, latency_ps),
            "deadline_s": None if deadline_ps is None else float(s_from_ps(deadline_ps)),
            "plans": records,
            "sweeps": {key: [plan._asdict() for plan in sweep] for key, sweep in comparison.sweeps.items()},
        }
        print(json.dumps(shown))
        return 0
    print(format_table(COLUMNS, records))
    print(
        f"One iteration of one pipeline of {num_gpus} GPUs that wait at blocking power until it ends, replayed on "
        f"measured times and energies; {changes_text(problem, args)}."
    )
    return 0
