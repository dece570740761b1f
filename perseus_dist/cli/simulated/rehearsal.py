"""``perseus-dist simulate --planner HOST:PORT``: a rehearsal of several jobs at once against a planner that runs."""

import argparse
import json
import re
import secrets
import sys
from typing import TYPE_CHECKING

from perseus_dist.cli.jobs.planner_client import (
    TIMEOUT_S,
    PlannerAwayError,
    add_planner_arguments,
    named_planner,
    planner_calls,
    token_path,
)
from perseus_dist.cli.number_options import whole
from perseus_dist.cli.planning.schedule_options import schedule_from_args
from perseus_dist.cli.simulated.log_folder import log_folder
from perseus_dist.errors import PerseusError
from perseus_dist.simulator.machine import MAX_GPUS

if TYPE_CHECKING:
    from perseus_dist.library.tables import Column
    from perseus_dist.planning.schedule.schedule import Schedule
    from perseus_dist.simulation.rehearsal import JobStatuses, RehearsedJob

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_PP, _MICROBATCHES = 4, 8
_WITHOUT_PLANNER = {  # what a rehearsal has not: its parsed value where it was not given
    "scenario": None,
    "chaos": None,
    "virtual_time": False,
    "profile": None,
    "granularity": "instruction",
    "processes": 1,
    "known_failures": None,
}
_COLUMNS: "tuple[Column, ...]" = (  # header, key of a record, format
    ("job", "job_id", "s"),
    ("ranks", "ranks", "d"),
    ("nodes", "nodes_text", "s"),
    ("iterations\nplanned", "planned_iterations", "d"),
    ("baseline\n[s]", "baseline_time_s", ".4f"),
    ("planned\n[s]", "planned_time_s", ".4f"),
    ("slower\n[%]", "slowdown_percent", "+z.2f"),
    ("saved\n[%]", "saving_percent", ".2f"),
    ("predicted\n[%]", "predicted_saving_percent", ".2f"),
    ("result", "result", "s"),
)


class RehearsalOptionsError(PerseusError):
    """Options that do not go with a rehearsal, or only with one."""


def add_rehearsal_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_planner_arguments(parser, "rehearse against this planner, which runs already, instead of a planner of our own")
    rehearsal = parser.add_argument_group("rehearsal, with --planner")
    rehearsal.add_argument(
        "--jobs",
        type=whole(1, MAX_GPUS, f"1 to {MAX_GPUS} jobs, a simulated GPU for each rank"),
        metavar="J",
        help="jobs that train at once (default: 1)",
    )
    rehearsal.add_argument(
        "--nodes",
        type=whole(1, MAX_GPUS, f"1 to {MAX_GPUS} nodes, a simulated GPU or more on each"),
        metavar="N",
        help="simulated nodes, each with a clock daemon (default: 1)",
    )
    rehearsal.add_argument(
        "--job", metavar="NAME", help="jobs are NAME-1, NAME-2, ... (default: rehearsal and a random number)"
    )


def check_no_rehearsal(args: argparse.Namespace) -> None:
    """Refuse what needs ``--planner``.

    Raises:
        RehearsalOptionsError: An option that only a rehearsal has.
    """
    for option in ("jobs", "nodes", "job", "token_file", "tls", "tls_ca", "tls_cert", "tls_key"):
        if getattr(args, option):
            name = option.replace("_", "-")
            raise RehearsalOptionsError(f"--{name} goes with --planner HOST:PORT alone; add it, or leave --{name} out")


def run_rehearsal_command(args: argparse.Namespace) -> int:
    """Rehearse.

    Returns:
        0; 1 if a job failed.

    Raises:
        PerseusError: Options that do not fit together, or a planner that cannot be called.
    """
    from perseus_dist.simulation.job import SimulatedJob, as_simulated
    from perseus_dist.simulation.rehearsal import Rehearsal, rehearsal_passed, run_rehearsal

    for name, usual in _WITHOUT_PLANNER.items():
        if getattr(args, name) != usual:
            raise RehearsalOptionsError(
                f"--{name.replace('_', '-')} does not go with --planner: leave one of the two out"
            )
    name = args.job or f"rehearsal-{secrets.token_hex(2)}"
    if not _NAME.fullmatch(name):
        raise RehearsalOptionsError(
            f"--job {name}: expected at most 100 letters, digits, dots, dashes and underscores, a letter or digit first"
        )
    schedule = as_simulated(_schedule(args), is_named=args.schedule_file is None)
    rehearsal = Rehearsal(
        jobs=tuple(
            SimulatedJob(
                schedule=schedule,
                num_pipelines=args.dp,
                num_iterations=args.iterations,
                imbalance=args.imbalance,
                job_id=f"{name}-{number}",
                target=args.target,
            )
            for number in range(1, (args.jobs or 1) + 1)
        ),
        num_nodes=args.nodes or 1,
        planner=args.planner,
        token_file=token_path(args),
        options=_agent_options(args),
    )
    rehearsal.check()
    planner = _Planner(args)
    planner.read()  # refused here, before anything is started
    with log_folder(args.log_dir) as folder:
        watch = _Progress()
        jobs = run_rehearsal(rehearsal, args.gpu, folder=folder.path, read_jobs=planner.read_if_there, watch=watch)
        passed = rehearsal_passed(jobs)
        folder.is_kept |= not passed
    if args.json:
        head = {"simulated_gpus": True, "passed": passed, "nodes": rehearsal.num_nodes}
        logs = {"log_dir": str(folder.path) if folder.is_kept else None}
        print(json.dumps({**head, **logs, "jobs": [job.document() for job in jobs]}), flush=True)
    else:
        print(_text(jobs), flush=True)
        if folder.is_kept:
            print(f"logs are in {folder.path}", file=sys.stderr, flush=True)
    return 0 if passed else 1


class _Planner:
    """The planner's list of jobs, over a connection a call: a planner that is restarted meanwhile is found again."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = argparse.Namespace(**{**vars(args), "job": None})  # which names jobs to come
        self._endpoint = named_planner(args, args.planner)

    def read(self) -> "JobStatuses":
        """All that the token opens, by job_id."""
        with planner_calls(self._args, self._endpoint) as (planner, metadata):
            from perseus_dist.rpc.v1 import planner_pb2 as pb

            answer = planner.ListJobs(pb.ListJobsRequest(), timeout=TIMEOUT_S, metadata=metadata)
        return {job.job_id: job for job in answer.jobs}

    def read_if_there(self) -> "JobStatuses":
        """The same; none while the planner is away."""
        try:
            return self.read()
        except PlannerAwayError:
            return {}


class _Progress:
    """A line on standard error for every phase of every job."""

    def __init__(self) -> None:
        self._phases: dict[str, str] = {}

    def __call__(self, statuses: "JobStatuses") -> None:
        for job_id, status in sorted(statuses.items()):
            if self._phases.get(job_id) != status.phase:
                self._phases[job_id] = status.phase
                print(f"{job_id}: {status.phase}: {status.reason}", file=sys.stderr, flush=True)


def _schedule(args: argparse.Namespace) -> "Schedule":
    if args.schedule is None and args.schedule_file is None:
        wanted: dict[str, str | int] = {
            "schedule": "1f1b",
            "pp": args.pp or _PP,
            "microbatches": args.microbatches or _MICROBATCHES,
        }
        args = argparse.Namespace(**{**vars(args), **wanted})
    return schedule_from_args(args)


def _agent_options(args: argparse.Namespace) -> dict[str, str]:
    options = {"tls": "1"} if args.tls else {}
    files = {name: getattr(args, name) for name in ("tls_ca", "tls_cert", "tls_key")}
    return options | {name: str(path.absolute()) for name, path in files.items() if path is not None}


def _text(jobs: "tuple[RehearsedJob, ...]") -> str:
    from perseus_dist.library.tables import format_table

    records = [
        {**job.document(), "nodes_text": _span(job.nodes), "result": "failed" if job.fault else "passed"}
        for job in jobs
    ]
    num_passed = sum(not job.fault for job in jobs)
    faults = [f"{job.job_id}: {job.fault}" for job in jobs if job.fault]
    troubles = [f"{job.job_id}: {trouble}" for job in jobs if job.status for trouble in job.status.troubles]
    total = f"{num_passed} of {len(jobs)} jobs passed; all of simulated GPUs"
    return "\n".join((format_table(_COLUMNS, records).rstrip("\n"), *faults, *troubles, total))


def _span(nodes: tuple[int, ...]) -> str:
    return str(nodes[0]) if len(nodes) == 1 else f"{nodes[0]}-{nodes[-1]}"
