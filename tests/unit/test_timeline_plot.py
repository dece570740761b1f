from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.collections import Collection
from matplotlib.colors import to_hex, to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Annotation, Text

from perseus_dist.planning.frontier.replay import Execution
from perseus_dist.planning.schedule.dag import Dag, build_dag
from perseus_dist.planning.schedule.instruction import parse_instruction
from perseus_dist.planning.schedule.named import make_schedule
from perseus_dist.planning.schedule.schedule import Schedule
from perseus_dist.report.plots import theme
from perseus_dist.report.plots.formatting import against_text
from perseus_dist.report.plots.timeline_key import clock_ticks
from perseus_dist.report.plots.timeline_layout import MAX_BOXES_PER_ROW, chunks_of, critical_path, waits, windows
from perseus_dist.report.plots.timeline_plot import plot_timeline
from perseus_dist.units import PS_PER_MS, IntArray

WITH_CONSTANTS = """\
0LOAD0 0F0 0LOAD1 0F1 0B0 0B1 0STEP
1F0 1B0 1F1 1B1 1STEP
"""


def play(dag: Dag, duration_ps: IntArray, *, clock_mhz: int = 1410, energy_j: int = 100) -> Execution:
    """Longest path; clock and energy are the same for every instruction, and waiting costs nothing."""
    before: list[list[int]] = [[] for _ in dag.instructions]
    after: list[list[int]] = [[] for _ in dag.instructions]
    for source, target in dag.edges.tolist():
        before[target].append(source)
        after[source].append(target)
    waiting_for = [len(nodes) for nodes in before]
    ready = [node for node, count in enumerate(waiting_for) if count == 0]
    end_ps = np.zeros(len(dag.instructions), dtype=np.int64)
    for node in ready:
        end_ps[node] = max((end_ps[source] for source in before[node]), default=0) + duration_ps[node]
        for target in after[node]:
            waiting_for[target] -= 1
            if waiting_for[target] == 0:
                ready.append(target)
    constant = np.array([instruction.is_constant for instruction in dag.instructions])
    num_ranks = dag.schedule.num_ranks
    return Execution(
        dag=dag,
        clocks_mhz=np.where(constant, 0, clock_mhz).astype(np.int64),
        start_ps=end_ps - duration_ps,
        end_ps=end_ps,
        energy_uj=np.full(len(dag.instructions), energy_j * 10**6, dtype=np.int64),
        changes=np.zeros(num_ranks, dtype=np.int64),
        blocking_uw=np.zeros(num_ranks, dtype=np.int64),
        time_ps=int(end_ps.max()),
        total_uj=energy_j * 10**6 * len(dag.instructions),
    )


def example(name: str, *, pp: int, microbatches: int, chunks: int = 1, slower: float = 1.0) -> Execution:
    """Forwards of 50 ms, backwards twice that, the last stage 8 % heavier; slower means a lower clock and 15 % less."""
    schedule = make_schedule(name, pp=pp, microbatches=microbatches, chunks=chunks)
    dag = build_dag(schedule)
    last = schedule.num_stages - 1
    weight = [(1 if i.kind == "F" else 2) * (1.08 if i.stage == last else 1.0) for i in dag.instructions]
    duration_ps = np.rint(np.array(weight) * 50 * PS_PER_MS * slower).astype(np.int64)
    return play(dag, duration_ps, clock_mhz=round(1410 / slower), energy_j=100 if slower == 1 else 85)


def pair(name: str, *, pp: int, microbatches: int, chunks: int = 1, slower: float = 1.1) -> list[tuple[str, Execution]]:
    baseline = example(name, pp=pp, microbatches=microbatches, chunks=chunks)
    return [
        ("all-max", baseline),
        ("plan", example(name, pp=pp, microbatches=microbatches, chunks=chunks, slower=slower)),
    ]


def panels(fig: Figure) -> list[Axes]:
    return [ax for ax in fig.axes if ax.get_label() not in ("key", "colour bar")]


def collection(ax: Axes, label: str) -> Collection:
    (found,) = [artist for artist in ax.collections if artist.get_label() == label]
    return found


def corners(ax: Axes, label: str) -> list[np.ndarray]:
    return [np.asarray(path.vertices)[:4] for path in collection(ax, label).get_paths()]


def box_labels(ax: Axes) -> list[Text]:
    return [text for text in ax.texts if not isinstance(text, Annotation)]


def header(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.texts if isinstance(text, Annotation)]


def all_texts(fig: Figure) -> list[Text]:
    found = [text for text in fig.findobj(Text) if isinstance(text, Text) and text.get_visible() and text.get_text()]
    return found


def touching(fig: Figure) -> list[tuple[str, str]]:
    fig.draw_without_rendering()
    inside = [(text, text.get_window_extent()) for text in all_texts(fig)]
    page = fig.bbox
    shown = [(text, box) for text, box in inside if box.overlaps(page) and box.width > 0]
    return [
        (one.get_text(), other.get_text())
        for (one, box), (other, other_box) in combinations(shown, 2)
        if box.shrunk(0.96, 0.9).overlaps(other_box.shrunk(0.96, 0.9))
    ]


def test_every_instruction_is_one_box_in_one_collection() -> None:
    executions = pair("1f1b", pp=4, microbatches=8)
    fig = plot_timeline(executions)
    assert len(panels(fig)) == 2
    for ax, (_, execution) in zip(panels(fig), executions, strict=True):
        assert len(corners(ax, "computing")) == len(execution.dag.instructions) == 64
        assert len(ax.patches) == 0


def test_panels_share_the_time_axis_and_the_colours() -> None:
    first, second = panels(plot_timeline(pair("1f1b", pp=4, microbatches=8, slower=1.25)))
    assert first.get_xlim() == second.get_xlim()
    assert first.get_xlim()[1] == pytest.approx(example("1f1b", pp=4, microbatches=8, slower=1.25).time_ps / 1e12)
    assert first.get_xticks().tolist() == second.get_xticks().tolist()
    norm = collection(first, "computing").norm
    assert norm is collection(second, "computing").norm
    assert (norm.vmin, norm.vmax) == (1128, 1410)


def test_time_axes_line_up_whatever_the_schedules() -> None:
    plain, chunked = example("1f1b", pp=2, microbatches=4), example("interleaved", pp=2, microbatches=4, chunks=2)
    first, second = panels(plot_timeline([("1f1b", plain), ("interleaved", chunked)]))
    assert (first.get_position().x0, first.get_position().x1) == (second.get_position().x0, second.get_position().x1)


def test_a_single_clock_is_drawn_as_the_highest() -> None:
    norm = collection(panels(plot_timeline([("all-max", example("1f1b", pp=2, microbatches=2))]))[0], "computing").norm
    assert np.asarray(norm(np.array([1410]))).tolist() == [1.0]


def test_titles_state_what_was_computed() -> None:
    executions = pair("1f1b", pp=4, microbatches=8)
    (_, baseline), (_, plan) = executions
    first, second = panels(plot_timeline(executions))
    assert header(first) == ["all-max", f"{baseline.time_ps / 1e12:.3f} s, 6,400 J"]
    assert header(second) == ["plan", f"{plan.time_ps / 1e12:.3f} s, 5,440 J    saving 15.0 %, slowdown 10.00 %"]


def test_no_saving_is_stated_without_the_slowdown() -> None:
    texts = [text.get_text() for text in all_texts(plot_timeline(pair("gpipe", pp=4, microbatches=8)))]
    assert sum("saving" in text for text in texts) == 1
    assert all("slowdown" in text for text in texts if "saving" in text)


def test_against_text_is_signed_and_has_no_minus_zero() -> None:
    text = against_text(time_s=0.99999, energy_j=84.11, reference_time_s=1, reference_energy_j=100)
    assert text == "saving 15.9 %, slowdown 0.00 %"
    text = against_text(time_s=0.99, energy_j=101, reference_time_s=1, reference_energy_j=100)
    assert text == "saving -1.0 %, slowdown -1.00 %"


def test_iteration_end_is_marked_where_each_ends() -> None:
    executions = pair("1f1b", pp=4, microbatches=8, slower=1.25)
    for ax, (_, execution) in zip(panels(plot_timeline(executions)), executions, strict=True):
        (line,) = [line for line in ax.lines if line.get_label() == "end of iteration"]
        assert np.asarray(line.get_xdata()).tolist() == [execution.time_ps / 1e12] * 2


def test_forward_and_backward_differ_in_height() -> None:
    execution = example("1f1b", pp=2, microbatches=2)
    (ax,) = panels(plot_timeline([("all-max", execution)]))
    heights = [np.ptp(box[:, 1]) for box in corners(ax, "computing")]
    kinds = [instruction.kind for instruction in execution.dag.instructions]
    forward = {round(height, 6) for height, kind in zip(heights, kinds, strict=True) if kind == "F"}
    backward = {round(height, 6) for height, kind in zip(heights, kinds, strict=True) if kind == "B"}
    assert len(forward) == len(backward) == 1
    assert max(backward) < 0.8 * min(forward)


def test_chunks_get_sub_rows_in_stage_order() -> None:
    execution = example("interleaved", pp=4, microbatches=8, chunks=2)
    chunk, num_chunks = chunks_of(execution.dag)
    assert num_chunks.tolist() == [2] * 4
    assert [instruction.stage // 4 for instruction in execution.dag.instructions] == chunk.tolist()
    (ax,) = panels(plot_timeline([("all-max", execution)]))
    bottoms = {round(float(box[:, 1].max()), 6) for box in corners(ax, "computing")}
    assert len(bottoms) == 8
    assert [tick.get_text() for tick in ax.get_yticklabels(minor=True)] == ["chunk 0", "chunk 1"] * 4


def test_constants_look_neither_like_clocks_nor_like_waiting() -> None:
    ranks = tuple(tuple(parse_instruction(token) for token in line.split()) for line in WITH_CONSTANTS.splitlines())
    dag = build_dag(Schedule(ranks=ranks))
    execution = play(dag, np.full(len(dag.instructions), 20 * PS_PER_MS, dtype=np.int64))
    fig = plot_timeline([("all-max", execution)])
    (ax,) = panels(fig)
    assert len(corners(ax, "constant")) == 4
    assert len(corners(ax, "computing")) == 8
    fixed = collection(ax, "constant")
    assert fixed.get_hatch()
    assert to_hex(np.asarray(fixed.get_facecolor())[0]) != to_hex(theme.WAITING)
    assert "constant" in [text.get_text() for text in all_texts(fig)]


@pytest.mark.parametrize("width_in", [4.0, 8.0, 12.0])
def test_labels_stand_only_where_the_box_is_wide_enough(width_in: float) -> None:
    execution = example("1f1b", pp=4, microbatches=14)
    fig = plot_timeline([("all-max", execution)], fig=Figure(figsize=(width_in, 3)))
    (ax,) = panels(fig)
    fig.draw_without_rendering()
    boxes = [ax.transData.transform(box) for box in corners(ax, "computing")]
    for text in box_labels(ax):
        extent = text.get_window_extent()
        middle = (extent.x0 + extent.x1) / 2, (extent.y0 + extent.y1) / 2
        around = [b for b in boxes if b[0, 0] <= middle[0] <= b[1, 0] and b[2, 1] <= middle[1] <= b[0, 1]]
        assert len(around) == 1
        assert around[0][0, 0] <= extent.x0
        assert extent.x1 <= around[0][1, 0]
    expected = {4.0: range(50), 8.0: range(50, 112), 12.0: range(112, 113)}
    assert len(box_labels(ax)) in expected[width_in]


@given(st.integers(1, 4), st.integers(1, 6), st.randoms(use_true_random=False))
def test_waiting_and_work_fill_every_rank(pp: int, microbatches: int, random: "st.DataObject") -> None:
    execution = random_execution(pp, microbatches, random)
    rank, start_ps, end_ps = waits(execution)
    filled_ps = np.zeros(pp, dtype=np.int64)
    np.add.at(filled_ps, rank, end_ps - start_ps)
    np.add.at(filled_ps, execution.dag.pp_rank, execution.end_ps - execution.start_ps)
    assert filled_ps.tolist() == [execution.time_ps] * pp


@given(st.integers(1, 4), st.integers(1, 6), st.randoms(use_true_random=False))
def test_critical_path_covers_the_iteration(pp: int, microbatches: int, random: "st.DataObject") -> None:
    execution = random_execution(pp, microbatches, random)
    path = critical_path(execution)
    assert execution.start_ps[path[0]] == 0
    assert execution.end_ps[path[-1]] == execution.time_ps
    assert execution.end_ps[path[:-1]].tolist() == execution.start_ps[path[1:]].tolist()
    edges = set(map(tuple, execution.dag.edges.tolist()))
    assert edges.issuperset(zip(path[:-1].tolist(), path[1:].tolist(), strict=True))


def random_execution(pp: int, microbatches: int, random: "st.DataObject") -> Execution:
    dag = build_dag(make_schedule("1f1b", pp=pp, microbatches=microbatches))
    return play(dag, np.array([random.randint(0, 5) for _ in dag.instructions], dtype=np.int64))  # type: ignore[attr-defined]


def test_underline_covers_the_iteration() -> None:
    execution = example("1f1b", pp=4, microbatches=8)
    (ax,) = panels(plot_timeline([("all-max", execution)]))
    lines = [np.asarray(path.vertices) for path in collection(ax, "critical path").get_paths()]
    assert sum(float(np.ptp(line[:, 0])) for line in lines) == pytest.approx(execution.time_ps / 1e12)
    assert all(line[0, 1] == line[1, 1] for line in lines)


@pytest.mark.parametrize(("pp", "microbatches"), [(8, 32), (16, 128)])
def test_long_rows_show_three_windows_without_edges_and_labels(pp: int, microbatches: int) -> None:
    executions = pair("1f1b", pp=pp, microbatches=microbatches)
    fig = plot_timeline(executions)
    shown = windows([execution for _, execution in executions])
    upper, lower = panels(fig)[:3], panels(fig)[3:]
    assert [ax.get_xlim() for ax in upper] == [ax.get_xlim() for ax in lower]
    assert [ax.get_xlim() for ax in upper] == [(window.start_s, window.end_s) for window in shown]
    assert upper[0].get_xlim()[0] == 0
    assert upper[2].get_xlim()[1] == pytest.approx(max(execution.time_ps for _, execution in executions) / 1e12)
    seconds_per_width = [np.diff(ax.get_xlim())[0] / ax.get_position().width for ax in upper]
    assert seconds_per_width == pytest.approx([seconds_per_width[0]] * 3)
    for ax in panels(fig):
        assert not box_labels(ax)
        assert np.asarray(collection(ax, "computing").get_linewidth()).max() == 0
    names = [ax.get_xlabel() for ax in lower]
    assert names == [f"{w.name}: {100 * w.share:.0f} % of the longest iteration" for w in shown]
    assert [w.name for w in shown] == ["warm-up", "steady", "cool-down"]
    assert sum(w.share for w in shown) < 0.75
    assert sum(line.get_label() == "cut" for line in fig.findobj(Line2D)) == 4


def test_windows_start_above_sixty_boxes() -> None:
    assert MAX_BOXES_PER_ROW == 60
    assert len(windows([example("1f1b", pp=2, microbatches=30)])) == 1
    assert len(windows([example("1f1b", pp=2, microbatches=31)])) == 3


def test_cool_down_shows_the_end_of_the_faster_execution_too() -> None:
    executions = pair("1f1b", pp=16, microbatches=128, slower=1.1)
    fig = plot_timeline(executions)
    last_upper, last_lower = panels(fig)[2], panels(fig)[5]
    for ax in (last_upper, last_lower):
        assert [line.get_label() for line in ax.lines] == ["end of iteration"]


@pytest.mark.parametrize(
    ("name", "pp", "microbatches", "chunks"),
    [
        ("1f1b", 4, 8, 1),
        ("1f1b", 8, 32, 1),
        ("1f1b", 16, 128, 1),
        ("gpipe", 4, 8, 1),
        ("interleaved", 4, 8, 2),
        ("1f1b", 64, 64, 1),
    ],
)
def test_no_two_texts_touch(name: str, pp: int, microbatches: int, chunks: int) -> None:
    executions = pair(name, pp=pp, microbatches=microbatches, chunks=chunks)
    assert touching(plot_timeline(executions)) == []


def test_svg_is_small_and_the_same_every_time() -> None:
    executions = pair("1f1b", pp=16, microbatches=128)
    first, second = (theme.figure_bytes(plot_timeline(executions)) for _ in range(2))
    assert first == second
    assert len(first) < 3_000_000
    assert b"<dc:date>" not in first


def test_png_can_be_written_too() -> None:
    assert theme.figure_bytes(plot_timeline(pair("1f1b", pp=2, microbatches=2)), "png").startswith(b"\x89PNG")


def test_given_figure_keeps_its_size() -> None:
    fig = Figure(figsize=(6, 3))
    assert plot_timeline(pair("1f1b", pp=2, microbatches=2), fig=fig) is fig
    assert fig.get_size_inches().tolist() == [6, 3]


def test_clock_ticks_name_both_ends() -> None:
    assert clock_ticks(1050, 1410) == [1050, 1200, 1300, 1410]
    assert clock_ticks(1380, 1410)[0] == 1380
    assert clock_ticks(1380, 1410)[-1] == 1410


@pytest.mark.parametrize(("colour", "ink"), [("#fee838", theme.INK), ("#00224e", "white"), ("white", theme.INK)])
def test_text_is_readable_on_its_box(colour: str, ink: str) -> None:
    assert theme.ink_on(to_rgba(colour)) == ink


def test_a_title_stands_above_all_panels_and_touches_none() -> None:
    plain, titled = (
        plot_timeline(pair("1f1b", pp=4, microbatches=8)),
        plot_timeline(pair("1f1b", pp=4, microbatches=8), title="as it was measured"),
    )
    assert titled.get_figheight() > plain.get_figheight()
    assert "as it was measured" in [text.get_text() for text in all_texts(titled)]
    assert touching(titled) == []


def test_a_computation_whose_clock_is_not_known_is_grey_and_an_unknown_energy_is_not_told() -> None:
    (name, execution), *_ = pair("1f1b", pp=4, microbatches=8)
    clocks_mhz = execution.clocks_mhz.copy()
    clocks_mhz[:2] = 0
    unknown = replace(execution, clocks_mhz=clocks_mhz, total_uj=0, time_ps=2 * execution.time_ps)
    fig = plot_timeline([(name, execution), ("unknown", unknown)])
    ax = panels(fig)[1]
    assert len(corners(ax, "clock not known")) == 2
    assert len(corners(ax, "computing")) == len(execution.dag.instructions) - 2
    assert header(ax) == ["unknown", f"{2 * execution.time_ps / 1e12:.3f} s    slowdown 100.00 %"]
    nothing_known = replace(unknown, clocks_mhz=np.zeros_like(clocks_mhz))
    axes = plot_timeline([("unknown", nothing_known)]).axes
    assert "colour bar" not in [ax.get_label() for ax in axes]
