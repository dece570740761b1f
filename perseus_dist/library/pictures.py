"""The pictures of the library's face. They need matplotlib, which is only imported to draw."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from types import NoneType
from typing import TYPE_CHECKING

from perseus_dist.errors import ArgumentError
from perseus_dist.library import arguments
from perseus_dist.library.unit_times import unit_times
from perseus_dist.planning.baselines.comparison import compare
from perseus_dist.planning.frontier.frontier import Frontier
from perseus_dist.planning.frontier.plan import Plan
from perseus_dist.planning.frontier.replay import Execution
from perseus_dist.planning.profile.profile import Profile
from perseus_dist.planning.schedule.schedule import Schedule
from perseus_dist.units import j_from_uj, s_from_ps

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Up to here all baselines take 0.2 s; EnvPipe took 3 s for 8,192 instructions, which only 'compare' waits for.
_MAX_INSTRUCTIONS_WITH_BASELINES = 4096


def can_draw() -> bool:
    """Whether matplotlib is there."""
    return find_spec("matplotlib") is not None


def draw_frontier(
    frontier: Frontier, *, chosen: tuple[str, Execution] | None, title: str, ax: "Axes | None" = None
) -> "Figure":
    """Plans and bound, all-max and the baselines, and a chosen plan with its name.

    Raises:
        ModuleNotFoundError: There is no matplotlib.
    """
    _check(title, ax)
    from perseus_dist.report.plots.frontier_plot import MarkedPoint, plot_frontier

    def marked(name: str, execution: Execution) -> MarkedPoint:
        time_s, energy_j = s_from_ps(execution.time_ps), j_from_uj(execution.total_uj)
        return MarkedPoint(name=name, time_s=float(time_s), energy_j=float(energy_j))

    time_ps = frontier.time_ps[frontier.deadline_points]
    figure = plot_frontier(
        times_s=s_from_ps(time_ps),
        energies_j=j_from_uj(frontier.total_uj[frontier.deadline_points]),
        bounds_j=j_from_uj(frontier.bound.total_uj(time_ps)),
        baselines=[marked(*baseline) for baseline in _baselines(frontier)],
        chosen=None if chosen is None else marked(*chosen),
        t_min_s=float(s_from_ps(frontier.baseline.time_ps)),
        t_star_s=float(s_from_ps(frontier.t_star_ps)),
        title=title,
        ax=ax,
    )
    return figure if ax is not None else _shown_by_notebooks(figure)


def draw_timeline(plan: Plan, *, name: str, title: str = "", fig: "Figure | None" = None) -> "Figure":
    """All-max and the plan, instruction by instruction.

    Raises:
        ModuleNotFoundError: There is no matplotlib.
    """
    _need_matplotlib()
    from matplotlib.figure import Figure

    from perseus_dist.report.plots.timeline_plot import plot_timeline

    arguments.instance("title", title, str, expected="a text")
    arguments.instance("fig", fig, (Figure, NoneType), expected="an empty matplotlib figure or None")
    if fig is not None and fig.axes:
        raise ArgumentError(
            f"fig: saw a figure with {len(fig.axes)} axes, expected an empty matplotlib figure or None; call "
            "fig.clear() before"
        )

    figure = plot_timeline([("all-max", plan.frontier.baseline), (name, plan.execution)], title=title, fig=fig)
    return figure if fig is not None else _shown_by_notebooks(figure)


def draw_schedule(schedule: Schedule, *, title: str, ax: "Axes | None") -> "Figure":
    """Each pp_rank's instructions, where a forward takes one unit of time.

    Raises:
        ModuleNotFoundError: There is no matplotlib.
    """
    _check(title, ax)
    from perseus_dist.report.plots.schedule_plot import plot_schedule

    times = unit_times(schedule)
    figure = plot_schedule(times.dag, times.starts, times.ends, title=title, ax=ax)
    return figure if ax is not None else _shown_by_notebooks(figure)


def draw_profile(profile: Profile, *, title: str) -> "Figure":
    """Time and energy of each instruction over the clock.

    Raises:
        ModuleNotFoundError: There is no matplotlib.
    """
    _check(title)
    from perseus_dist.report.plots.profile_plot import plot_profile

    return _shown_by_notebooks(plot_profile(profile.measurements, title=title))


def draw_comparison(
    plans: Sequence[tuple[str, float, float]],
    sweeps: Mapping[str, Sequence[tuple[str, float, float]]],
    *,
    num_baselines: int,
    title: str,
    ax: "Axes | None",
) -> "Figure":
    """Plans and baselines, each a name, a time [s] and an energy [J].

    Raises:
        ModuleNotFoundError: There is no matplotlib.
    """
    _check(title, ax)
    from perseus_dist.report.plots.comparison_plot import plot_comparison
    from perseus_dist.report.plots.frontier_plot import MarkedPoint

    def marked(points: Sequence[tuple[str, float, float]]) -> list[MarkedPoint]:
        return [MarkedPoint(name=name, time_s=time_s, energy_j=energy_j) for name, time_s, energy_j in points]

    figure = plot_comparison(
        marked(plans),
        {name: marked(sweep) for name, sweep in sweeps.items()},
        num_baselines=num_baselines,
        title=title,
        ax=ax,
    )
    return figure if ax is not None else _shown_by_notebooks(figure)


def draw_savings(savings: Sequence[tuple[float, float, float]], *, title: str, ax: "Axes | None") -> "Figure":
    """A job's intrinsic and extrinsic savings [%], each after the straggler that they are for.

    Raises:
        ModuleNotFoundError: There is no matplotlib.
    """
    _check(title, ax)
    from perseus_dist.report.plots.comparison_plot import plot_savings

    figure = plot_savings(*([each[column] for each in savings] for column in range(3)), title=title, ax=ax)
    return figure if ax is not None else _shown_by_notebooks(figure)


def html_picture(figure: "Figure") -> str:
    """An HTML image that holds the picture; as an image of its own, its ids meet no other picture's."""
    data = b64encode(_svg(figure).encode()).decode()
    return f'<img src="data:image/svg+xml;base64,{data}" style="max-width: 100%; background: white">'


def _check(title: object, ax: object = None) -> None:
    """Refuse arguments that no picture can be drawn with."""
    _need_matplotlib()
    from matplotlib.axes import Axes

    arguments.instance("title", title, str, expected="a text")
    arguments.instance("ax", ax, (Axes, NoneType), expected="matplotlib axes or None")


def _need_matplotlib() -> None:
    if not can_draw():
        raise ModuleNotFoundError(
            "pictures need matplotlib, which is not installed: pip install 'perseus-dist[report]'", name="matplotlib"
        )


def _shown_by_notebooks(figure: "Figure") -> "Figure":
    """Give a figure that pyplot does not know the picture that a notebook shows; without, it shows the type alone."""
    figure._repr_svg_ = partial(_svg, figure)  # type: ignore[attr-defined]
    return figure


def _svg(figure: "Figure") -> str:
    from perseus_dist.report.plots.theme import figure_bytes

    return figure_bytes(figure).decode()


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
