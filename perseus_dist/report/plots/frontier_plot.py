"""The frontier: energy against iteration time, with the certified bound, the baselines and the chosen plan."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter
from numpy.typing import ArrayLike

from perseus_dist.report.plots import theme
from perseus_dist.report.plots.formatting import against_text, energy_text, time_text
from perseus_dist.report.plots.labels import Label, place_labels
from perseus_dist.units import FloatArray

SIZE_IN = (8.0, 5.0)
_LEFT, _RIGHT, _BOTTOM, _TOP = 0.09, 0.915, 0.1, 0.84  # of the figure
BOX = (_LEFT, _BOTTOM, _RIGHT - _LEFT, _TOP - _BOTTOM)
"""Left, bottom, width and height of the axes, with room for the scales of saving and slowdown."""
_BELOW = 0.15  # room for labels below the curve, as a share of what is drawn
_TITLE_PT = 10.5  # less where the title would not fit

# Baselines, measured points, the chosen plan.
_LOOKS: tuple[dict[str, Any], ...] = (
    {"label": "baselines", "marker": "s", "ms": 5, "mfc": theme.INK, "mec": "white", "mew": 0.6},
    {"label": "measured", "marker": "D", "ms": 5, "mfc": "white", "mec": theme.PLANS, "mew": 1.1},
    {"label": "chosen", "marker": "o", "ms": 9, "mfc": "none", "mec": theme.ACCENT, "mew": 1.8},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedPoint:
    """An iteration worth a name: its time and the energy of the whole pipeline.

    Attributes:
        name: May have several lines.
        time_s: [s] of the iteration.
        energy_j: [J] of the iteration.
        against: What its saving and slowdown are relative to; None for the picture's own reference.
        is_quiet: Whether it is drawn without a label.
    """

    name: str
    time_s: float
    energy_j: float
    against: "MarkedPoint | None" = None
    is_quiet: bool = False


def plot_frontier(
    *,
    times_s: ArrayLike,
    energies_j: ArrayLike,
    bounds_j: ArrayLike,
    baselines: Sequence[MarkedPoint],
    chosen: MarkedPoint | None,
    t_min_s: float | None,
    t_star_s: float,
    t_prime_s: float | None = None,
    measured: Sequence[MarkedPoint] = (),
    title: str,
    ax: Axes | None = None,
) -> Figure:
    """Draw realised plans as dots over the certified lower bound, and name everything where it stands.

    Args:
        times_s: (num_points) [s] iteration times of the realised plans, at least one, ascending.
        energies_j: (num_points) [J] their energies.
        bounds_j: (num_points) [J] the certified lower bound at each time.
        baselines: Points to compare with. The first is the reference: saving and slowdown are against it.
        chosen: The plan that was chosen.
        t_min_s: [s] the iteration time at all-maximum clocks, where it is known.
        t_star_s: [s] the iteration of minimum energy.
        t_prime_s: [s] the straggler's iteration time.
        measured: Points that were measured, not predicted; drawn as diamonds. Those that are against nothing show no
            saving and slowdown.
        title: Above the picture.
        ax: Axes to draw into, with room for the scales of saving and slowdown. Without it a figure is made.

    Returns:
        The figure.
    """
    times, energies, bounds = (np.asarray(values, dtype=np.float64) for values in (times_s, energies_j, bounds_j))
    chosen_points = [chosen] if chosen else []
    named_times = [("T_min", t_min_s), ("T*", t_star_s), ("T'", t_prime_s)]
    hairlines = [(name, time_s) for name, time_s in named_times if time_s is not None]
    with theme.style():
        if ax is None:
            ax = Figure(figsize=SIZE_IN).add_axes(BOX)
        for _, time_s in hairlines:
            ax.axvline(time_s, color=theme.HAIRLINE, linewidth=0.6, zorder=0.5)
        ax.plot(times, energies, color=theme.PLANS, linestyle="none", marker="o", ms=3.2, mew=0, label="plans")
        ax.plot(times, bounds, color=theme.INK, linewidth=0.8, label="lower bound")
        points_xy = [
            _mark(ax, points, look) for points, look in zip((baselines, measured, chosen_points), _LOOKS, strict=True)
        ]
        ax.margins(0.06, 0.09)
        ax.autoscale_view()
        low_j, high_j = ax.get_ylim()
        ax.set_ylim(low_j - _BELOW * (high_j - low_j), high_j)
        scale_axes(ax, baselines)
        room_pt = ax.get_window_extent().width * theme.POINTS_PER_INCH / ax.figure.dpi
        title = theme.drawable(title)
        shrunk = min(1.0, room_pt / max(1.0, theme.text_width_pt(title, _TITLE_PT, weight="bold")))
        ax.set_title(title, loc="left", size=_TITLE_PT * shrunk, weight="bold", pad=34 if baselines else 10)
        labels = [
            *(_point_label(point, baselines, colour=theme.ACCENT) for point in chosen_points),
            *(
                _point_label(point, (point.against or point,), colour=theme.PLANS)
                for point in measured
                if not point.is_quiet
            ),
            *(_point_label(point, baselines) for point in baselines if not point.is_quiet),
            *(Label(text=f"{name}  {time_text(x)}", x=x, colour=theme.MUTED) for name, x in hairlines),
            *_curve_labels(times, energies, bounds),
        ]
        along_s = np.linspace(times[0], times[-1], 200)
        curve_xy = np.stack([along_s, np.interp(along_s, times, bounds)], axis=1)
        plans_xy = np.stack([times, energies], axis=1)
        place_labels(ax, labels, avoid=np.concatenate([curve_xy, plans_xy, *points_xy]))
    return cast("Figure", ax.figure)


def _mark(ax: Axes, points: Sequence[MarkedPoint], look: Mapping[str, Any]) -> FloatArray:
    """Draw points without a line; returns their coordinates, (num_points, 2)."""
    xy = np.array([(point.time_s, point.energy_j) for point in points]).reshape(-1, 2)
    ax.plot(xy[:, 0], xy[:, 1], linestyle="none", **look)
    return xy


def scale_axes(ax: Axes, baselines: Sequence[MarkedPoint]) -> None:
    """Time and energy left and below; slowdown and saving against the reference above and right."""
    ax.set_xlabel("iteration time [s]")
    ax.set_ylabel("energy of an iteration [J]")
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    ax.spines[["top", "right"]].set_visible(False)
    if not baselines:
        return
    name, time_s, energy_j = baselines[0].name, baselines[0].time_s, baselines[0].energy_j
    slowdown = ax.secondary_xaxis(
        "top",
        functions=(lambda x: 100 * (np.asarray(x) / time_s - 1), lambda x: time_s * (1 + np.asarray(x) / 100)),
    )
    saving = ax.secondary_yaxis(
        "right",
        functions=(lambda y: 100 * (1 - np.asarray(y) / energy_j), lambda y: energy_j * (1 - np.asarray(y) / 100)),
    )
    slowdown.set_xlabel(f"slowdown against {name} [%]", labelpad=5)
    saving.set_ylabel(f"saving against {name} [%]", labelpad=5)


def _point_label(point: MarkedPoint, baselines: Sequence[MarkedPoint], *, colour: str = theme.INK) -> Label:
    """Name and figures; saving and slowdown too, unless the point is the reference itself."""
    lines = [point.name, f"{time_text(point.time_s)}, {energy_text(point.energy_j)}"]
    if baselines and point is not baselines[0]:
        reference = baselines[0]
        lines.append(
            against_text(
                time_s=point.time_s,
                energy_j=point.energy_j,
                reference_time_s=reference.time_s,
                reference_energy_j=reference.energy_j,
            )
        )
    return Label(text="\n".join(lines), x=point.time_s, y=point.energy_j, colour=colour)


def _curve_labels(times_s: FloatArray, energies_j: FloatArray, bounds_j: FloatArray) -> list[Label]:
    """Name the two curves where they are, at different places along them."""
    early, late = len(times_s) * 2 // 5, len(times_s) * 3 // 5
    return [
        Label(text="realised plans", x=times_s[early], y=energies_j[early], colour=theme.PLANS, side=1),
        Label(text="certified lower bound", x=times_s[late], y=bounds_j[late], side=-1),
    ]
