"""``perseus-dist simulate``: close the whole loop on simulated GPUs, from a baseline to enforced plans."""

import argparse
import json
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perseus_dist.cli.number_options import real
from perseus_dist.cli.planning.schedule_options import add_schedule_arguments, positive_int, schedule_from_args
from perseus_dist.cli.simulated.chaos_options import check_no_history, plays_history, run_history, seeds
from perseus_dist.cli.simulated.log_folder import log_folder
from perseus_dist.cli.simulated.rehearsal import add_rehearsal_arguments, check_no_rehearsal, run_rehearsal_command
from perseus_dist.errors import ScheduleError
from perseus_dist.interval_text import interval_text
from perseus_dist.library.tables import format_table
from perseus_dist.planning.schedule.granularity import Granularity
from perseus_dist.simulator.presets import PRESETS

if TYPE_CHECKING:
    from perseus_dist.rpc.v1 import planner_pb2 as pb
    from perseus_dist.simulation.job import SimulatedJob
    from perseus_dist.simulation.outcome import Outcome
    from perseus_dist.simulation.wall_run import SupervisedPlanner

_EPILOG = """\
example:
  perseus-dist simulate --schedule 1f1b --pp 4 --dp 2 --microbatches 8 --iterations 80 --gpu a100 --imbalance 0.1
  perseus-dist simulate --virtual-time --scenario history.json --json
  perseus-dist simulate --virtual-time --chaos 0-99 --processes 2
  perseus-dist simulate --planner planner.example:50151 --tls --token-file ops.token --nodes 4 --jobs 3

Stand-in trainers follow the schedule on simulated GPUs; agents, clock daemon, planner and nvidia-ml-py are the real
ones. First come a few iterations at the clocks that the GPUs choose (the baseline), then the profiling sweep, then
planning, then the plan. --virtual-time runs trainers, agents and the planner's decisions in this process, in a time of
its own: the result is deterministic and free of what a busy machine adds. Everything printed is of simulated GPUs.

A scenario says what is trained and which faults happen before which iteration; --chaos draws one from each seed. It is
played with Perseus and without, and judged by invariants: exit code 1 says that one broke which --known-failures does
not name. What breaks for a single seed is shrunk and printed as a scenario.

--planner rehearses production: jobs train at once on simulated nodes, against a planner that runs already, with its
certificate, tokens, metrics and page. Without a schedule each has four stages and eight microbatches. Exit code 1 says
that a job did not come under a plan and to its end, or left a clock locked. The planner keeps the jobs for a day.
Only then do settings files and PERSEUS_* variables count: a simulation has a planner of its own.
"""
_COLUMNS = (  # header, key of a record, format
    ("simulated GPUs", "name", "s"),
    ("iterations", "num_iterations", "d"),
    ("iteration time\n[s]", "iteration_time_s", ".4f"),
    ("spread\n[s]", "iteration_time_spread_s", ".4f"),
    ("energy\n[J]", "energy_j", ".1f"),
    ("spread\n[J]", "energy_spread_j", ".1f"),
)


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "simulate",
        help="train a job on simulated GPUs, and measure what the plan saves",
        description="Train a job on simulated GPUs, and measure what the plan saves.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    source = add_schedule_arguments(parser)
    source.required = False  # a rehearsal has a schedule of its own
    source.add_argument("--scenario", metavar="FILE", help="play the job and the faults of a JSON file")
    source.add_argument("--chaos", type=seeds, metavar="SEEDS", help="draw jobs and faults from a seed, or FIRST-LAST")
    job = parser.add_argument_group("job")
    job.add_argument("--dp", type=positive_int, default=1, metavar="D", help="data-parallel pipelines (default: 1)")
    job.add_argument(
        "--iterations", type=positive_int, default=80, metavar="N", help="iterations to train (default: %(default)s)"
    )
    job.add_argument("--gpu", choices=tuple(PRESETS), default="a100", help="GPU model (default: %(default)s)")
    job.add_argument(
        "--imbalance",
        type=real(0, 10, "a share from 0 to 10"),
        default=0.1,
        metavar="X",
        help="by how much the last stage is heavier than the first, as a share (default: %(default)s)",
    )
    job.add_argument("--target", metavar="T", help="t_min, slowdown=1.05 or deadline=2.5 in s (default: t_min)")
    job.add_argument(
        "--granularity",
        choices=[str(granularity) for granularity in Granularity],
        default=str(Granularity.INSTRUCTION),
        help="what has a clock of its own; phase and rank: after its profile has been measured, the job's instructions "
        "cannot be seen any more, as in a CUDA graph of the whole iteration (default: %(default)s)",
    )
    job.add_argument("--profile", metavar="CSV", help="an earlier run's profile, which spares the sweep")
    add_rehearsal_arguments(parser)
    parser.add_argument("--virtual-time", action="store_true", help="deterministic, in this process, in seconds")
    parser.add_argument(
        "--log-dir", type=Path, metavar="DIR", help="where the processes' logs go (default: a new folder)"
    )
    parser.add_argument(
        "--processes", type=positive_int, default=1, metavar="N", help="seeds to play at a time (default: 1)"
    )
    parser.add_argument(
        "--known-failures",
        metavar="FILE",
        help="JSON file of known failures: a seed that breaks only what it lists there does not fail",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Simulate.

    Returns:
        0; 1 if the job never ran under a plan, or a clock was left locked; of a history, if an invariant broke; of a
        rehearsal, if a job failed.
    """
    from perseus_dist.simulation.supervised import supervised

    with supervised():
        if args.planner is not None:
            return run_rehearsal_command(args)
        check_no_rehearsal(args)
        if plays_history(args):
            return run_history(args)
        check_no_history(args)
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    from perseus_dist.agent.process.startup import parse_target
    from perseus_dist.planning.profile.profile import read_profile
    from perseus_dist.simulation.job import SimulatedJob, as_simulated

    if args.schedule is None and args.schedule_file is None:
        raise ScheduleError("one of --schedule, --schedule-file, --scenario, --chaos and --planner is needed; add one")
    schedule = as_simulated(schedule_from_args(args), is_named=args.schedule_file is None)
    if args.target is not None:  # what agents would only write into their logs
        parse_target(args.target)
    granularity = Granularity(args.granularity)
    if granularity != Granularity.INSTRUCTION and not args.virtual_time and args.profile is None:
        raise ScheduleError(
            f"--granularity {granularity}: instructions that cannot be seen cannot be measured; add --profile of a run "
            "where they could, or --virtual-time, which plays that run first"
        )
    if args.profile is not None:
        read_profile(args.profile)
    job = SimulatedJob(
        schedule=schedule,
        num_pipelines=args.dp,
        num_iterations=args.iterations,
        imbalance=args.imbalance,
        target=args.target,
        profile=args.profile,
        granularity=granularity,
    )
    outcome = _run_virtual(job, args) if args.virtual_time else _run_wall(job, args)
    print(json.dumps(outcome.document()) if args.json else _text(outcome), flush=True)
    return 0 if outcome.passed else 1


def _run_virtual(job: "SimulatedJob", args: argparse.Namespace) -> "Outcome":
    from perseus_dist.simulation.virtual.run import run_virtual

    if not args.json:
        logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    return run_virtual(job, args.gpu)


def _run_wall(job: "SimulatedJob", args: argparse.Namespace) -> "Outcome":
    from perseus_dist.simulation.wall_run import run_wall

    with log_folder(args.log_dir) as folder:
        outcome = run_wall(job, args.gpu, folder=folder.path, watch=_Progress())
        folder.is_kept |= not outcome.passed
    if not outcome.passed:
        print(f"logs are in {folder.path}", file=sys.stderr, flush=True)
    return outcome


class _Progress:
    """A line on standard error for every phase."""

    def __init__(self) -> None:
        self._phase = ""

    def __call__(self, status: "pb.JobStatus", planner: "SupervisedPlanner") -> None:  # noqa: ARG002
        if status.phase != self._phase:
            self._phase = status.phase
            print(f"simulated GPUs: {status.phase}: {status.reason}", file=sys.stderr, flush=True)


def _text(outcome: "Outcome") -> str:
    document = outcome.document()
    records: list[dict[str, Any]] = [{"name": name, **document[name]} for name in ("baseline", "enforced")]
    interval = outcome.predicted_saving_interval_percent
    likely = f", likely {interval_text(*interval, decimals=2)} %" if interval else ""
    lines = [
        format_table(_COLUMNS, records),
        f"saving {outcome.saving_percent:.2f} % (predicted {outcome.predicted_saving_percent:.2f} %{likely}), "
        f"slowdown {outcome.slowdown_percent:+z.2f} %",
        f"clocks profiled: {outcome.num_profiled_clocks}; planner restarts: {outcome.planner_restarts}; "
        f"clocks left locked: {outcome.clocks_left_locked}",
    ]
    lines += outcome.troubles
    if not outcome.enforced.num_iterations:
        lines.append(f"no iteration ran under a plan ({outcome.reason}); give more --iterations")
    return "\n".join(lines)
