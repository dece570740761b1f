"""A schedule as a diagram: what each pp_rank runs, in units of a forward."""

from typing import cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from perseus_dist.planning.schedule.dag import Dag
from perseus_dist.planning.schedule.instruction import Kind, profile_name
from perseus_dist.report.plots import theme
from perseus_dist.report.plots.timeline_layout import BOTTOM, rectangles, rows

WIDTH_IN = 12.0
COLOURS: dict[str, str] = {
    Kind.FORWARD: theme.PLANS,
    Kind.BACKWARD: "#3f9c82",
    Kind.INPUT_GRADIENT: "#3f9c82",
    Kind.WEIGHT_GRADIENT: "#b7d9cd",
    Kind.FORWARD_BACKWARD: "#7a6bb0",
}
_SUB_ROW_IN, _MAX_PANEL_IN, _BELOW_IN, _ABOVE_IN = 0.34, 8.0, 0.5, 0.35
_LEFT, _RIGHT = 0.05, 0.985  # of the figure
_RASTERISE_ABOVE = 12_000
_MAX_NAMED_RANKS = 24
_MIN_LABEL_PT = 5.0


def plot_schedule(dag: Dag, starts: ArrayLike, ends: ArrayLike, *, title: str = "", ax: Axes | None = None) -> Figure:
    """Draw a box for each computation, with its microbatch where there is room.

    Args:
        dag: The instructions.
        starts: (num_instructions) when each begins, in any unit of time.
        ends: (num_instructions) when each ends; those that take no time are not drawn.
        title: Above the picture.
        ax: Axes to draw into. Without it a figure is made, as high as the schedule needs.
    """
    left, right = np.asarray(starts, dtype=np.float64), np.asarray(ends, dtype=np.float64)
    layout = rows(dag)
    boxes = rectangles(left, right, layout.box_top, layout.top + BOTTOM)
    kinds = np.array([instruction.kind for instruction in dag.instructions])
    with theme.style():
        if ax is None:
            panel_in = min(_MAX_PANEL_IN, _SUB_ROW_IN * layout.height)
            height_in = panel_in + _BELOW_IN + _ABOVE_IN
            box = (_LEFT, _BELOW_IN / height_in, _RIGHT - _LEFT, panel_in / height_in)
            ax = Figure(figsize=(WIDTH_IN, height_in)).add_axes(box)
        ax.set(xlim=(0, float(right.max(initial=0.0)) or 1.0), ylim=(layout.height, 0), xlabel="time [forwards]")
        for kind in [kind for kind in COLOURS if kind in kinds]:
            chosen = (kinds == kind) & (right > left)
            drawn = PolyCollection(
                list(boxes[chosen]),
                facecolors=COLOURS[kind],
                edgecolors="white",
                linewidths=0.4,
                label=profile_name(kind).replace("_", " "),
            )
            drawn.set_rasterized(bool(chosen.sum() > _RASTERISE_ABOVE))
            ax.add_collection(drawn, autolim=False)
        _name_ranks(ax, (layout.rank_top + layout.rank_bottom) / 2)
        if title:
            ax.set_title(theme.drawable(title), loc="left", size=10.5, weight="bold", pad=8)
        ax.legend(loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0.2, ncols=5, frameon=False)
        _label_boxes(ax, dag, left, right, layout.top, layout.box_top)
    return cast("Figure", ax.figure)


def _name_ranks(ax: Axes, middle: ArrayLike) -> None:
    places = np.asarray(middle)
    step = -(-len(places) // _MAX_NAMED_RANKS)
    ax.set_yticks(places[::step], [str(rank) for rank in range(0, len(places), step)])
    ax.set_ylabel("pp_rank")
    ax.tick_params(axis="y", length=0)
    ax.spines[["left", "right", "top"]].set_visible(False)


def _label_boxes(ax: Axes, dag: Dag, left: ArrayLike, right: ArrayLike, top: ArrayLike, box_top: ArrayLike) -> None:
    """Microbatches, in the boxes that are wide and high enough for them."""
    starts, ends = np.asarray(left), np.asarray(right)
    extent_pt = np.array(ax.get_window_extent().size) * theme.POINTS_PER_INCH / ax.figure.dpi
    size_pt = min(theme.SMALL_PT, 0.55 * extent_pt[1] / ax.get_ylim()[0])
    if size_pt < _MIN_LABEL_PT:
        return
    wide_pt = (ends - starts) * extent_pt[0] / ax.get_xlim()[1]
    middle, y = (starts + ends) / 2, (np.asarray(box_top) + np.asarray(top) + BOTTOM) / 2
    for index in np.flatnonzero(wide_pt > 0).tolist():
        instruction = dag.instructions[index]
        text = str(instruction.microbatch)
        if instruction.kind in COLOURS and theme.text_width_pt(text, size_pt) + 2 <= wide_pt[index]:
            ink = theme.ink_on(to_rgb(COLOURS[instruction.kind]))
            ax.text(middle[index], y[index], text, size=size_pt, color=ink, ha="center", va="center_baseline")
