"""Style of all pictures: ink, type, and files that come out the same every time."""

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from io import BytesIO

import matplotlib as mpl
import matplotlib.style
import numpy as np
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath
from numpy.typing import ArrayLike

INK = "#1f2328"
MUTED = "#656d76"
HAIRLINE = "#9aa2ab"
WAITING = "#ebebeb"
CONSTANT = "#9fb3c8"
ACCENT = "#c8135b"
PLANS = "#3f6fb5"

BODY_PT = 8.0
SMALL_PT = 7.0
UNDERLINE_PT = 1.3  # of the critical path
END_PT = 0.7  # of the line that ends an iteration
POINTS_PER_INCH = 72.0

ON_COLOUR = "on-colour"
"""Group id of text that stands on a coloured box, and keeps its ink where a page turns a picture dark."""

# Fixed, so that a picture does not follow a user's own matplotlibrc.
_STYLE = {
    "font.size": BODY_PT,
    "text.color": INK,
    "axes.edgecolor": HAIRLINE,
    "axes.labelcolor": MUTED,
    "axes.linewidth": 0.6,
    "xtick.color": HAIRLINE,
    "ytick.color": HAIRLINE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.labelsize": SMALL_PT,
    "ytick.labelsize": SMALL_PT,
    "hatch.linewidth": 0.5,
    "svg.fonttype": "path",
    "text.parse_math": False,  # names of files and plans are text, whatever is in them
    "svg.hashsalt": "perseus-dist",
}


_is_in_force = ContextVar("whether the house style is in force", default=False)


@contextmanager
def style() -> Iterator[None]:
    """The house style, for the time it takes to draw or write a figure.

    A job's name may hold characters that the font lacks; they are drawn as boxes, without a warning.
    """
    if _is_in_force.get():  # to set it again takes as long as a tenth of a picture, for each text that is measured
        yield
        return
    with mpl.style.context(["default", _STYLE]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)
        before = _is_in_force.set(True)
        try:
            yield
        finally:
            _is_in_force.reset(before)


def figure_bytes(fig: Figure, file_format: str = "svg") -> bytes:
    """The figure as ``svg`` or ``png``; the same figure gives the same bytes."""
    data = BytesIO()
    with style():
        fig.savefig(data, format=file_format, dpi=200, metadata={"Date": None} if file_format == "svg" else None)
    return data.getvalue()


@lru_cache(maxsize=8192)
def text_width_pt(text: str, size_pt: float, *, weight: str = "normal") -> float:
    """Width [pt] of one line of text in the house font."""
    with style():
        outline = TextPath((0, 0), text, size=size_pt, prop=FontProperties(weight=weight))
    x = outline.vertices[outline.codes != TextPath.CLOSEPOLY, 0]  # much faster than get_extents, and as good
    return float(np.ptp(x)) if len(x) else 0.0


def drawable(text: str) -> str:
    """Text as it can be drawn: file names hold surrogates for bytes that the locale cannot spell, mostly UTF-8."""
    escaped = re.sub("[\ud800-\udc7f\udd00-\udfff]", "?", text)  # no bytes of a name
    return escaped.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def ink_on(colour: ArrayLike) -> str:
    """The text colour with the higher contrast (WCAG 2.1) on ``colour``, (3 or 4) sRGB values from 0 to 1."""
    red_green_blue = np.asarray(colour, dtype=np.float64)[:3]
    linear = np.where(red_green_blue <= 0.04045, red_green_blue / 12.92, ((red_green_blue + 0.055) / 1.055) ** 2.4)
    return INK if linear @ (0.2126, 0.7152, 0.0722) > 0.2 else "white"
