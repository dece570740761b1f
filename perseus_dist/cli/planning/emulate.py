"""``perseus-dist emulate``: the energy of a whole data-parallel job, without and with a straggler."""

import argparse
import json

from perseus_dist.cli.number_options import real
from perseus_dist.cli.planning.problem_options import (
    add_problem_arguments,
    changes_text,
    problem_from_args,
    switch_latency_ps_from_args,
)
from perseus_dist.cli.planning.schedule_options import positive_int
from perseus_dist.library.arguments import MAX_STRAGGLER
from perseus_dist.library.emulation import PLAN_COLUMNS, STRAGGLER_COLUMNS, Emulation, size_text
from perseus_dist.library.tables import format_table
from perseus_dist.planning.emulation import DIFFERENCES_FROM_PUBLISHED
from perseus_dist.planning.frontier.frontier import plan_frontier
from perseus_dist.planning.frontier.plan import latency_figures
from perseus_dist.planning.frontier.replay import replay_all_max

_EPILOG = """\
example:
  perseus-dist emulate profile.csv --schedule 1f1b --pp 4 --microbatches 16 --blocking-power-w 80 \\
      --pipelines 128 --straggler 1.05,1.1,1.2,1.5

All pipelines are equal, and one of them is R times slower, at the same average power. The iteration then lasts
T' = R x the time of all-max, whatever the others do; they draw blocking power until the straggler is done. Savings are
against all-max with the same straggler, and the straggler counts:

  intrinsic   every pipeline runs the plan for T_min, no later than all-max, as it does without a straggler
  extrinsic   what all others save on top by changing to the plan for T'
  together    the sum of both
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "emulate",
        help="add up the energy of a data-parallel job with a straggler",
        description="Add up the energy of a data-parallel job, without and with a straggler.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_problem_arguments(parser)
    parser.add_argument("--pipelines", type=positive_int, required=True, metavar="D", help="data-parallel pipelines")
    parser.add_argument(
        "--straggler",
        type=_stragglers,
        default=(),
        metavar="R",
        help="how many times slower one pipeline is, 1 for none: a number, or several as in 1.05,1.1,1.2,1.5",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Emulate a job."""
    problem = problem_from_args(args)
    latency_ps = switch_latency_ps_from_args(args)
    all_max_ps = replay_all_max(problem, switch_latency_ps=latency_ps).time_ps
    frontier = plan_frontier(
        problem,
        switch_latency_ps=latency_ps,
        deadlines_ps=[round(straggler * all_max_ps) for straggler in args.straggler],
    )
    job = Emulation(frontier, pipelines=args.pipelines, stragglers=args.straggler)
    plans, stragglers = ([each._asdict() for each in jobs] for jobs in (job.plans, job.stragglers))
    if args.json:
        shown = {
            "source": args.profile,
            "pipelines": args.pipelines,
            "num_gpus": job.num_gpus,
            **latency_figures(problem, latency_ps),
            "plans": plans,
            "stragglers": stragglers,
            "differences_from_published": DIFFERENCES_FROM_PUBLISHED,
        }
        print(json.dumps(shown))
        return 0
    print(f"{size_text(args.pipelines, job.num_gpus)}; {changes_text(problem, args)}\n")
    print(format_table(PLAN_COLUMNS, plans))
    if stragglers:
        print(format_table(STRAGGLER_COLUMNS, stragglers))
    print("Against the emulation published with Perseus (SOSP '24):")
    for difference in DIFFERENCES_FROM_PUBLISHED:
        print(f"- {difference}")
    return 0


def _stragglers(text: str) -> tuple[float, ...]:
    straggler = real(
        1, MAX_STRAGGLER, f"how many times slower the straggler is, from 1 to {MAX_STRAGGLER:g}, as 1.2 or 1.05,1.1,1.2"
    )
    return tuple(map(straggler, text.split(",")))
