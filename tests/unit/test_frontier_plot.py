from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text
from matplotlib.transforms import Bbox

from perseus_dist.report.plots import theme
from perseus_dist.report.plots.frontier_plot import MarkedPoint, plot_frontier

TIMES_S = np.linspace(2.8, 3.4, 200)
BOUNDS_J = 5600 + 1800 * (3.4 - TIMES_S) ** 2
ENERGIES_J = BOUNDS_J * 1.001
BASELINES = (
    MarkedPoint(name="all-max", time_s=2.8365, energy_j=6950.0),
    MarkedPoint(name="EnvPipe", time_s=2.837, energy_j=6330.0),
    MarkedPoint(name="Zeus-per-stage", time_s=2.86, energy_j=6600.0),
    MarkedPoint(name="Zeus-global", time_s=3.05, energy_j=6350.0),
)
CHOSEN = MarkedPoint(name="plan", time_s=2.8365, energy_j=6120.0)


def draw(**changes: Any) -> Figure:
    arguments: dict[str, Any] = {
        "times_s": TIMES_S,
        "energies_j": ENERGIES_J,
        "bounds_j": BOUNDS_J,
        "baselines": BASELINES,
        "chosen": CHOSEN,
        "t_min_s": 2.8,
        "t_star_s": 3.4,
        "title": "an example",
    }
    return plot_frontier(**arguments | changes)


def line(ax: Axes, label: str) -> Any:
    (found,) = [line for line in ax.lines if line.get_label() == label]
    return found


def labels(fig: Figure) -> list[Annotation]:
    return [text for text in fig.axes[0].texts if isinstance(text, Annotation)]


def label_boxes(fig: Figure) -> list[Bbox]:
    """Of the texts alone, without the lines that lead to their points."""
    fig.draw_without_rendering()
    return [Text.get_window_extent(text) for text in labels(fig)]


def overlapping(fig: Figure) -> bool:
    return any(one.overlaps(other) for one, other in combinations(label_boxes(fig), 2))


def inside_axes(fig: Figure) -> bool:
    frame = fig.axes[0].get_window_extent()
    return all(
        frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1
        for box in label_boxes(fig)
    )


def test_plans_are_dots_and_the_bound_is_a_line() -> None:
    ax = draw().axes[0]
    plans, bound = line(ax, "plans"), line(ax, "lower bound")
    assert (plans.get_marker(), plans.get_linestyle()) == ("o", "None")
    assert (bound.get_marker(), bound.get_linestyle()) == ("None", "-")
    np.testing.assert_array_equal(plans.get_ydata(), ENERGIES_J)
    np.testing.assert_array_equal(bound.get_ydata(), BOUNDS_J)


def test_hairlines_stand_at_the_named_times() -> None:
    def hairlines(fig: Figure) -> list[float]:
        return [float(np.asarray(line.get_xdata())[0]) for line in fig.axes[0].lines if line.get_zorder() < 1]

    assert hairlines(draw()) == [2.8, 3.4]
    assert hairlines(draw(t_prime_s=3.1)) == [2.8, 3.4, 3.1]
    texts = [text.get_text() for text in labels(draw(t_prime_s=3.1))]
    assert [text for text in texts if text.startswith("T")] == [
        "T_min  2.800 s",
        "T*  3.400 s",
        "T'  3.100 s",
    ]


def test_points_are_named_directly_with_computed_figures() -> None:
    fig = draw()
    texts = [text.get_text() for text in labels(fig)]
    assert "all-max\n2.837 s, 6,950 J" in texts
    assert "Zeus-global\n3.050 s, 6,350 J\nsaving 8.6 %, slowdown 7.53 %" in texts
    assert "plan\n2.837 s, 6,120 J\nsaving 11.9 %, slowdown 0.00 %" in texts
    assert fig.axes[0].get_legend() is None
    assert fig.axes[0].get_title(loc="left") == "an example"


def test_saving_never_stands_without_the_slowdown() -> None:
    fig = draw()
    assert all("slowdown" in text.get_text() for text in labels(fig) if "saving" in text.get_text())
    saving, slowdown = [], []
    for ax in fig.axes[0].child_axes:
        saving += [ax] if "saving" in ax.get_ylabel() else []
        slowdown += [ax] if "slowdown" in ax.get_xlabel() else []
    assert len(saving) == len(slowdown) == 1
    fig.draw_without_rendering()
    # 10 % less energy and 10 % more time stand where their percentages stand.
    at = fig.axes[0].transData.transform((1.1 * 2.8365, 0.9 * 6950.0))
    assert saving[0].transData.transform((0, 10))[1] == pytest.approx(at[1])
    assert slowdown[0].transData.transform((10, 0))[0] == pytest.approx(at[0])


def test_measured_points_have_their_own_marker() -> None:
    ax = draw(measured=[MarkedPoint(name="measured", time_s=2.9, energy_j=6200.0)]).axes[0]
    markers = {name: line(ax, name).get_marker() for name in ("plans", "baselines", "measured", "chosen")}
    assert markers["measured"] not in (markers["plans"], markers["baselines"], markers["chosen"])
    assert "measured\n2.900 s, 6,200 J" in [text.get_text() for text in ax.texts]


def test_measured_points_are_compared_with_each_other() -> None:
    baseline = MarkedPoint(name="measured baseline", time_s=2.9, energy_j=7000.0)
    planned = MarkedPoint(name="measured plan", time_s=2.929, energy_j=6300.0, against=baseline)
    quiet = MarkedPoint(name="quiet", time_s=3.0, energy_j=6500.0, against=baseline, is_quiet=True)
    fig = draw(measured=[baseline, planned, quiet])
    texts = [text.get_text() for text in labels(fig)]
    assert "measured baseline\n2.900 s, 7,000 J" in texts
    assert "measured plan\n2.929 s, 6,300 J\nsaving 10.0 %, slowdown 1.00 %" in texts
    assert not any("quiet" in text for text in texts)
    assert len(line(fig.axes[0], "measured").get_xdata()) == 3


def test_everything_lies_inside_the_axes() -> None:
    ax = draw(t_prime_s=3.9).axes[0]
    assert ax.get_xlim()[0] < 2.8
    assert ax.get_xlim()[1] > 3.9
    assert ax.get_ylim()[0] < BOUNDS_J.min()
    assert ax.get_ylim()[1] > 6950


@pytest.mark.parametrize("t_prime_s", [None, 2.81, 3.1])
def test_labels_do_not_overlap(t_prime_s: float | None) -> None:
    fig = draw(t_prime_s=t_prime_s)
    assert not overlapping(fig)
    assert inside_axes(fig)


@pytest.mark.parametrize("num_examples", [8, pytest.param(20, marks=pytest.mark.stress)])
def test_labels_of_any_points_do_not_overlap(num_examples: int) -> None:
    @settings(max_examples=num_examples)
    @given(st.lists(st.tuples(st.floats(2.8, 3.4), st.floats(5700, 7000)), min_size=5, max_size=5))
    def holds(points: list[tuple[float, float]]) -> None:
        named = [MarkedPoint(name=f"baseline {i}", time_s=t, energy_j=e) for i, (t, e) in enumerate(points)]
        fig = draw(baselines=named[1:], chosen=named[0])
        assert not overlapping(fig)
        assert inside_axes(fig)

    holds()


def test_draws_with_as_little_as_one_plan() -> None:
    fig = draw(times_s=[2.8], energies_j=[6100.0], bounds_j=[6090.0], baselines=(), chosen=None, t_star_s=2.8)
    assert fig.axes[0].child_axes == []
    assert not overlapping(fig)


def test_draws_into_given_axes() -> None:
    fig = Figure(figsize=(9, 6))
    ax = fig.add_axes((0.12, 0.12, 0.76, 0.7))
    assert draw(ax=ax) is fig
    assert len(line(ax, "plans").get_xdata()) == 200


def test_svg_is_the_same_every_time() -> None:
    assert theme.figure_bytes(draw()) == theme.figure_bytes(draw())


@pytest.mark.parametrize("title", ["short", "a long title " * 9, "costs_$5^2$_and_$\\foo$.csv"])
def test_a_title_is_shown_as_it_is_and_fits(title: str) -> None:
    fig = draw(title=title)
    fig.draw_without_rendering()
    shown = fig.axes[0]._left_title  # type: ignore[attr-defined]
    assert shown.get_text() == title
    assert not shown.get_parse_math()
    assert shown.get_window_extent().x1 <= fig.bbox.x1


@pytest.mark.parametrize(
    "points",
    [
        [(2.926, 6585), (2.907, 6585), (2.916, 6427), (2.941, 6423)],
        [(2.930, 6575), (2.934, 6450), (2.904, 6447), (2.911, 6340)],
        [(2.928, 6416), (2.940, 6482), (2.943, 6520), (2.930, 6386)],
    ],
)
def test_no_line_to_a_point_strikes_another_label_out(points: list[tuple[float, float]]) -> None:
    close = [MarkedPoint(name=f"baseline {i}", time_s=time_s, energy_j=e) for i, (time_s, e) in enumerate(points)]
    fig = draw(baselines=close, chosen=None)
    fig.draw_without_rendering()
    boxes = {text: Text.get_window_extent(text).padded(-1) for text in labels(fig)}
    lines = [(text, text.arrow_patch) for text in boxes if text.arrow_patch is not None]
    assert lines
    for text, arrow in lines:
        steps = arrow.get_transform().transform(arrow.get_path().interpolated(30).vertices)
        others = [box for other, box in boxes.items() if other is not text]
        assert not any(box.contains(*point) for box in others for point in steps)
