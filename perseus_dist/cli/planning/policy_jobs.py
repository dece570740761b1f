"""Jobs of ``perseus-dist policy``: saved frontiers, with what a policy must know of each besides."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perseus_dist.errors import PlanningError
from perseus_dist.number_text import read_real, read_whole
from perseus_dist.planning.frontier.frontier_file import load_frontier
from perseus_dist.policies.operating_points import OperatingPoints
from perseus_dist.policies.power_budget import Member
from perseus_dist.units import j_from_uj, s_from_ps

JOB_HELP = (
    "a job: its saved frontier, then after commas any of pipelines (1), weight (1), slowdown (no limit) and name, as "
    "in FRONTIER.npz,pipelines=8,weight=2,slowdown=1.2,name=llama"
)
_MAX_PIPELINES = 1_000_000
_MAX_FACTOR = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class JobText:
    """A job as the command line names it.

    Attributes:
        frontier: Its file.
        name: The file's name unless given.
        pipelines: Data-parallel ones.
        weight: By which its slowdown counts.
        max_slowdown: Times an iteration at full clocks that one may take at most; None for no limit.
    """

    frontier: Path
    name: str = field(default="")
    pipelines: int = 1
    weight: float = 1.0
    max_slowdown: float | None = None


def job_text(text: str) -> JobText:
    """An argparse type: ``JOB_HELP`` says its form."""
    path, *settings = text.split(",")
    given: dict[str, str] = {}
    for setting in settings:
        name, sign, value = setting.partition("=")
        if not sign or not value or name in given or name not in ("pipelines", "weight", "slowdown", "name"):
            expected = "pipelines=D, weight=W, slowdown=R or name=NAME, each at most once"
            raise argparse.ArgumentTypeError(f"saw {setting!r}, expected {expected}")
        given[name] = value
    if not path:
        raise argparse.ArgumentTypeError(f"saw {text!r}, expected a frontier's file first")
    slowdown = given.get("slowdown")
    return JobText(
        frontier=Path(path),
        name=given.get("name", path),
        pipelines=int(_number("pipelines", given.get("pipelines", "1"), 1, _MAX_PIPELINES, is_whole=True)),
        weight=_number("weight", given.get("weight", "1"), 1 / _MAX_FACTOR, _MAX_FACTOR),
        max_slowdown=None if slowdown is None else _number("slowdown", slowdown, 1, _MAX_FACTOR),
    )


def _number(name: str, text: str, low: float, high: float, *, is_whole: bool = False) -> float:
    try:
        return read_whole(text, int(low), int(high)) if is_whole else read_real(text, low, high)
    except ValueError:
        kind = "a whole number" if is_whole else "a number"
        expected = f"{kind} from {low:g} to {high:g}"
        raise argparse.ArgumentTypeError(f"{name}: saw {text!r}, expected {expected}") from None


def members_of(jobs: Sequence[JobText]) -> list[Member]:
    """All jobs of a policy, with their operating points.

    Raises:
        PlanningError: Two have the same name, or there is no frontier in a file.
    """
    names = [job.name for job in jobs]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise PlanningError(f"saw two jobs {twice}, expected each name once: give names, as in {twice},name=llama")
    return [member_of(job) for job in jobs]


def member_of(job: JobText) -> Member:
    """The job with its operating points.

    Raises:
        PlanningError: There is no frontier in its file.
    """
    frontier = load_frontier(job.frontier)
    points = OperatingPoints.of_plans(
        s_from_ps(frontier.time_ps).tolist(),
        j_from_uj(frontier.total_uj).tolist(),
        full_time_s=float(s_from_ps(frontier.baseline.time_ps)),
        full_energy_j=float(j_from_uj(frontier.baseline.total_uj)),
        num_pipelines=job.pipelines,
    )
    max_slowdown = None if job.max_slowdown is None else job.max_slowdown - 1
    return Member(name=job.name, points=points, weight=job.weight, max_slowdown=max_slowdown)
