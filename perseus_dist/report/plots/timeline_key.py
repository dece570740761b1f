"""The foot of a timeline: what its marks mean, and the colour bar of the clocks."""

from collections.abc import Iterable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from perseus_dist.planning.schedule.instruction import Kind
from perseus_dist.report.plots import theme
from perseus_dist.report.plots.timeline_layout import BOTTOM, CONSTANT_TOP, TOP, WAITING_TOP

HATCH = "/////"  # of constant instructions

_NAMES: dict[str, str] = {
    Kind.FORWARD: "forward",
    Kind.BACKWARD: "backward",
    Kind.INPUT_GRADIENT: "input gradient",
    Kind.WEIGHT_GRADIENT: "weight gradient",
    Kind.FORWARD_BACKWARD: "forward and backward as one",
}
_SWATCH_PT, _GAP_PT = 14.0, 16.0
_BAR_IN = 2.4


def draw_key(fig: Figure, *, kinds: Iterable[str], left_in: float, bottom_in: float) -> None:
    """Say in a line what the marks mean, for the kinds that occur."""
    width_in, height_in = fig.get_size_inches()
    ax = fig.add_axes((left_in / width_in, bottom_in / height_in, 0.6, 0.17 / height_in), label="key")
    ax.set_axis_off()
    ax.set(xlim=(0, 0.6 * width_in * theme.POINTS_PER_INCH), ylim=(1, 0))
    occurring = set(kinds)
    x = 0.0
    for kind in sorted(occurring & set(_NAMES), key=list(_NAMES).index):
        x = _swatch(ax, x, _NAMES[kind], top=TOP[kind], colour=theme.MUTED)
    if occurring - set(_NAMES):
        x = _swatch(ax, x, "constant", top=CONSTANT_TOP, colour=theme.CONSTANT, hatch=HATCH)
    x = _swatch(ax, x, "waiting", top=WAITING_TOP, colour=theme.WAITING)
    ax.plot([x, x + _SWATCH_PT], [0.5, 0.5], color=theme.ACCENT, linewidth=theme.UNDERLINE_PT)
    x = _word(ax, x + _SWATCH_PT, "critical path")
    ax.plot([x, x], [-0.05, 1.05], color=theme.INK, linewidth=theme.END_PT, clip_on=False)
    _word(ax, x, "end of iteration")


def draw_colour_bar(fig: Figure, norm: Normalize, *, cmap: str, right_in: float, bottom_in: float) -> None:
    """The clocks of all panels; ``right_in`` is the distance from the right edge of the figure."""
    width_in, height_in = fig.get_size_inches()
    place = ((width_in - right_in - _BAR_IN) / width_in, bottom_in / height_in, _BAR_IN / width_in, 0.1 / height_in)
    ax = fig.add_axes(place, label="colour bar")
    bar = fig.colorbar(ScalarMappable(norm=norm, cmap=cmap), cax=ax, orientation="horizontal")
    ax.collections[0].set_rasterized(True)  # seams show between the steps of a vector gradient
    bar.outline.set_visible(False)
    ticks = clock_ticks(int(norm.vmin or 0), int(norm.vmax or 1))
    bar.set_ticks(ticks, labels=[str(tick) for tick in ticks])
    ax.tick_params(length=2, pad=1.5)
    ax.set_ylabel("clock [MHz]", rotation=0, ha="right", va="center", size=theme.SMALL_PT, labelpad=12)


def clock_ticks(low: int, high: int) -> list[int]:
    """The lowest and the highest clock [MHz], and round ones between them that keep clear of both."""
    between = np.asarray(MaxNLocator(nbins=4, integer=True).tick_values(low, high))
    clear = (high - low) / 6
    return [low, *between[(between > low + clear) & (between < high - clear)].astype(int).tolist(), high]


def _swatch(ax: Axes, x: float, word: str, *, top: float, colour: str, hatch: str | None = None) -> float:
    """Draw a sample box and its word at ``x`` [pt]; returns where the next one goes."""
    box = Rectangle((x, top), _SWATCH_PT, BOTTOM - top, facecolor=colour, edgecolor="white", hatch=hatch, linewidth=0)
    ax.add_patch(box)
    return _word(ax, x + _SWATCH_PT, word)


def _word(ax: Axes, x: float, text: str) -> float:
    ax.text(x + 4, 0.75, text, size=theme.SMALL_PT, color=theme.MUTED, va="baseline")
    return x + 4 + theme.text_width_pt(text, theme.SMALL_PT) + _GAP_PT
