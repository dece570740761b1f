"""A picture of cost curves: what was measured, what is worth choosing, and the hull that planning works on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from perseus_dist.planning.profile.cost_curve import CostCurve
from perseus_dist.planning.schedule.instruction import profile_name
from perseus_dist.report.plots import theme
from perseus_dist.units import FloatArray, j_from_uj, s_from_ps

CMAP = "cividis"
PANEL_IN = (3.0, 2.2)
MAX_COLUMNS = 4
MARGIN = 0.08  # of an axis, around the measured points


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One curve to draw, with what needs a second look.

    Attributes:
        curve: The cost curve.
        suspicious: Indices into its clocks.
        rejected: (time [s], effective energy of the whole group [J]) of rows that the curve leaves out.
    """

    curve: CostCurve
    suspicious: Sequence[int] = ()
    rejected: Sequence[tuple[float, float]] = ()


def plot_cost_curves(panels: Sequence[Panel], *, title: str) -> Figure:
    """Small multiples: the stages of each kind side by side, wrapped; each has its own axes, all share the colours."""
    rows: list[Sequence[Panel]] = []
    for kind in dict.fromkeys(panel.curve.kind for panel in panels):
        of_kind = [panel for panel in panels if panel.curve.kind == kind]
        rows += [of_kind[start : start + MAX_COLUMNS] for start in range(0, len(of_kind), MAX_COLUMNS)]
    num_columns = max(map(len, rows))
    clock_range = _clock_range([panel.curve for panel in panels])
    width_in, height_in = PANEL_IN
    with theme.style():
        fig = Figure(figsize=(max(num_columns, 2) * width_in + 1, len(rows) * height_in + 1), layout="constrained")
        axes = fig.subplots(len(rows), num_columns, squeeze=False)
        legend: dict[str, Any] = {}
        for row, row_axes in zip(rows, axes, strict=True):
            for ax in row_axes[len(row) :]:
                ax.set_axis_off()
            row_axes[0].set_ylabel("effective energy [J]")
            for panel, ax in zip(row, row_axes, strict=False):
                _draw(panel, ax, clock_range)
                ax.set_xlabel("time [s]" if row is rows[-1] else "")
                legend |= {label: handle for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
        fig.suptitle(theme.drawable(title), parse_math=False)
        fig.colorbar(ScalarMappable(clock_range, CMAP), ax=axes, label="clock [MHz]", aspect=40, pad=0.01)
        fig.legend(list(legend.values()), list(legend), loc="outside lower center", ncols=len(legend), frameon=False)
    return fig


def _draw(panel: Panel, ax: Axes, clock_range: Normalize) -> None:
    curve = panel.curve
    time_s, energy_j = s_from_ps(curve.durations_ps), j_from_uj(curve.effective_uj)
    at = curve.hull
    ax.plot(time_s[at], energy_j[at], color=theme.HAIRLINE, linewidth=1, zorder=1, label="convex hull")
    at = curve.choices
    ax.scatter(time_s[at], energy_j[at], s=30, c="none", edgecolors=theme.MUTED, linewidths=0.7, label="Pareto choice")
    colours = curve.clocks_mhz
    ax.scatter(time_s, energy_j, s=11, c=colours, cmap=CMAP, norm=clock_range, linewidths=0, label="measured")
    x_range, y_range = _padded(time_s), _padded(energy_j)
    if panel.suspicious:
        at = np.array(panel.suspicious)
        ax.scatter(time_s[at], energy_j[at], s=80, c="none", edgecolors=theme.ACCENT, label="suspicious point")
    if panel.rejected:
        x, y = np.array(panel.rejected).T
        x, y = np.clip(x, *x_range), np.clip(y, *y_range)
        ax.scatter(x, y, s=25, c=theme.ACCENT, marker="x", clip_on=False, label="rejected row (far ones at the edge)")
    ax.set(xlim=x_range, ylim=y_range)
    ax.locator_params(nbins=6)
    ax.set_title(f"stage {curve.stage} {profile_name(curve.kind)}", loc="left")
    ax.text(0.97, 0.95, _note(curve), transform=ax.transAxes, ha="right", va="top", fontsize=theme.SMALL_PT)
    ax.spines[["top", "right"]].set_visible(False)


def _clock_range(curves: Sequence[CostCurve]) -> Normalize:
    return Normalize(min(curve.clocks_mhz[-1] for curve in curves), max(curve.clocks_mhz[0] for curve in curves))


def _padded(values: FloatArray) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    pad = MARGIN * (high - low) or 0.01 * abs(high)
    return low - pad, high + pad


def _note(curve: CostCurve) -> str:
    """Effect of the step from the maximum clock to the one of least energy."""
    return (
        f"least at {curve.clocks_mhz[curve.at_least_energy]} MHz:\n"
        f"{-100 * curve.saving_share:+.1f} % energy\n{100 * curve.slowdown_share:+.1f} % time"
    )
