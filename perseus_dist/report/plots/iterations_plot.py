"""Time and energy of every iteration of a run: the baseline, the sweep and the plan, one above the other."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from perseus_dist.messages.job_status import MeasuredIterations
from perseus_dist.report.analysis.iterations import Iterations, Under
from perseus_dist.report.plots import theme
from perseus_dist.report.plots.formatting import energy_text, time_text
from perseus_dist.units import FloatArray, IntArray

WIDTH_IN = 9.0
MAX_POINTS = 1500
"""With more iterations than these, a point is the median of several."""

_LEFT, _RIGHT, _TOP, _BOTTOM, _PANEL, _BETWEEN = 0.75, 0.75, 0.62, 0.45, 1.45, 0.22  # inches

_COLOURS: dict[int, str] = {
    Under.NO_CLOCK: theme.INK,
    Under.SWEEP: theme.HAIRLINE,
    Under.PLAN: theme.PLANS,
    Under.RELEASED: theme.ACCENT,
}
_INKS: dict[int, str] = {**_COLOURS, Under.SWEEP: theme.MUTED}
_NAMES: dict[int, str] = {
    Under.NO_CLOCK: "baseline",
    Under.SWEEP: "profiling",
    Under.PLAN: "under the plan",
    Under.RELEASED: "no plan",
}
_FAR = 2.5  # times more or less than the median: what lies beyond stands at the edge, as a triangle
_MIN_SPAN_SHARE = 0.04  # of the median, so that noise does not fill the picture


def plot_iterations(iterations: Iterations, *, baseline: MeasuredIterations, title: str) -> Figure:
    """Draw time above energy, coloured and named by what the iterations ran under.

    Args:
        iterations: At least one.
        baseline: Where a line is drawn across.
        title: Above the picture.
    """
    number, under = iterations.number, iterations.under
    panels = [_Panel("iteration time [s]", iterations.time_s, baseline.time_s, time_text)]
    if not np.isnan(iterations.energy_j).all():
        panels.append(_Panel("energy [J]", iterations.energy_j, baseline.energy_j, energy_text))
    with theme.style():
        height_in = _TOP + _BOTTOM + len(panels) * (_PANEL + _BETWEEN) - _BETWEEN
        fig = Figure(figsize=(WIDTH_IN, height_in))
        y_in = height_in - _TOP + _BETWEEN
        for panel in panels:
            y_in -= _PANEL + _BETWEEN
            ax = fig.add_axes((_LEFT / WIDTH_IN, y_in / height_in, 1 - (_LEFT + _RIGHT) / WIDTH_IN, _PANEL / height_in))
            _draw(ax, *_thinned(number, panel.values, under))
            _draw_reference(ax, panel)
            ax.set_ylabel(panel.label)
            ax.yaxis.set_label_coords(-0.6 * _LEFT / (WIDTH_IN - _LEFT - _RIGHT), 0.5)
            ax.yaxis.set_major_formatter(StrMethodFormatter("{x:,.6g}"))
            ax.yaxis.set_major_locator(MaxNLocator(4))
            ax.spines[["top", "right"]].set_visible(False)
            ax.set_xlim(number[0] - 0.5, number[-1] + 0.5)
            ax.xaxis.set_major_locator(MaxNLocator(12, integer=True))
            ax.tick_params(axis="x", labelbottom=panel is panels[-1])
        fig.axes[-1].set_xlabel("iteration")
        _name_stretches(fig.axes[0], number, under)
        fig.text(0.2 / WIDTH_IN, 1 - 0.25 / height_in, theme.drawable(title), size=10.5, weight="bold")
    return fig


class _Panel(NamedTuple):
    label: str
    values: FloatArray
    reference: float
    text: Callable[[float], str]


def _draw_reference(ax: Axes, panel: _Panel) -> None:
    if panel.reference > 0:
        ax.axhline(panel.reference, color=theme.HAIRLINE, linewidth=0.6, zorder=0.5)
        at = ax.get_yaxis_transform()
        text = panel.text(panel.reference)
        ax.text(1.005, panel.reference, text, transform=at, va="center", color=theme.MUTED, size=theme.SMALL_PT)


def _draw(ax: Axes, number: FloatArray, values: FloatArray, under: IntArray) -> None:
    known = values[~np.isnan(values)]
    usual = known[(known <= _FAR * np.median(known)) & (known >= np.median(known) / _FAR)]
    low, high = float(usual.min()), float(usual.max())
    margin = max(0.06 * (high - low), _MIN_SPAN_SHARE * float(np.median(known)) / 2)
    low, high = low - margin, high + margin
    size = 3.4 if len(number) <= 300 else 1.8
    ax.plot(number, np.clip(values, low, high), color=theme.WAITING, linewidth=0.8, zorder=1)
    for kind, colour in _COLOURS.items():
        of_kind = under == kind
        for marker, grown, chosen in (
            ("o", 0.0, (values >= low) & (values <= high)),
            ("^", 1.5, values > high),
            ("v", 1.5, values < low),
        ):
            at = of_kind & chosen  # nowhere where the value is not known
            edge = np.clip(values[at], low, high)
            ax.plot(number[at], edge, marker, ms=size + grown, mew=0, color=colour, clip_on=not grown, zorder=2)
    ax.set_ylim(low, high)


def _name_stretches(ax: Axes, number: IntArray, under: IntArray) -> None:
    """Name each stretch of iterations above the picture, where there is room, in its colour."""
    per_pt = (number[-1] - number[0] + 1) / ((WIDTH_IN - _LEFT - _RIGHT) * theme.POINTS_PER_INCH)
    begins = np.flatnonzero(np.diff(under, prepend=-1))
    taken = -np.inf
    for begin in begins.tolist():
        kind = int(under[begin])
        left = number[begin] - 0.5
        if left > taken:
            at = ax.get_xaxis_transform()
            ax.text(left, 1.04, _NAMES[kind], transform=at, color=_INKS[kind], size=theme.SMALL_PT, weight="bold")
            taken = left + (theme.text_width_pt(_NAMES[kind], theme.SMALL_PT, weight="bold") + 6) * per_pt
        if begin:
            ax.axvline(left, color=theme.HAIRLINE, linewidth=0.6, zorder=0.5)


def _thinned(number: IntArray, values: FloatArray, under: IntArray) -> tuple[FloatArray, FloatArray, IntArray]:
    """Medians of neighbours that ran under the same, where there are too many iterations to see."""
    step = -(-len(number) // MAX_POINTS)
    if step == 1:
        return number.astype(np.float64), values, under
    begins = np.flatnonzero((np.arange(len(number)) % step == 0) | (np.diff(under, prepend=-1) != 0))
    parts = [slice(begin, end) for begin, end in zip(begins, np.append(begins[1:], len(number)), strict=True)]
    medians = [np.median(known) if len(known := values[part][~np.isnan(values[part])]) else np.nan for part in parts]
    return np.array([number[part].mean() for part in parts]), np.array(medians), under[begins]
