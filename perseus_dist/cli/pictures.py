"""The pictures of a plan: frontier and timeline. They need matplotlib, which is only imported to draw."""

from importlib.util import find_spec
from pathlib import Path

from perseus_dist.planning.comparison import compare
from perseus_dist.planning.frontier import Frontier
from perseus_dist.planning.output_file import write_output
from perseus_dist.planning.plan import Plan
from perseus_dist.planning.replay import Execution
from perseus_dist.units import j_from_uj, s_from_ps

FRONTIER_SVG, TIMELINE_SVG = "frontier.svg", "timeline.svg"

# Up to here all baselines take 0.2 s; EnvPipe took 3 s for 8,192 instructions, which only 'compare' waits for.
_MAX_INSTRUCTIONS_WITH_BASELINES = 4096


def can_draw() -> bool:
    """Whether matplotlib is there."""
    return find_spec("matplotlib") is not None


def draw_plan(plan: Plan, folder: Path, *, title: str, name: str) -> None:
    """Write both pictures.

    Args:
        plan: The chosen plan.
        folder: Where to.
        title: What was planned.
        name: What the chosen plan is called.

    Raises:
        OutputError: The folder cannot be written to.
    """
    from perseus_dist.report.frontier_plot import MarkedPoint, plot_frontier
    from perseus_dist.report.theme import figure_bytes
    from perseus_dist.report.timeline_plot import plot_timeline

    def marked(name: str, execution: Execution) -> MarkedPoint:
        time_s, energy_j = s_from_ps(execution.time_ps), j_from_uj(execution.total_uj)
        return MarkedPoint(name=name, time_s=float(time_s), energy_j=float(energy_j))

    frontier = plan.frontier
    time_ps = frontier.time_ps[frontier.own]
    shown = plot_frontier(
        times_s=s_from_ps(time_ps),
        energies_j=j_from_uj(frontier.total_uj[frontier.own]),
        bounds_j=j_from_uj(frontier.bound.total_uj(time_ps)),
        baselines=[marked(*baseline) for baseline in _baselines(frontier)],
        chosen=marked(name, plan.execution),
        t_min_s=float(s_from_ps(frontier.t_min_ps)),
        t_star_s=float(s_from_ps(frontier.t_star_ps)),
        title=title,
    )
    write_output(folder / FRONTIER_SVG, figure_bytes(shown))
    shown = plot_timeline([("all-max", frontier.baseline), (name, plan.execution)])
    write_output(folder / TIMELINE_SVG, figure_bytes(shown))


def _baselines(frontier: Frontier) -> list[tuple[str, Execution]]:
    """All-max, EnvPipe, and of each Zeus baseline the plan with the least energy no later than T*."""
    all_max = ("all-max", frontier.baseline)
    if frontier.problem.num_instructions > _MAX_INSTRUCTIONS_WITH_BASELINES:
        return [all_max]
    comparison = compare(frontier)
    chosen = [plan for plan in comparison.plans if plan.key == "envpipe"]
    for sweep in comparison.sweeps.values():
        within = [plan for plan in sweep if plan.execution.time_ps <= frontier.t_star_ps and plan.saving_share > 0]
        chosen += sorted(within, key=lambda plan: plan.execution.total_uj)[:1]
    return [all_max, *((plan.name, plan.execution) for plan in chosen)]
