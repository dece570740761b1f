"""The options that describe a planning problem, the same for every command that plans."""

import argparse
from dataclasses import replace

from perseus_dist.cli.number_options import real, whole
from perseus_dist.cli.planning.blocking_option import add_blocking_argument, blocking_uw_from_args
from perseus_dist.cli.planning.schedule_options import (
    add_schedule_arguments,
    naming_options,
    schedule_from_args,
)
from perseus_dist.library.plan_table import latency_text
from perseus_dist.planning.frontier.problem import PlanningProblem, make_problem
from perseus_dist.planning.profile.power_bounds import MAX_TENSOR_PARALLEL
from perseus_dist.planning.profile.profile import read_profile
from perseus_dist.units import PS_PER_MS

MAX_SWITCH_LATENCY_MS = 10_000.0  # far beyond any GPU; a figure in microseconds is caught


def add_problem_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that ``problem_from_args`` and ``switch_latency_ps_from_args`` read."""
    parser.add_argument("profile", metavar="PROFILE.csv", help="columns stage,instruction,frequency,time,energy")
    add_schedule_arguments(parser)
    add_blocking_argument(parser)
    parser.add_argument(
        "--tensor-parallel",
        type=whole(1, MAX_TENSOR_PARALLEL, f"1 to {MAX_TENSOR_PARALLEL} GPUs"),
        default=1,
        metavar="K",
        help="GPUs that share each instruction; the profile is that of one of them (default: 1)",
    )
    parser.add_argument(
        "--switch-latency-ms",
        type=real(0, MAX_SWITCH_LATENCY_MS, f"milliseconds from 0 to {MAX_SWITCH_LATENCY_MS:g}, such as 12"),
        metavar="L",
        help="how long a clock change takes from request to effect, in milliseconds, whatever the profile says "
        "(default: what the profile says of each clock, else 0)",
    )


def problem_from_args(args: argparse.Namespace) -> PlanningProblem:
    """The problem that parsed options describe.

    Raises:
        ScheduleError: The schedule's options make no schedule.
        ProfileError: The profile cannot be read, or does not fit the schedule.
        PlanningError: Blocking powers do not fit the schedule.
    """
    schedule = schedule_from_args(args)
    profile = read_profile(args.profile)
    if args.switch_latency_ms is not None:
        profile = replace(profile, clock_changes={})
    blocking_uw = blocking_uw_from_args(args, schedule.num_ranks)
    with naming_options():
        return make_problem(schedule, profile, blocking_uw_of_rank=blocking_uw, tensor_parallel=args.tensor_parallel)


def switch_latency_ps_from_args(args: argparse.Namespace) -> int:
    """[ps] how long a clock change takes where the problem's profile does not say."""
    latency_ms: float = args.switch_latency_ms or 0.0
    return round(latency_ms * PS_PER_MS)


def changes_text(problem: PlanningProblem, args: argparse.Namespace) -> str:
    """How long clock changes take, as the end of a sentence."""
    return f"a clock change takes {latency_text(problem, switch_latency_ps_from_args(args)) or '0 ms'}"
