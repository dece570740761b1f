"""Stragglers over the iterations of a run: what each pipeline took and drew, what was waited for, and what happened."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from perseus_dist.report.analysis.stragglers import StragglerFigures
from perseus_dist.report.analysis.waits import StragglerWait
from perseus_dist.report.plots import theme
from perseus_dist.report.plots.formatting import time_text
from perseus_dist.report.plots.straggler_marks import events_of, mark_events
from perseus_dist.units import FloatArray, IntArray

WIDTH_IN = 9.0
MAX_POINTS = 1500
"""With more iterations than these, a point is the median of several."""
MAX_LINES = 8
"""With more pipelines of a sort than these, a line is their median, with the range of all around it."""

_LEFT, _RIGHT, _TOP, _BOTTOM, _TIME, _ENERGY, _BETWEEN = 0.75, 1.35, 0.95, 0.45, 2.3, 1.7, 0.4  # inches
_WIDTH_PT = (WIDTH_IN - _LEFT - _RIGHT) * theme.POINTS_PER_INCH
_PAD_SHARE = 0.15  # of what happened, before and after it
_MIN_PAD = 20  # iterations
_FAR = 1.5  # times the tallest of what is planned and waited for: what lies beyond stands at the edge
_STEPS = "steps-mid"
_DASHED, _DOTTED = (0, (4, 2)), (0, (1, 1.5))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sort:
    """Pipelines of one sort: their rows, colour and name."""

    rows: tuple[int, ...]
    colour: str
    name: str


def plot_stragglers(figures: StragglerFigures, *, target_time_s: float, title: str) -> Figure:
    """Draw times above energies, from shortly before the first straggler until shortly after the last.

    Args:
        figures: Of a run with iterations of whole pipelines.
        target_time_s: [s] what the target's plan promises; 0 where it is not known.
        title: Above the picture.
    """
    pipelines = figures.pipelines
    slow = pipelines.rows_of(sorted({one.dp_rank for one in figures.episodes}))
    others = [row for row in range(len(pipelines.dp_ranks)) if row not in slow]
    sorts = [
        _Sort(rows=tuple(rows), colour=colour, name=_named([pipelines.dp_ranks[row] for row in rows]))
        for rows, colour in ((others, theme.PLANS), (slow, theme.ACCENT))
        if rows
    ]
    shown = _shown(figures)
    has_energy = not np.isnan(pipelines.energy_j[:, shown]).all()
    with theme.style():
        height_in = _TOP + _TIME + (_BETWEEN + _ENERGY) * has_energy + _BOTTOM
        fig = Figure(figsize=(WIDTH_IN, height_in))
        wide = (_LEFT / WIDTH_IN, 1 - (_LEFT + _RIGHT) / WIDTH_IN)
        times = fig.add_axes((wide[0], 1 - (_TOP + _TIME) / height_in, wide[1], _TIME / height_in))
        _draw_times(times, figures, sorts, shown, target_time_s)
        if has_energy:
            energies = fig.add_axes((wide[0], _BOTTOM / height_in, wide[1], _ENERGY / height_in))
            _draw_energies(energies, figures, sorts, shown)
            times.tick_params(axis="x", labelbottom=False)
        for ax in fig.axes:
            _finish(ax, pipelines.number[shown])
            mark_events(ax, events_of(figures.episodes), width_pt=_WIDTH_PT, with_names=ax is times)
        fig.axes[-1].set_xlabel("iteration")
        fig.text(0.2 / WIDTH_IN, 1 - 0.25 / height_in, theme.drawable(title), size=10.5, weight="bold")
    return fig


def _named(dp_ranks: Sequence[int]) -> str:
    if len(dp_ranks) == 1:
        return f"pipeline {dp_ranks[0]}"
    return f"{len(dp_ranks)} pipelines" if len(dp_ranks) > MAX_LINES else f"pipelines {', '.join(map(str, dp_ranks))}"


def _shown(figures: StragglerFigures) -> IntArray:
    """Indices of the iterations to draw."""
    number = figures.pipelines.number
    first = min(one.steps[0].since for one in figures.episodes)
    last = max(_end(figures), first)
    pad = max(_MIN_PAD, round(_PAD_SHARE * (last - first)))
    shown = np.flatnonzero((number >= first - pad) & (number <= last + pad))
    return shown if len(shown) else np.arange(len(number))


def _end(figures: StragglerFigures) -> int:
    """The last iteration in which anything happened; the newest where something is not over yet."""
    newest = int(figures.pipelines.number[-1])
    return max(
        newest if one.over_iteration is None else max(one.over_iteration, one.full_speed_iteration or 0)
        for one in figures.episodes
    )


def _draw_times(
    ax: Axes, figures: StragglerFigures, sorts: Sequence[_Sort], shown: IntArray, target_time_s: float
) -> None:
    pipelines = figures.pipelines
    number = pipelines.number[shown]
    waits = _waited_for(figures, int(number[-1]))
    per_pt = len(number) / _WIDTH_PT
    expected_s = max([target_time_s, *(t_prime_s for *_, t_prime_s in waits)])
    top = _FAR * expected_s if expected_s > 0 else np.inf
    x, y = _thinned(number, pipelines.time_s[shown])
    ax.plot(x, np.minimum(y, top), color=theme.INK, linewidth=0.8, drawstyle=_STEPS, zorder=2)
    ends = [(_last(y), "iteration", theme.INK)]
    for sort in sorts:
        last = _draw_sort(ax, number, np.minimum(pipelines.own_time_s[:, shown], top), sort)
        ends.append((last, f"{sort.name}, own", sort.colour))
    if target_time_s > 0:
        ax.axhline(target_time_s, color=theme.HAIRLINE, linewidth=0.7, zorder=0.5)
        _say(ax, (float(number[0]), target_time_s), f"target {time_text(target_time_s)}")
    for begin, end, t_prime_s in waits:
        ax.plot([begin, end], [t_prime_s] * 2, color=theme.MUTED, linewidth=1.0, linestyle=_DASHED, zorder=3)
        text = f"T' {time_text(t_prime_s)}"
        if theme.text_width_pt(text, theme.SMALL_PT) * per_pt < end - begin:
            _say(ax, (begin, t_prime_s), text)
    ax.margins(y=0.1)
    ax.set_ylabel("time [s]")
    _name_ends(ax, ends)


def _draw_energies(ax: Axes, figures: StragglerFigures, sorts: Sequence[_Sort], shown: IntArray) -> None:
    pipelines = figures.pipelines
    number = pipelines.number[shown]
    ends = []
    for sort in sorts:
        last = _draw_sort(ax, number, pipelines.energy_j[:, shown], sort)
        ends.append((last, sort.name, sort.colour))
    has_promise = False
    for period in figures.periods:
        for wait in period.waits:
            has_promise |= wait.promised_j is not None
            _draw_promise(ax, wait, len(period.others))
    if has_promise:
        key = "dotted: the plan of before, only waiting; dashed: promised by the frontier"
        at = ax.transAxes
        ax.text(0.0, 1.03, key, transform=at, va="bottom", size=theme.SMALL_PT, color=theme.MUTED)
    ax.set_ylabel("energy of an iteration [J]")
    _name_ends(ax, ends)


def _say(ax: Axes, at: tuple[float, float], text: str) -> None:
    """Text just below a line: what is measured lies mostly above what was planned."""
    ax.annotate(
        text, at, (2, -3), textcoords="offset points", va="top", size=theme.SMALL_PT, color=theme.MUTED, zorder=4
    )


def _draw_promise(ax: Axes, wait: StragglerWait, num_others: int) -> None:
    """Draw the energy of one of the others without another plan, and the promised one."""
    span = [wait.measured.first_iteration - 0.5, wait.measured.last_iteration + 0.5]
    for energy_j, dashes in ((wait.waiting_j, _DOTTED), (wait.promised_j, _DASHED)):
        if energy_j is not None:
            ax.plot(span, [energy_j / num_others] * 2, color=theme.MUTED, linewidth=0.9, linestyle=dashes, zorder=1.5)


def _draw_sort(ax: Axes, number: IntArray, values: FloatArray, sort: _Sort) -> float:
    """A line for each pipeline, or one for all of them; returns where it ends."""
    rows = values[list(sort.rows)]
    style: dict[str, Any] = {"color": sort.colour, "linewidth": 1.0, "drawstyle": _STEPS, "zorder": 2.5}
    if len(rows) > MAX_LINES:
        x, middle = _thinned(number, np.median(rows, axis=0))
        _, low = _thinned(number, rows.min(axis=0))
        _, high = _thinned(number, rows.max(axis=0))
        ax.fill_between(x, low, high, color=sort.colour, alpha=0.25, linewidth=0, zorder=1)
        ax.plot(x, middle, **style)
        return _last(middle)
    for row in rows:
        ax.plot(*_thinned(number, row), **style)
    return _last(np.median(rows, axis=0))


def _last(values: FloatArray) -> float:
    known = values[~np.isnan(values)]
    return float(known[-1]) if len(known) else 0.0


def _waited_for(figures: StragglerFigures, last: int) -> list[tuple[float, float, float]]:
    """Begin, end and T' [s] of each time that others waited; one after the other for the same T' are one."""
    found: list[tuple[float, float, float]] = []
    for one in figures.switches:
        first, t_prime_s = one.first_iteration, one.event.t_prime_s
        if not t_prime_s or first is None or first > last:
            continue
        begin, end = first - 0.5, min(one.last_iteration, last) + 0.5
        if found and found[-1][1] >= begin - 1 and found[-1][2] == t_prime_s:
            begin = found.pop()[0]
        found.append((begin, end, t_prime_s))
    return found


def _name_ends(ax: Axes, ends: Iterable[tuple[float, str, str]]) -> None:
    """Names beside the ends of lines, moved apart where they would touch."""
    low, high = ax.get_ylim()
    height_pt = ax.get_window_extent().height * theme.POINTS_PER_INCH / ax.figure.dpi
    apart = 1.25 * theme.SMALL_PT / height_pt * (high - low)
    below = -np.inf
    for y, text, colour in sorted(ends):
        at = max(y, below + apart)
        beside = ax.get_yaxis_transform()
        ax.text(1.008, at, text, transform=beside, va="center", size=theme.SMALL_PT, color=colour)
        below = at


def _finish(ax: Axes, number: IntArray) -> None:
    ax.yaxis.set_label_coords(-0.6 * _LEFT / (WIDTH_IN - _LEFT - _RIGHT), 0.5)
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:,.6g}"))
    ax.yaxis.set_major_locator(MaxNLocator(5))
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_xlim(number[0] - 0.5, number[-1] + 0.5)
    ax.xaxis.set_major_locator(MaxNLocator(12, integer=True))


def _thinned(number: IntArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Medians of neighbours, where there are too many iterations to see."""
    step = -(-len(number) // MAX_POINTS)
    if step == 1:
        return number.astype(np.float64), values
    parts = [slice(begin, begin + step) for begin in range(0, len(number), step)]
    medians = [np.median(known) if len(known := values[part][~np.isnan(values[part])]) else np.nan for part in parts]
    return np.array([number[part].mean() for part in parts]), np.array(medians)
