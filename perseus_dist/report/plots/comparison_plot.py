"""Plans beside the baselines, by time and energy; and a job's savings beside a straggler."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from perseus_dist.report.plots import theme
from perseus_dist.report.plots.frontier_plot import BOX, SIZE_IN, MarkedPoint, scale_axes
from perseus_dist.report.plots.labels import Label, place_labels

_SWEEP_COLOURS = (theme.HAIRLINE, theme.CONSTANT)


def plot_comparison(
    plans: Sequence[MarkedPoint],
    sweeps: Mapping[str, Sequence[MarkedPoint]],
    *,
    num_baselines: int,
    title: str,
    ax: Axes | None = None,
) -> Figure:
    """Draw each way to run the iteration as a point with its name.

    Args:
        plans: At least one; saving and slowdown are against the first. Of those in one place one has a name.
        sweeps: By name, all that a baseline can choose from, as a thin line.
        num_baselines: How many of the first plans are not ours: squares, where ours are circles.
        title: Above the picture.
        ax: Axes to draw into, with room for the scales of saving and slowdown. Without it a figure is made.
    """
    with theme.style():
        ax = ax or Figure(figsize=SIZE_IN).add_axes(BOX)
        for colour, (name, sweep) in zip(_SWEEP_COLOURS * len(sweeps), sweeps.items(), strict=False):
            x, y = [point.time_s for point in sweep], [point.energy_j for point in sweep]
            ax.plot(x, y, color=colour, linewidth=0.8, marker=".", ms=3, label=name)
        for chosen, colour, marker in (
            (plans[:num_baselines], theme.INK, "s"),
            (plans[num_baselines:], theme.PLANS, "o"),
        ):
            x, y = [point.time_s for point in chosen], [point.energy_j for point in chosen]
            ax.plot(x, y, color=colour, linestyle="none", marker=marker, ms=5)
        ours = plans[num_baselines:]
        times_s, energies_j = ([getattr(plan, axis) for plan in plans] for axis in ("time_s", "energy_j"))
        ax.set_xlim(*_around(times_s, more=0.25))
        ax.set_ylim(*_around(energies_j, more=0.25))
        scale_axes(ax, plans[:1])
        ax.set_title(theme.drawable(title), loc="left", size=10.5, weight="bold", pad=34)
        if sweeps:
            ax.legend(loc="upper right", frameon=False)
        named = reversed({(plan.time_s, plan.energy_j): plan for plan in reversed(plans)}.values())
        points = np.array([(point.time_s, point.energy_j) for point in chain(plans, *sweeps.values())])
        labels = [
            Label(text=plan.name, x=plan.time_s, y=plan.energy_j, colour=theme.PLANS if plan in ours else theme.INK)
            for plan in named
        ]
        place_labels(ax, labels, avoid=points)
    return cast("Figure", ax.figure)


def _around(values: Sequence[float], *, more: float) -> tuple[float, float]:
    low, high = min(values), max(values)
    room = more * (high - low) or 0.01 * abs(high)
    return low - room, high + room


def plot_savings(
    stragglers: Sequence[float],
    intrinsic_percent: Sequence[float],
    extrinsic_percent: Sequence[float],
    *,
    title: str,
    ax: Axes | None = None,
) -> Figure:
    """Draw a bar for each straggler: the plans' own saving, and on top that of reacting to the straggler.

    Args:
        stragglers: (num_stragglers) how many times slower each is.
        intrinsic_percent: (num_stragglers) [%].
        extrinsic_percent: (num_stragglers) [%].
        title: Above the picture.
        ax: Axes to draw into. Without it a figure is made.
    """
    with theme.style():
        ax = ax or Figure(figsize=SIZE_IN, layout="constrained").add_subplot()
        x = np.arange(len(stragglers))
        ax.bar(x, intrinsic_percent, width=0.6, color=theme.PLANS, label="intrinsic")
        ax.bar(x, extrinsic_percent, width=0.6, bottom=intrinsic_percent, color=theme.CONSTANT, label="extrinsic")
        ax.set_xticks(x, [f"{straggler:g}" for straggler in stragglers])
        ax.set(xlabel="straggler: times slower", ylabel="saving of the job [%]")
        ax.spines[["top", "right"]].set_visible(False)
        ax.set_title(theme.drawable(title), loc="left", size=10.5, weight="bold")
        if len(stragglers):
            ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    return cast("Figure", ax.figure)
