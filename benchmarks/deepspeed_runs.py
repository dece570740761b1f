"""The main job, several times in a row; then parts of it are killed: how soon are all clocks unlocked?

``python benchmarks/deepspeed_runs.py`` runs ``perseus-dist quickstart`` on simulated A100s and prints what each run
saved, and starts jobs under the profile of the last one, in which it kills ranks, agents and the embedded planner.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from measuring import conditions, print_table

from perseus_dist.simulation.frameworks.deepspeed_run import DeepSpeedRun
from perseus_dist.simulation.frameworks.training_job import TrainingJob, running_job

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
_STARTED_S, _UNLOCKED_S, _BACK_S = 120.0, 30.0, 60.0


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="quickstarts in a row")
    parser.add_argument("--kills", type=int, default=5, help="of each sort of process")
    parser.add_argument("--stages", type=int, default=4)
    parser.add_argument("--pipelines", type=int, default=1)
    args = parser.parse_args()
    print(f"{conditions()}\n", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _print_runs(args.runs, args.stages, args.pipelines, folder)
        if args.kills:
            print()
            _print_kills(args.kills, args.stages, args.pipelines, folder)


def _print_runs(num_runs: int, num_stages: int, num_pipelines: int, folder: Path) -> None:
    rows = []
    for number in range(num_runs):
        command = [str(Path(sys.executable).with_name("perseus-dist")), "quickstart", "--gpu", "a100", "--json"]
        command += ["--stages", str(num_stages), "--pipelines", str(num_pipelines), "--out", str(folder)]
        command += ["--examples", str(EXAMPLES)]
        began_s = time.monotonic()
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
        took_s = time.monotonic() - began_s
        report = json.loads(done.stdout)
        rows.append(
            (
                str(number + 1),
                f"{report['baseline']['iteration_time_s']:.4f}",
                f"{report['planned']['iteration_time_s']:.4f}",
                f"{report['slowdown_percent']:+.2f}",
                f"{report['saving_percent']:.2f}",
                f"{report['predicted_saving_percent']:.2f}",
                "equal" if report["losses_equal"] else "DIFFERENT",
                str(report["clocks_left_locked"]),
                f"{took_s:.0f}",
                str(done.returncode),
            )
        )
    heads = ("run", "baseline [s]", "plan [s]", "slowdown [%]", "saving [%]", "predicted [%]", "losses", "left locked")
    print_table((*heads, "whole run [s]", "status"), rows)


def _print_kills(num_kills: int, num_stages: int, num_pipelines: int, folder: Path) -> None:
    unlocked_s: defaultdict[str, list[float]] = defaultdict(list)
    for _ in range(num_kills):
        with tempfile.TemporaryDirectory() as name:
            run = DeepSpeedRun(
                script=EXAMPLES / "deepspeed_gpt.py",
                config=EXAMPLES / "deepspeed_gpt.json",
                num_stages=num_stages,
                num_pipelines=num_pipelines,
                num_steps=5000,
                folder=Path(name),
                preset="a100",
                forward_s=0.035,
                backward_s=0.065,
                imbalance=0.15,
                launcher="perseus-deepspeed",
                perseus_options=("--perseus-profile", str(folder / "profile.csv")),
            )
            last, every = run.num_ranks - 1, set(range(run.num_ranks))
            with running_job(run) as job:
                _wait_for_plan(job, _STARTED_S)
                unlocked_s["embedded planner"].append(_kill(job, job.pid_of_planner(), every))
                _wait_for_plan(job, _BACK_S)
                unlocked_s["agent of the last rank"].append(_kill(job, job.pid_of_agent(last), {last}))
                _wait_for_steps(job)
                unlocked_s["agent of rank 0"].append(_kill(job, job.pid_of_agent(0), every))
                _wait_for_steps(job)
            with running_job(run) as job:
                _wait_for_plan(job, _STARTED_S)
                unlocked_s["a rank"].append(_kill(job, job.pid_of_rank(1), every))
                job.wait_until(lambda: job.process.poll() is not None, _BACK_S)
    rows = (
        (victim, str(len(times_s)), f"{1e3 * statistics.median(times_s):.0f}", f"{1e3 * max(times_s):.0f}")
        for victim, times_s in unlocked_s.items()
    )
    print_table(("killed (SIGKILL)", "times", "all its clocks unlocked, median [ms]", "worst [ms]"), rows)


def _wait_for_plan(job: TrainingJob, longest_s: float) -> None:
    job.wait_until(lambda: job.phase() == "enforcing" and len(job.locked()) == job.run.num_ranks, longest_s)


def _wait_for_steps(job: TrainingJob) -> None:
    """Training goes on."""
    num_steps = job.num_steps()
    job.wait_until(lambda: job.num_steps() > num_steps + 2, _BACK_S)


def _kill(job: TrainingJob, pid: int, gpus: set[int]) -> float:
    os.kill(pid, signal.SIGKILL)
    return job.wait_until(lambda: not gpus & job.locked(), _UNLOCKED_S)


if __name__ == "__main__":
    main()
