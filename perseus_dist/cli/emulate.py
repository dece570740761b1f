"""``perseus-dist emulate``: the energy of a whole data-parallel job, without and with a straggler."""

import argparse
import json
import math
from typing import Any

from perseus_dist.cli.problem_options import add_problem_arguments, problem_from_args, switch_latency_ps_from_args
from perseus_dist.cli.schedule_options import positive_int
from perseus_dist.cli.table import format_table
from perseus_dist.planning.emulation import DIFFERENCES_FROM_PUBLISHED, Emulation, Iteration, emulate, iteration_at
from perseus_dist.planning.frontier import plan_frontier
from perseus_dist.planning.replay import replay_all_max
from perseus_dist.units import j_from_uj, s_from_ps

MAX_STRAGGLER = 1000.0

_EPILOG = """\
example:
  perseus-dist emulate profile.csv --schedule 1f1b --pp 4 --microbatches 16 --blocking-power-w 80 \\
      --pipelines 128 --straggler 1.05,1.1,1.2,1.5

All pipelines are equal, and one of them is R times slower, at the same average power. The iteration then lasts
T' = R x the time of all-max, whatever the others do; they draw blocking power until the straggler is done. Savings are
against all-max with the same straggler, and the straggler counts:

  intrinsic   every pipeline runs the plan that is no later than all-max, as it does without a straggler
  extrinsic   what all others save on top by changing to the plan for T'
  together    the sum of both
"""
_PLAN_COLUMNS = (  # header, key of a record, format
    ("no straggler", "name", "s"),
    ("iteration\n[s]", "time_s", ".6f"),
    ("slowdown\n[%]", "slowdown_percent", "+z.3f"),
    ("job\n[J]", "job_energy_j", ".1f"),
    ("saving\n[%]", "saving_percent", ".2f"),
)
_STRAGGLER_COLUMNS = (
    ("straggler R", "straggler", "g"),
    ("iteration T'\n[s]", "time_s", ".6f"),
    ("others' plan\n[s]", "others_time_s", ".6f"),
    ("all-max job\n[J]", "all_max_energy_j", ".1f"),
    ("planned job\n[J]", "job_energy_j", ".1f"),
    ("slowdown\n[%]", "slowdown_percent", "+z.3f"),
    ("intrinsic\n[%]", "intrinsic_saving_percent", ".2f"),
    ("extrinsic\n[%]", "extrinsic_saving_percent", ".2f"),
    ("together\n[%]", "saving_percent", ".2f"),
)


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
    all_max_ps = replay_all_max(problem).time_ps
    frontier = plan_frontier(
        problem,
        switch_latency_ps=switch_latency_ps_from_args(args),
        deadlines_ps=[round(straggler * all_max_ps) for straggler in args.straggler],
    )
    alone = emulate(frontier, pipelines=args.pipelines, straggler=1)
    plans = [
        _plan_record(alone, "all_max", "all-max", alone.reference),
        _plan_record(alone, "t_min", "at T_min", iteration_at(frontier, 0)),
        _plan_record(alone, "all_max_time", "at the all-max time", alone.intrinsic),
    ]
    stragglers = [
        _straggler_record(emulate(frontier, pipelines=args.pipelines, straggler=straggler))
        for straggler in args.straggler
    ]
    num_gpus = args.pipelines * problem.dag.schedule.num_ranks * problem.tensor_parallel
    if args.json:
        shown = {
            "source": args.profile,
            "pipelines": args.pipelines,
            "num_gpus": num_gpus,
            "switch_latency_ms": args.switch_latency_ms,
            "plans": plans,
            "stragglers": stragglers,
            "differences_from_published": DIFFERENCES_FROM_PUBLISHED,
        }
        print(json.dumps(shown))
        return 0
    print(f"{args.pipelines} pipelines, {num_gpus} GPUs; a clock change takes {args.switch_latency_ms:g} ms\n")
    print(format_table(_PLAN_COLUMNS, plans))
    if stragglers:
        print(format_table(_STRAGGLER_COLUMNS, stragglers))
    print("Against the emulation published with Perseus (SOSP '24):")
    for difference in DIFFERENCES_FROM_PUBLISHED:
        print(f"- {difference}")
    return 0


def _plan_record(alone: Emulation, key: str, name: str, plan: Iteration) -> dict[str, Any]:
    """A job in which nobody waits."""
    return {
        "plan": key,
        "name": name,
        "time_s": float(s_from_ps(plan.time_ps)),
        "slowdown_percent": 100 * (plan.time_ps / alone.reference.time_ps - 1),
        "job_energy_j": float(j_from_uj(alone.pipelines * plan.total_uj)),
        "saving_percent": 100 * (1 - plan.total_uj / alone.reference.total_uj),
    }


def _straggler_record(job: Emulation) -> dict[str, Any]:
    return {
        "straggler": job.straggler,
        "time_s": float(s_from_ps(job.t_prime_ps)),
        "slowdown_percent": 100 * job.slowdown_share,
        "others_time_s": float(s_from_ps(job.others.time_ps)),
        "all_max_energy_j": float(j_from_uj(job.all_max_uj)),
        "job_energy_j": float(j_from_uj(job.planned_uj)),
        "intrinsic_saving_percent": 100 * job.intrinsic_share,
        "extrinsic_saving_percent": 100 * job.extrinsic_share,
        "saving_percent": 100 * job.saving_share,
    }


def _stragglers(text: str) -> tuple[float, ...]:
    return tuple(_straggler(part) for part in text.split(","))


def _straggler(text: str) -> float:
    try:
        straggler = float(text)
    except ValueError:
        straggler = math.nan
    if not 1 <= straggler <= MAX_STRAGGLER:  # NaN fails too
        raise argparse.ArgumentTypeError(
            f"saw {text!r}, expected how many times slower the straggler is, from 1 to {MAX_STRAGGLER:g}, such as 1.2 "
            "or 1.05,1.1,1.2"
        )
    return straggler
