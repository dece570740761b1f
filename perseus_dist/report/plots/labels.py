"""Text beside the thing it names, placed so that no two labels overlap and points stay visible where they can."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike, NDArray

from perseus_dist.report.plots import theme
from perseus_dist.units import FloatArray

_RADII_PT = (6.0, 14.0, 24.0, 36.0, 50.0, 70.0, 95.0)
_LEADER_FROM_PT = 24.0  # a label at least as far from its point gets a line to it
_LEADER_STEPS = 20
_PADDING_PT = 2.0  # around a label
_CLEARANCE_PT = 4.5  # between a label and the middle of a point
_LINE_HEIGHT = 1.25  # of the type size
_FAR_PT = 100.0  # beyond all rings

# Costs of a place's faults, in points of distance that one would go to avoid it.
_FORBIDDEN = 1e6
_STRUCK_OUT = 400.0
_CROSSED = 30.0
_COVERED, _MAX_COVERED = 25.0, 10
_GOOD_ENOUGH = 200.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """Text that names a point, or the vertical line at ``x`` where ``y`` is None. Data coordinates.

    ``side`` wants the label of a point above (1) or below (-1) it, if there is room.
    """

    text: str
    x: float
    y: float | None = None
    colour: str = theme.INK
    side: int = 0

    def size_pt(self) -> FloatArray:
        """(2) width and height [pt]."""
        lines = self.text.splitlines()
        wide = max(theme.text_width_pt(line, theme.SMALL_PT) for line in lines)
        return np.array([wide, len(lines) * theme.SMALL_PT * _LINE_HEIGHT])


class _Place(NamedTuple):
    """Where a label could stand, in points: lower left corner, and steps along the line to its point if it gets one."""

    cost: float
    corner: FloatArray
    leader: FloatArray


@dataclass(slots=True, kw_only=True, eq=False)
class _Page:
    """Boxes that are on the page already, in points.

    Attributes:
        frame: (4) left, bottom, right and top of the axes.
        lines: (num_lines) x of the vertical lines.
        avoid: (num_points, 2) what should stay visible.
        taken: (num_labels, 4) left, bottom, right and top of the labels.
    """

    frame: FloatArray
    lines: FloatArray
    avoid: FloatArray
    taken: FloatArray

    def best(self, anchor: FloatArray, size: FloatArray, corners: FloatArray, distances: FloatArray) -> _Place:
        """The best place of a label.

        Args:
            anchor: (2) what the label names.
            size: (2) of the label.
            corners: (num_places, 2) where its lower left corner may be.
            distances: (num_places) from the anchor; a line leads there from afar.
        """
        low, high = corners - _PADDING_PT, corners + size + _PADDING_PT
        shared = np.minimum(high[:, None], self.taken[:, 2:]) - np.maximum(low[:, None], self.taken[:, :2])
        overlap = np.maximum(shared, 0).prod(axis=2).sum(axis=1)
        outside = (np.maximum(self.frame[:2] - low, 0) + np.maximum(high - self.frame[2:], 0)).sum(axis=1)
        crossed = (low[:, :1] < self.lines) & (self.lines < high[:, :1])
        covered = _inside(self.avoid, corners - _CLEARANCE_PT, corners + size + _CLEARANCE_PT)
        nearest = np.clip(anchor, corners, corners + size)
        leaders = anchor + (nearest - anchor)[:, None] * np.linspace(0, 1, _LEADER_STEPS)[:, None]
        struck_out = _inside(leaders.reshape(-1, 2), self.taken[:, :2], self.taken[:, 2:]).any(axis=0)
        struck_out = struck_out.reshape(-1, _LEADER_STEPS).any(axis=1) & (distances >= _LEADER_FROM_PT)
        costs = (
            _FORBIDDEN * (overlap + outside > 0.01)
            + _STRUCK_OUT * struck_out
            + _CROSSED * crossed.sum(axis=1)
            + _COVERED * np.minimum(covered.sum(axis=1), _MAX_COVERED)
            + distances
        )
        best = int(np.argmin(costs))
        leader = leaders[best] if distances[best] >= _LEADER_FROM_PT else leaders[best, :0]
        return _Place(float(costs[best]), corners[best], leader)

    def add(self, place: _Place, size: FloatArray) -> None:
        """Take note of a label and its line."""
        box = np.concatenate([place.corner - _PADDING_PT, place.corner + size + _PADDING_PT])
        self.taken = np.vstack([self.taken, box])
        self.avoid = np.vstack([self.avoid, place.leader])


def place_labels(ax: Axes, labels: Sequence[Label], *, avoid: ArrayLike) -> None:
    """Add labels to ``ax``, whose place and limits must be final; the earlier ones choose first.

    Each takes the best of some dozens of places near its point or line: overlapping a label or leaving the axes is as
    good as forbidden, striking a label out with the line to one's own point is bad, then come covered points, crossed
    vertical lines and distance. Where nothing near by is good enough, it looks all over the axes.

    Args:
        ax: The axes.
        labels: What to place.
        avoid: (num_points, 2) points in data coordinates that should stay visible.
    """
    points_per_pixel = theme.POINTS_PER_INCH / ax.figure.dpi

    def to_pt(xy: ArrayLike) -> FloatArray:
        return np.asarray(ax.transData.transform(np.reshape(xy, (-1, 2))) * points_per_pixel)

    page = _Page(
        frame=np.asarray(ax.get_window_extent().extents) * points_per_pixel,
        lines=to_pt([(label.x, 0) for label in labels if label.y is None])[:, 0],
        avoid=to_pt(avoid),
        taken=np.empty((0, 4)),
    )
    for label in labels:
        size = label.size_pt()
        (anchor,) = to_pt((label.x, label.y or 0.0))
        if label.y is None:
            place = page.best(anchor, size, *_beside_line(anchor[0], size, page.frame))
        else:
            place = page.best(anchor, size, *_around_point(anchor, size, label.side))
        if place.cost >= _GOOD_ENOUGH:
            place = min(place, page.best(anchor, size, *_anywhere(anchor, size, page.frame)), key=lambda p: p.cost)
        page.add(place, size)
        _write(ax, label, place.corner - anchor, size, leader=label.y is not None and len(place.leader) > 0)


def _around_point(anchor: FloatArray, size: FloatArray, side: int) -> tuple[FloatArray, FloatArray]:
    """Lower left corners [pt] on growing rings, and their distances from the point [pt]."""
    turns = np.arange(16) * np.pi / 8
    directions = np.stack([np.cos(turns), np.sin(turns)], axis=1)
    directions = directions[side * directions[:, 1] >= 0]
    radii = np.repeat(_RADII_PT, len(directions))
    directions = np.tile(directions, (len(_RADII_PT), 1))
    # The nearest edge or corner of the text touches the ring, so that labels of all sizes stand equally close.
    return anchor + radii[:, None] * directions + (directions - 1) / 2 * size, radii


def _beside_line(x: float, size: FloatArray, frame: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Lower left corners [pt] right and left of a vertical line, from the foot of the axes up, and their distances."""
    steps = np.arange(24.0)
    y = frame[1] + 6 + steps * size[1]
    right, left = np.full(24, x + 4), np.full(24, x - 4 - size[0])
    return np.stack([np.append(right, left), np.append(y, y)], axis=1), np.append(steps, steps + 0.5)


def _anywhere(anchor: FloatArray, size: FloatArray, frame: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Lower left corners [pt] on a grid over the axes, and their distances [pt]; all of them count as far away."""
    low = frame[:2] + 2 * _PADDING_PT
    high = np.maximum(frame[2:] - size, low + 1)  # one place at least, however small the axes
    across, up = (np.arange(*ends, theme.SMALL_PT) for ends in zip(low, high, strict=True))
    corners = np.stack(np.meshgrid(across, up), axis=-1).reshape(-1, 2)
    return corners, _FAR_PT + np.hypot(*(corners - anchor).T)


def _inside(points: FloatArray, low: FloatArray, high: FloatArray) -> NDArray[np.bool_]:
    """(num_boxes, num_points) which points lie within which boxes."""
    return np.asarray(((points > low[:, None]) & (points < high[:, None])).all(axis=2))


def _write(ax: Axes, label: Label, corner: FloatArray, size: FloatArray, *, leader: bool) -> None:
    """Put the text with its lower left corner at ``corner`` [pt from the point], drawn as lines of one block."""
    nearest = np.clip(-corner / size, 0, 1)
    ax.annotate(
        label.text,
        (label.x, 0.0 if label.y is None else label.y),
        tuple(corner),
        textcoords="offset points",
        size=theme.SMALL_PT,
        color=label.colour,
        ha="left",
        va="bottom",
        annotation_clip=False,
        arrowprops={
            "arrowstyle": "-",
            "color": theme.HAIRLINE,
            "linewidth": 0.6,
            "relpos": tuple(nearest),
            "shrinkA": 1,
            "shrinkB": 4,
        }
        if leader
        else None,
    )
