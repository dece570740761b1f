"""The native module's Python face: strict array types, errors, progress, Ctrl-C, and who owns memory."""

import _thread
import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from perseus_dist import _solver

Arrays = dict[str, Any]


def small_problem() -> Arrays:
    """Two instructions, one after the other; slopes 5 and 3."""
    return {
        "hull_begin": np.array([0, 2, 4], dtype=np.int32),
        "hull_ps": np.array([10, 20, 10, 30], dtype=np.int64),
        "slope_uw": np.array([5, 0, 3, 0], dtype=np.int64),
        "curve_of": np.array([0, 1], dtype=np.int32),
        "edge_from": np.array([0], dtype=np.int32),
        "edge_to": np.array([1], dtype=np.int32),
        "blocking_uw": 4,
        "num_to_t_star": 2,
        "num_beyond": 1,
        "extra_ps": np.array([40], dtype=np.int64),
    }


def long_problem(num_instructions: int = 20_000, num_vertices: int = 40) -> Arrays:
    """Eight crossing chains, every instruction with a curve of its own: takes seconds to solve."""
    rng = np.random.default_rng(1)
    steps_ps = rng.integers(1, 10**6, (num_instructions, num_vertices))
    slopes_uw = rng.integers(1, 10**6, (num_instructions, num_vertices))
    slopes_uw[:, -1] = 0
    before = np.arange(num_instructions - 8)
    return {
        **small_problem(),
        "hull_begin": np.arange(0, (num_instructions + 1) * num_vertices, num_vertices, dtype=np.int32),
        "hull_ps": steps_ps.cumsum(axis=1).ravel(),
        "slope_uw": slopes_uw[:, ::-1].cumsum(axis=1)[:, ::-1].ravel(),
        "curve_of": np.arange(num_instructions, dtype=np.int32),
        "edge_from": np.concatenate((before, before)).astype(np.int32),
        "edge_to": np.concatenate((before + 8, before // 8 * 8 + 8 + (before + 1) % 8)).astype(np.int32),
        "extra_ps": np.empty(0, dtype=np.int64),
    }


def small_menu() -> Arrays:
    """The clocks of the small problem, and a rank that runs both instructions."""
    return {
        "curve_begin": np.array([0, 2, 4], dtype=np.int32),
        "clock_mhz": np.array([1400, 1000, 1400, 1000], dtype=np.int32),
        "duration_ps": np.array([10, 20, 10, 30], dtype=np.int64),
        "effective_uj": np.array([100, 50, 100, 40], dtype=np.int64),
        "choice_begin": np.array([0, 2, 4], dtype=np.int32),
        "choice": np.array([0, 1, 0, 1], dtype=np.int32),
        "curve_of": np.array([0, 1], dtype=np.int32),
        "previous_on_rank": np.array([-1, 0], dtype=np.int32),
    }


def replay_arguments(menu: _solver.Menu) -> Arrays:
    edges = {name: small_problem()[name] for name in ("edge_from", "edge_to")}
    return {"menu": menu, **edges, "plan": np.array([0, 1], dtype=np.int32), "latency_ps": np.zeros(4, dtype=np.int64)}


def realise_arguments(menu: _solver.Menu, frontier: _solver.FrontierResult) -> Arrays:
    return {
        "menu": menu,
        **{name: small_problem()[name] for name in ("edge_from", "edge_to", "blocking_uw")},
        "frontier": frontier,
        "microbatch": np.array([0, 0], dtype=np.int32),
        "latency_ps": np.zeros(4, dtype=np.int64),
        "wanted_ps": np.empty(0, dtype=np.int64),
    }


def test_a_frontier_in_arrays() -> None:
    frontier = _solver.solve_frontier(**small_problem())
    np.testing.assert_array_equal(frontier.time_ps, [50, 30, 20])
    np.testing.assert_array_equal(frontier.slope_uw, [3, 5, 0])
    assert frontier.time_ps.dtype == frontier.slope_uw.dtype == frontier.energy_uj.dtype == np.int64
    assert frontier.t_star_ps == 30
    assert not frontier.cancelled
    assert frontier.num_augmentations == 2
    samples = [frontier.sample(k) for k in range(frontier.num_samples)]
    assert [time_ps for time_ps, *_ in samples] == [50, 40, 30, 20]
    _, start_ps, end_ps, price_uw = samples[1]
    np.testing.assert_array_equal(start_ps, [0, 20])
    np.testing.assert_array_equal(end_ps, [20, 40])
    np.testing.assert_array_equal(price_uw, [3, 3])
    with pytest.raises(IndexError):
        frontier.sample(4)


@pytest.mark.parametrize(("duration_ps", "energy_uj"), [(1_499_999, 1), (1_500_001, 2)])
def test_energy_is_rounded_to_the_nearest_microjoule(duration_ps: int, energy_uj: int) -> None:
    frontier = _solver.solve_frontier(
        **small_problem()
        | {
            "hull_ps": np.array([0, duration_ps, 0, 1]),
            "slope_uw": np.array([10**6, 0, 1, 0]),
            "extra_ps": np.empty(0, int),
        }
    )
    assert frontier.energy_uj[-1] == energy_uj


def test_replay_and_realise_in_arrays() -> None:
    menu = _solver.Menu(**small_menu())
    time_ps, effective_uj, start_ps, end_ps, effective_uj_of, changes = _solver.replay(**replay_arguments(menu))
    assert (time_ps, effective_uj) == (40, 140)
    np.testing.assert_array_equal(start_ps, [0, 10])
    np.testing.assert_array_equal(end_ps, [10, 40])
    np.testing.assert_array_equal(effective_uj_of, [100, 40])
    np.testing.assert_array_equal(changes, [0, 1])
    frontier = _solver.solve_frontier(**small_problem())
    times_ps, effective_uj_of_plans, num_changes, plans = _solver.realise(**realise_arguments(menu, frontier))
    np.testing.assert_array_equal(times_ps, [20, 30, 40, 50])
    np.testing.assert_array_equal(effective_uj_of_plans, [200, 150, 140, 90])
    np.testing.assert_array_equal(num_changes, [0, 1, 1, 0])
    np.testing.assert_array_equal(plans, [[0, 0], [1, 0], [0, 1], [1, 1]])
    assert plans.dtype == np.uint16


@pytest.mark.parametrize("name", ["hull_begin", "hull_ps", "slope_uw", "curve_of", "edge_from", "edge_to", "extra_ps"])
def test_solve_frontier_converts_no_array(name: str) -> None:
    check_strictness(_solver.solve_frontier, small_problem(), name)


@pytest.mark.parametrize("name", sorted(small_menu()))
def test_menu_converts_no_array(name: str) -> None:
    check_strictness(_solver.Menu, small_menu(), name)


@pytest.mark.parametrize("name", ["edge_from", "edge_to", "plan"])
def test_replay_converts_no_array(name: str) -> None:
    check_strictness(_solver.replay, replay_arguments(_solver.Menu(**small_menu())), name)


@pytest.mark.parametrize("name", ["edge_from", "edge_to", "microbatch", "wanted_ps"])
def test_realise_converts_no_array(name: str) -> None:
    frontier = _solver.solve_frontier(**small_problem())
    check_strictness(_solver.realise, realise_arguments(_solver.Menu(**small_menu()), frontier), name)


def check_strictness(call: Callable[..., object], arguments: Arrays, name: str) -> None:
    """Other types, shapes and strides are refused: a silent copy would hide a mistake."""
    right = arguments[name]
    other_integer = np.int64 if right.dtype == np.int32 else np.int32
    spread = np.zeros(2 * len(right) + 4, dtype=right.dtype)[::2]
    for wrong in (right.astype(np.float64), right.astype(other_integer), right.tolist(), right.reshape(-1, 1), spread):
        with pytest.raises(TypeError):
            call(**arguments | {name: wrong})
    frozen = right.copy()
    frozen.flags.writeable = False
    call(**arguments | {name: frozen})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"curve_of": np.array([0, 2], dtype=np.int32)}, "instruction 1 has no curve"),
        ({"edge_to": np.array([9], dtype=np.int32)}, "edge 0 leaves the range of instructions"),
        ({"edge_to": np.array([0], dtype=np.int32)}, "the edges close a cycle"),
        ({"slope_uw": np.array([5, 5, 3, 0])}, "curve 0: the last slope of its hull is not 0"),
        ({"hull_ps": np.array([10, 20, 10, 10])}, "curve 1: the durations of its hull do not ascend"),
        ({"curve_of": np.array([], dtype=np.int32)}, "no instructions"),
    ],
)
def test_arrays_that_are_no_problem(change: Arrays, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        _solver.solve_frontier(**small_problem() | change)


def test_progress_moves_and_cancels() -> None:
    seen: list[float] = []

    def three_times(done: float) -> bool:
        seen.append(done)
        return len(seen) < 3

    assert _solver.solve_frontier(**long_problem(), progress=three_times).cancelled
    assert len(seen) == 3
    assert 0 <= seen[0] <= seen[1] <= seen[2] < 1


def test_what_progress_raises_passes_through() -> None:
    def fail(_: float) -> bool:
        raise LookupError("no terminal")

    with pytest.raises(LookupError, match="no terminal"):
        _solver.solve_frontier(**long_problem(), progress=fail)


def test_ctrl_c_stops_the_solver() -> None:
    """The other thread can run only because the solver has released the GIL."""
    problem = long_problem()
    other = threading.Timer(0.05, _thread.interrupt_main)
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 the signal may also arrive in join()
        other.start()
        _solver.solve_frontier(**problem)
        other.join()


def test_results_outlive_what_they_came_from() -> None:
    problem = small_problem()
    frontier = _solver.solve_frontier(**problem)
    time_ps, (_, _, end_ps, _) = frontier.time_ps, frontier.sample(0)
    again = frontier.time_ps
    again[:] = 0  # a copy of its own
    arrays = small_menu()
    menu = _solver.Menu(**arrays)
    del problem, frontier, arrays
    gc.collect()
    np.testing.assert_array_equal(time_ps, [50, 30, 20])
    np.testing.assert_array_equal(end_ps, [20, 50])
    assert _solver.replay(**replay_arguments(menu))[0] == 40
