"""Make the pictures of README.md and the documentation: docs/pictures/timeline.svg and frontier.svg.

    python docs/tools/pictures.py

Deterministic, in half a minute. The timeline is that of `perseus-dist plan` on the example profile, at T_min. The
frontier is planned from the profile of simulated A100s; its diamonds are what `perseus-dist simulate --virtual-time`
measured of a job with that profile, at full clocks and for four targets.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from perseus_dist.planning.frontier.frontier import plan_frontier
from perseus_dist.planning.frontier.problem import make_problem
from perseus_dist.planning.profile.profile import read_profile
from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.report.plots.frontier_plot import MarkedPoint, plot_frontier
from perseus_dist.report.plots.theme import figure_bytes
from perseus_dist.simulation.chaos.world.profile_rows import undisturbed_profile
from perseus_dist.simulation.job import SimulatedJob
from perseus_dist.simulator.presets import find_preset
from perseus_dist.units import j_from_uj, s_from_ps

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "docs" / "pictures"
PP, MICROBATCHES, GPU, IMBALANCE = 4, 8, "a100", 0.15
TARGETS = ("t_min", "slowdown=1.05", "slowdown=1.1", "slowdown=1.2")
JOB = ("--schedule", "1f1b", "--pp", str(PP), "--microbatches", str(MICROBATCHES))


def main() -> None:
    """Make them."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        example = "examples/profiles/gpu_model_pp4.csv"
        perseus_dist("plan", example, *JOB, "--blocking-power-w", "80", "--out", str(folder))
        shutil.copy(folder / "timeline.svg", PICTURES)
        draw_frontier(folder)


def draw_frontier(folder: Path) -> None:
    """Plan the simulated job, measure it for each target, and draw both."""
    profile = folder / "profile.csv"
    schedule = one_f_one_b(pp=PP, microbatches=MICROBATCHES)
    job = SimulatedJob(schedule=schedule, num_pipelines=1, num_iterations=1, imbalance=IMBALANCE)
    profile.write_text(undisturbed_profile(job, GPU))
    blocking_uw = round(1e6 * find_preset(GPU).blocking_power_w)
    problem = make_problem(schedule, read_profile(profile), blocking_uw_of_rank=[blocking_uw] * PP)
    frontier = plan_frontier(problem)
    runs = [measured(profile, target) for target in TARGETS]
    baseline = point("measured at maximum clocks", runs[0]["baseline"])
    time_ps = frontier.time_ps[frontier.deadline_points]
    shown = plot_frontier(
        times_s=s_from_ps(time_ps),
        energies_j=j_from_uj(frontier.total_uj[frontier.deadline_points]),
        bounds_j=j_from_uj(frontier.bound.total_uj(time_ps)),
        baselines=[baseline],
        chosen=None,
        t_min_s=float(s_from_ps(frontier.baseline.time_ps)),
        t_star_s=float(s_from_ps(frontier.t_star_ps)),
        measured=[
            point(f"measured, {target}", run["enforced"], against=baseline)
            for target, run in zip(TARGETS, runs, strict=True)
        ],
        title=f"1F1B, {PP} pp_ranks, {MICROBATCHES} microbatches on simulated {GPU.upper()}s",
    )
    (PICTURES / "frontier.svg").write_bytes(figure_bytes(shown))


def measured(profile: Path, target: str) -> dict[str, Any]:
    """A run in virtual time: figures before and under the plan."""
    options = ("--gpu", GPU, "--imbalance", str(IMBALANCE), "--iterations", "60", "--profile", str(profile))
    run = perseus_dist("simulate", "--virtual-time", *JOB, *options, "--target", target, "--json")
    figures: dict[str, Any] = json.loads(run)
    return figures


def point(name: str, figures: dict[str, float], *, against: MarkedPoint | None = None) -> MarkedPoint:
    """One iteration on the mean."""
    time_s, energy_j = figures["iteration_time_s"], figures["energy_j"]
    return MarkedPoint(name=name, time_s=time_s, energy_j=energy_j, against=against)


def perseus_dist(*arguments: str) -> str:
    """What a command prints."""
    command = [sys.executable, "-m", "perseus_dist", *arguments]
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    main()
