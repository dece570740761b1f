"""Events of stragglers, as hairlines over iterations with names above them."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes

from perseus_dist.report.analysis.episodes import Episode
from perseus_dist.report.plots import theme

LABEL_ROWS = 3
_ROW_PT = theme.SMALL_PT + 3


class Mark(NamedTuple):
    """An event at an iteration, drawn as a line with its name."""

    iteration: int
    name: str
    colour: str


def events_of(episodes: Sequence[Episode]) -> Iterable[Mark]:
    """Everything that happened, straggler by straggler."""
    for one in episodes:
        whose = f"rank {one.rank}" if one.rank >= 0 else f"pipeline {one.dp_rank}"
        for step in one.steps:
            if step.injected_iteration is not None:
                yield Mark(step.injected_iteration, f"{step.thermal_cap_mhz} MHz injected", theme.MUTED)
            yield Mark(step.detected_iteration, f"{whose}: {one.cause.replace('_', ' ')}", theme.ACCENT)
            if step.switched_iteration is not None:
                yield Mark(step.switched_iteration, "switched", theme.PLANS)
        if one.lifted_iteration is not None:
            yield Mark(one.lifted_iteration, "lifted", theme.MUTED)
        if one.over_iteration is not None:
            yield Mark(one.over_iteration, "over", theme.ACCENT)
        if one.full_speed_iteration is not None:
            yield Mark(one.full_speed_iteration, "full speed", theme.PLANS)


def mark_events(ax: Axes, marks: Iterable[Mark], *, width_pt: float, with_names: bool) -> None:
    """Draw a hairline for each; names where there is room.

    Args:
        ax: Its limits must be final.
        marks: In any order.
        width_pt: [pt] of the axes.
        with_names: Whether to write names above the axes, in ``LABEL_ROWS`` rows at most.
    """
    low, high = ax.get_xlim()
    per_pt = (high - low) / width_pt
    taken = [-np.inf] * LABEL_ROWS
    for iteration, name, colour in sorted(set(marks)):
        if not low <= iteration <= high:
            continue
        ax.axvline(iteration, color=colour, linewidth=0.6, alpha=0.6, zorder=0.4)
        row = next((row for row in range(LABEL_ROWS) if taken[row] <= iteration), None)
        if not with_names or row is None:
            continue
        at, above = ax.get_xaxis_transform(), (0, 4 + row * _ROW_PT)
        look: dict[str, Any] = {"size": theme.SMALL_PT, "color": colour, "annotation_clip": False}
        ax.annotate(name, (iteration, 1.0), above, xycoords=at, textcoords="offset points", **look)
        taken[row] = iteration + (theme.text_width_pt(name, theme.SMALL_PT) + 6) * per_pt
