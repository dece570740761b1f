"""The timeline: what every pp_rank does and waits for during one iteration, one panel per execution, drawn to compare.

All panels share the time axis, the windows and the colour scale. Colour is the clock; forward and backward differ by
height, so that the picture can be read without colour.
"""

from collections.abc import Sequence
from itertools import pairwise

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from perseus_dist.planning.frontier.replay import Execution
from perseus_dist.planning.schedule.instruction import NO_MICROBATCH
from perseus_dist.report.plots import theme
from perseus_dist.report.plots.formatting import against_text, energy_text, time_text
from perseus_dist.report.plots.timeline_key import HATCH, draw_colour_bar, draw_key
from perseus_dist.report.plots.timeline_layout import (
    BOTTOM,
    WAITING_TOP,
    Rows,
    Window,
    rectangles,
    rows,
    underlines,
    waits,
    windows,
)
from perseus_dist.units import j_from_uj, s_from_ps

WIDTH_IN = 12.0
CMAP = "cividis"
RASTERISE_ABOVE_BOXES = 12_000
"""Above this many boxes in a window they are pixels inside the SVG; text and lines never are."""

# Inches. The first two lines are margins and distances, the third what a panel may take.
_LEFT, _RIGHT, _HEADER, _BETWEEN, _TIMES, _WINDOW_NAMES, _FOOT = 0.55, 0.2, 0.38, 0.16, 0.26, 0.16, 0.46
_CHUNK_NAMES, _CUT, _TICK_TO_CUT, _TITLE = 0.42, 0.26, 0.2, 0.3
_PANEL, _MIN_SUB_ROW, _MAX_SUB_ROW = 3.2, 0.065, 0.34

_MIN_LABEL_PT = 5.0
_TEXT_Y = 0.55  # one line of type per sub-row, unless a box is too low for it


def plot_timeline(executions: Sequence[tuple[str, Execution]], *, title: str = "", fig: Figure | None = None) -> Figure:
    """Draw executions below one another on the same time axis and colour scale.

    A computation with clock 0, which happens in measured executions, is grey; an execution without energy shows none.

    Args:
        executions: Name and execution, top to bottom; saving and slowdown are against the first.
        title: Above them all.
        fig: An empty figure to draw into; its size is kept. Without it a figure of fitting height is made.

    Returns:
        The figure: one axes per execution and window, in that order, then the key and the colour bar.
    """
    played = [execution for _, execution in executions]
    layouts = [rows(execution.dag) for execution in played]
    shown = windows(played)
    norm = _clock_norm(played)
    heights_in = np.array([r.height * np.clip(_PANEL / r.height, _MIN_SUB_ROW, _MAX_SUB_ROW) for r in layouts])
    around_in = len(played) * (_HEADER + _BETWEEN) + _TIMES + _WINDOW_NAMES * (len(shown) > 1) + _FOOT
    around_in += _TITLE * bool(title)
    with theme.style():
        if fig is None:
            fig = Figure(figsize=(WIDTH_IN, heights_in.sum() + around_in))
        y_in = float(fig.get_size_inches()[1])
        heights_in *= (y_in - around_in) / heights_in.sum()
        left_in = _LEFT + _CHUNK_NAMES * any(map(_names_chunks, layouts, heights_in.tolist()))
        if title:
            y_in -= _TITLE
            where = (left_in / fig.get_figwidth(), y_in / fig.get_figheight())
            fig.text(*where, theme.drawable(title), size=10.5, color=theme.MUTED)
        for (name, execution), layout, panel_in in zip(executions, layouts, heights_in.tolist(), strict=True):
            y_in -= _HEADER + panel_in
            axes = _add_axes(fig, shown, layout, left_in=left_in, y_in=y_in, panel_in=panel_in)
            _draw_execution(axes, shown, execution, layout, norm)
            if len(shown) == 1:
                _label_boxes(axes[0], execution, layout, norm, _points_per_unit(fig, axes[0]))
            _draw_header(axes[0], name, execution, reference=played[0])
            y_in -= _BETWEEN
        same_time = len({execution.time_ps for execution in played}) == 1
        _label_times(axes, shown, of="the iteration" if same_time else "the longest iteration")
        drawn = (one.dag.instructions[index] for one in played for index in np.flatnonzero(one.dag.on_rank))
        kinds = {instruction.kind for instruction in drawn}
        draw_key(fig, kinds=kinds, left_in=_LEFT, bottom_in=0.17)
        if any(execution.clocks_mhz.any() for execution in played):
            draw_colour_bar(fig, norm, cmap=CMAP, right_in=_RIGHT + 0.1, bottom_in=0.27)
    return fig


def _clock_norm(played: Sequence[Execution]) -> Normalize:
    """One colour scale for all clocks; a single clock gets the upper end of a scale from 0."""
    clocks_mhz = np.concatenate([execution.clocks_mhz for execution in played])
    high = int(clocks_mhz.max(initial=0)) or 1
    low = int(clocks_mhz[clocks_mhz > 0].min(initial=high))
    return Normalize(vmin=low if low < high else 0, vmax=high)


def _points_per_unit(fig: Figure, ax: Axes) -> tuple[float, float]:
    """Points per second and per sub-row."""
    size_pt = fig.get_size_inches() * theme.POINTS_PER_INCH
    place = ax.get_position()
    per_s = size_pt[0] * place.width / (ax.get_xlim()[1] - ax.get_xlim()[0])
    return float(per_s), float(size_pt[1] * place.height / ax.get_ylim()[0])


def _add_axes(
    fig: Figure, shown: Sequence[Window], layout: Rows, *, left_in: float, y_in: float, panel_in: float
) -> list[Axes]:
    """One axes per window, side by side, all with the same seconds per inch, ranks named and cuts marked."""
    width_in, height_in = fig.get_size_inches()
    x_in = left_in
    free_in = width_in - x_in - _RIGHT - _CUT * (len(shown) - 1)
    shown_s = sum(window.end_s - window.start_s for window in shown)
    s_per_in = shown_s / free_in
    step_s = float(np.diff(MaxNLocator(nbins=int(1.4 * free_in), steps=[1, 2, 5, 10]).tick_values(0, shown_s))[0])
    axes: list[Axes] = []
    for window in shown:
        wide_in = (window.end_s - window.start_s) / s_per_in
        ax = fig.add_axes((x_in / width_in, y_in / height_in, wide_in / width_in, panel_in / height_in))
        ax.set(xlim=(window.start_s, window.end_s), ylim=(layout.height, 0), yticks=())
        low_s = window.start_s + _TICK_TO_CUT * s_per_in * (window is not shown[0])
        high_s = window.end_s - _TICK_TO_CUT * s_per_in * (window is not shown[-1])
        ax.set_xticks(np.arange(np.ceil(low_s / step_s), np.floor(high_s / step_s) + 1) * step_s)
        ax.spines[["left", "right", "top"]].set_visible(False)
        ax.tick_params(axis="x", length=3, labelbottom=False)
        axes.append(ax)
        x_in += wide_in + _CUT
    _name_ranks(axes[0], layout, panel_in)
    for before, after in pairwise(axes):
        _mark_cut(fig, before, after)
    return axes


def _names_chunks(layout: Rows, panel_in: float) -> bool:
    """Whether ranks have several chunks, in sub-rows high enough for a name."""
    return bool(layout.chunk.any()) and theme.POINTS_PER_INCH * panel_in / layout.height >= theme.SMALL_PT


def _name_ranks(ax: Axes, layout: Rows, panel_in: float) -> None:
    """Number the ranks and name their chunks, leaving out what would touch."""
    name_chunks = _names_chunks(layout, panel_in)
    middle = (layout.rank_top + layout.rank_bottom) / 2
    apart_pt = theme.POINTS_PER_INCH * panel_in / layout.height * float(np.diff(middle).min(initial=layout.height))
    step = int(np.ceil(1.2 * theme.SMALL_PT / apart_pt))
    ax.set_yticks(middle[::step], [str(rank) for rank in range(0, len(middle), step)])
    ax.tick_params(axis="y", length=0, pad=4 + theme.POINTS_PER_INCH * _CHUNK_NAMES * name_chunks)
    ax.set_ylabel("pp_rank", labelpad=4)
    if name_chunks:
        places, first = np.unique(layout.top, return_index=True)
        ax.set_yticks(places + _TEXT_Y, [f"chunk {chunk}" for chunk in layout.chunk[first]], minor=True)
        ax.tick_params(axis="y", which="minor", length=0, pad=4)


def _mark_cut(fig: Figure, before: Axes, after: Axes) -> None:
    """A torn edge between two windows: here the time axis is cut."""
    place = before.get_position()
    middle, reach = (place.x1 + after.get_position().x0) / 2, 0.12 * (after.get_position().x0 - place.x1)
    teeth = 2 * max(2, round(place.height * fig.get_size_inches()[1] / 0.16))
    y = np.linspace(place.y0, place.y1, teeth + 1)
    x = middle + reach * (-1.0) ** np.arange(teeth + 1)
    fig.add_artist(Line2D(x, y, color=theme.HAIRLINE, linewidth=0.7, solid_joinstyle="miter", label="cut"))


def _draw_execution(
    axes: Sequence[Axes], shown: Sequence[Window], execution: Execution, layout: Rows, norm: Normalize
) -> None:
    """Boxes, waiting, the critical path and the end of the iteration, in every window."""
    start_s, end_s = s_from_ps(execution.start_ps), s_from_ps(execution.end_ps)
    boxes = rectangles(start_s, end_s, layout.box_top, layout.top + BOTTOM)
    rank, wait_start_ps, wait_end_ps = waits(execution)
    top, bottom = layout.rank_top[rank] + WAITING_TOP, layout.rank_bottom[rank] - 1 + BOTTOM
    gaps = rectangles(s_from_ps(wait_start_ps), s_from_ps(wait_end_ps), top, bottom)
    lines = underlines(execution, layout)
    constant = np.array([instruction.is_constant for instruction in execution.dag.instructions], dtype=bool)
    unknown = ~constant & (execution.clocks_mhz == 0)
    on_rank = execution.dag.on_rank
    iteration_s = float(s_from_ps(execution.time_ps))
    edge_pt = 0.5 if len(shown) == 1 else 0.0
    for ax, window in zip(axes, shown, strict=True):
        inside = on_rank & window.shows(start_s, end_s)
        waiting = PolyCollection(
            list(gaps[window.shows(gaps[:, 0, 0], gaps[:, 1, 0])]),
            facecolors=theme.WAITING,
            linewidths=0,
            label="waiting",
        )
        computing = PolyCollection(
            list(boxes[inside & ~constant & ~unknown]),
            array=execution.clocks_mhz[inside & ~constant & ~unknown],
            cmap=CMAP,
            norm=norm,
            edgecolors="white",
            linewidths=edge_pt,
            label="computing",
        )
        fixed = PolyCollection(
            list(boxes[inside & constant]),
            facecolors=theme.CONSTANT,
            edgecolors="white",
            hatch=HATCH,
            linewidths=edge_pt,
            label="constant",
        )
        grey = PolyCollection(
            list(boxes[inside & unknown]),
            facecolors=theme.HAIRLINE,
            edgecolors="white",
            linewidths=edge_pt,
            label="clock not known",
        )
        critical = LineCollection(
            list(lines[window.shows(lines[:, 0, 0], lines[:, 1, 0])]),
            colors=theme.ACCENT,
            linewidths=theme.UNDERLINE_PT,
            capstyle="butt",
            label="critical path",
        )
        for collection in (waiting, computing, fixed, grey):
            collection.set_rasterized(int(inside.sum()) > RASTERISE_ABOVE_BOXES)
        for artist in (waiting, computing, fixed, grey, critical):
            ax.add_collection(artist, autolim=False)
        if window.start_s < iteration_s <= window.end_s:
            ax.axvline(iteration_s, color=theme.INK, linewidth=theme.END_PT, clip_on=False, label="end of iteration")


def _label_boxes(
    ax: Axes, execution: Execution, layout: Rows, norm: Normalize, points_per_unit: tuple[float, float]
) -> None:
    """Kind and microbatch, in the boxes that are wide and high enough for it."""
    size_pt = min(theme.SMALL_PT, 0.55 * points_per_unit[1])
    if size_pt < _MIN_LABEL_PT:
        return
    wide_pt = s_from_ps(execution.end_ps - execution.start_ps) * points_per_unit[0]
    middle_s = s_from_ps(execution.start_ps + execution.end_ps) / 2
    y = np.maximum(layout.top + _TEXT_Y, (layout.box_top + layout.top + BOTTOM) / 2)
    colours = mpl.colormaps[CMAP](norm(execution.clocks_mhz))
    for index in np.flatnonzero(execution.dag.on_rank).tolist():
        instruction = execution.dag.instructions[index]
        text = instruction.kind + ("" if instruction.microbatch == NO_MICROBATCH else str(instruction.microbatch))
        if theme.text_width_pt(text, size_pt) + 3 <= wide_pt[index]:
            has_colour = execution.clocks_mhz[index] > 0
            ink = theme.ink_on(colours[index]) if has_colour else theme.INK
            label = ax.text(middle_s[index], y[index], text, size=size_pt, color=ink, ha="center", va="center_baseline")
            label.set_gid(theme.ON_COLOUR)


def _draw_header(ax: Axes, name: str, execution: Execution, *, reference: Execution) -> None:
    """Name, iteration time and energy, and against the reference what is saved and what it costs in time."""
    time_s, energy_j = float(s_from_ps(execution.time_ps)), float(j_from_uj(execution.total_uj))
    figures = f"{time_text(time_s)}, {energy_text(energy_j)}" if energy_j else time_text(time_s)
    if execution is not reference:
        figures += "    " + against_text(
            time_s=time_s,
            energy_j=energy_j,
            reference_time_s=float(s_from_ps(reference.time_ps)),
            reference_energy_j=float(j_from_uj(reference.total_uj)),
        )
    title = ax.annotate(
        name, (0, 1), (0, 7), xycoords="axes fraction", textcoords="offset points", size=10.5, weight="bold"
    )
    ax.annotate(figures, (1, 0), (9, 0), xycoords=title, textcoords="offset points", size=9.5, va="bottom")


def _label_times(axes: Sequence[Axes], shown: Sequence[Window], *, of: str) -> None:
    """Times under the lowest panel, in one unit and with the decimals they need, and what each window covers."""
    scale, unit = (1.0, "s") if shown[-1].end_s >= 1 else (1e3, "ms")
    ticks = np.concatenate([ax.get_xticks() for ax in axes]) * scale
    decimals = next(n for n in range(10) if np.allclose(np.round(ticks, n), ticks, rtol=0, atol=1e-9 * scale))
    for ax, window in zip(axes, shown, strict=True):
        ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x * scale:.{decimals}f} {unit}"))
        ax.tick_params(axis="x", labelbottom=True)
        if window.name:
            ax.set_xlabel(f"{window.name}: {100 * window.share:.0f} % of {of}", size=theme.BODY_PT, labelpad=2)
