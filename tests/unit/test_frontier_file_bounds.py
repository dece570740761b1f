"""Saved frontiers at the limits of what a file may say."""

import json
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from malformed.frontiers import sealed
from small_pipelines import MS, Points, frontier_of, plan_of, small_curve, small_problem

from perseus_dist.errors import FrontierFileError
from perseus_dist.planning.frontier import frontier_file as module
from perseus_dist.planning.frontier.frontier import Frontier, plan_frontier
from perseus_dist.planning.frontier.frontier_file import (
    BETWEEN_VERSION,
    COARSE_VERSION,
    EXCHANGE_VERSION,
    LATENCY_VERSION,
    SCHEMA_VERSION,
    WAITING_VERSION,
    frontier_from_npz,
    frontier_npz,
)
from perseus_dist.planning.frontier.problem import PlanningProblem
from perseus_dist.planning.profile.cost_curve import CostCurve
from perseus_dist.planning.schedule.granularity import Granularity

TWO: Points = {1000: (10, 9000), 500: (20, 5000)}
PAIR = "0F0 0B0\n1F0 1B0"


def chain(
    points: Points = TWO, *, blocking_uw: int = 0, change: Callable[[CostCurve], CostCurve] = lambda curve: curve
) -> PlanningProblem:
    """A forward whose curve may be changed, and a backward."""
    forward, backward = (small_curve(0, kind, points, blocking_uw=blocking_uw) for kind in "FB")
    return small_problem("0F0 0B0", [change(forward), backward], blocking_uw=blocking_uw)


def pair(orders: str = PAIR, *more: CostCurve) -> Frontier:
    curves = [small_curve(stage, kind, TWO) for stage in (0, 1) for kind in "FB"]
    of = small_problem(orders, [*curves, *more])
    return frontier_of(of, [plan_of(of)])


def alone(of: PlanningProblem, **options: int) -> Frontier:
    """Full clocks, as the only plan."""
    return frontier_of(of, [plan_of(of)], **options)


def unpacked(data: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and arrays."""
    with np.load(BytesIO(data)) as archive:
        arrays = dict(archive)
    return json.loads(arrays["header"].tobytes()), arrays


def header_of(frontier: Frontier) -> dict[str, Any]:
    return unpacked(frontier_npz(frontier))[0]


def changed(frontier: Frontier, **header: Any) -> bytes:
    """The file with other entries of its header, and the digest that fits; None takes one away."""
    before, arrays = unpacked(frontier_npz(frontier))
    after = {name: value for name, value in (before | header).items() if value is not None}
    arrays["header"] = np.frombuffer(json.dumps(after).encode(), dtype=np.uint8)
    data = BytesIO()
    np.savez_compressed(data, **sealed(arrays))  # type: ignore[arg-type]  # no array is called allow_pickle
    return data.getvalue()


def is_read(data: bytes) -> bool:
    """Whether the file is read, and not refused as one whose parts do not fit."""
    try:
        frontier_from_npz(data, "frontier.npz")
    except FrontierFileError as error:
        if "whose parts do not fit together" not in str(error):
            raise
        return False
    return True


def latent() -> Frontier:
    """Of a profile that says how long changes of clocks take."""
    return alone(chain(change=lambda curve: replace(curve, latencies_ps=np.array([1, 2]))))


def send() -> CostCurve:
    """A transfer of 1 ms."""
    return small_curve(0, "SEND_F", {0: (1, 0)})


FILES: dict[str, tuple[Callable[[], Frontier], int]] = {
    "plain": (lambda: alone(chain()), SCHEMA_VERSION),
    "shared clocks": (lambda: replace(alone(chain()), granularity=Granularity.RANK), COARSE_VERSION),
    "latencies": (latent, LATENCY_VERSION),
    "both": (lambda: replace(latent(), granularity=Granularity.RANK), LATENCY_VERSION),
    "two ranks": (pair, SCHEMA_VERSION),
    "a transfer": (lambda: pair(PAIR, send()), EXCHANGE_VERSION),
    "a transfer as before": (lambda: pair(f"# exchange: sender\n{PAIR}", send()), SCHEMA_VERSION),
    "a load": (lambda: pair(f"0LOAD0 {PAIR}", small_curve(0, "LOAD", {0: (1, 0)})), EXCHANGE_VERSION),
    "as before without a transfer": (lambda: pair(f"# exchange: sender\n{PAIR}"), SCHEMA_VERSION),
    "waiting": (lambda: pair(f"# exchange: deferred\n{PAIR}"), WAITING_VERSION),
    "between iterations": (lambda: pair(PAIR, small_curve(0, "BETWEEN_ITERATIONS", {0: (1, 0)})), BETWEEN_VERSION),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_of_the_first_schema_that_can_say_what_is_in_it(name: str) -> None:
    make, version = FILES[name]
    frontier = make()
    assert header_of(frontier)["schema_version"] == version
    again = frontier_from_npz(frontier_npz(frontier), "frontier.npz")
    assert again.time_ps.tolist() == frontier.time_ps.tolist()
    assert again.granularity == frontier.granularity
    assert again.problem.dag.schedule == frontier.problem.dag.schedule


def test_errors_are_told_where_one_curve_has_any_of_them() -> None:
    doubtful = small_curve(0, "F", TWO, time_errors=(0.01, 0.02)).doubt
    known: list[dict[str, Any]] = [{"doubt": doubtful}, {"latencies_p90_ps": np.array([3, 4])}, {"spread": 0.02}, {}]
    for of_curve in known:
        frontier = alone(chain(change=lambda curve, these=of_curve: replace(curve, **these)))  # type: ignore[misc]
        assert ("doubts" in header_of(frontier)) == bool(of_curve)
        again = frontier_from_npz(frontier_npz(frontier), "frontier.npz").problem.curves[0]
        assert (again.doubt is not None) == ("doubt" in of_curve)
        assert (again.latencies_p90_ps is not None) == ("latencies_p90_ps" in of_curve)
        assert again.spread == of_curve.get("spread", 0.0)
    late = replace(small_curve(0, "SEND_F", {0: (1, 0)}), p90_excess_ps=5)
    again = frontier_from_npz(frontier_npz(pair(PAIR, late)), "frontier.npz").problem.curves[-1]
    assert (again.kind, again.p90_excess_ps) == ("SEND_F", 5)


@pytest.mark.parametrize(
    ("version", "saw"),
    [(0, "schema version 0,"), (1, "schema version 1,"), (9, "schema version 9,"), (10**6, "schema version 1000000,")],
)
def test_other_schemas_are_named(version: int, saw: str) -> None:
    with pytest.raises(FrontierFileError, match=saw):
        frontier_from_npz(changed(alone(chain()), schema_version=version), "frontier.npz")


@pytest.mark.parametrize("version", [-1, 10**6 + 1, True, "3", 3.0])
def test_what_is_no_schema_is_no_saved_frontier(version: object) -> None:
    with pytest.raises(FrontierFileError, match="saw something else than a saved frontier"):
        frontier_from_npz(changed(alone(chain()), schema_version=version), "frontier.npz")


@pytest.mark.parametrize(
    ("entry", "is_good"),
    [
        ({"tolerance": 0.0}, True),
        ({"tolerance": 0.999}, True),
        ({"tolerance": 1.0}, False),
        ({"tolerance": -0.001}, False),
        ({"tolerance": 0}, False),
        ({"tensor_parallel": 1}, True),
        ({"tensor_parallel": 10**9}, True),
        ({"tensor_parallel": 0}, False),
        ({"tensor_parallel": 10**9 + 1}, False),
        ({"switch_latency_ps": 0}, True),
        ({"switch_latency_ps": 10**13}, True),
        ({"switch_latency_ps": 10**13 + 1}, False),
        ({"switch_latency_ps": -1}, False),
        ({"granularity": "instruction"}, False),
        ({"granularity": "rank"}, True),
        ({"schema_version": COARSE_VERSION}, False),
        ({"schema_version": COARSE_VERSION, "granularity": "phase"}, True),
        ({"latencies_ps": [[0, 10**13], None]}, True),
        ({"latencies_ps": [[0, 10**13 + 1], None]}, False),
        ({"latencies_ps": [[-1, 0], None]}, False),
        ({"latencies_ps": [[0], None]}, False),
        ({"latencies_ps": [[0, 0, 0], None]}, False),
        ({"latencies_ps": [[0, 1.0], None]}, False),
        ({"latencies_ps": [[0, True], None]}, False),
        ({"latencies_ps": [None]}, False),
        ({"latencies_ps": [None, None, None]}, False),
        ({"doubts": [{}, {}]}, True),
        ({"doubts": [{}]}, False),
        ({"doubts": [{}, {}, {}]}, False),
        ({"doubts": [{"p90_excess_ps": 0}, {}]}, True),
        ({"doubts": [{"p90_excess_ps": 1}, {}]}, False),
        ({"doubts": [{"latencies_p90_ps": [0, 1]}, {}]}, True),
        ({"doubts": [{"latencies_p90_ps": [0]}, {}]}, False),
    ],
    ids=str,
)
def test_an_entry_of_the_header_is_read_up_to_its_limits(entry: dict[str, Any], *, is_good: bool) -> None:
    assert is_read(changed(alone(chain()), **entry)) == is_good


GOOD = {
    "time_share": [0.0, 1.0],
    "energy_share": [0.5, 0.5],
    "energy_common_share": [0.0, 0.0],
    "is_between": [False, True],
    "is_from_samples": True,
}


@pytest.mark.parametrize(
    ("entry", "is_good"),
    [
        ({}, True),
        ({"time_share": [0.0, 1.0000001]}, False),
        ({"time_share": [-1e-9, 0.0]}, False),
        ({"time_share": [0, 0.0]}, False),
        ({"time_share": [0.0, float("nan")]}, False),
        ({"time_share": [0.0]}, False),
        ({"energy_share": [0.0] * 3}, False),
        ({"is_between": [False]}, False),
        ({"is_between": [False, 1]}, False),
        ({"is_from_samples": 1}, False),
        ({"is_from_samples": False}, True),
        ({"spread": 0.0}, True),
        ({"spread": 1.0}, True),
        ({"spread": 1.0000001}, False),
        ({"spread": -1e-9}, False),
        ({"spread": float("nan")}, False),
        ({"spread": 0}, False),
    ],
    ids=str,
)
def test_errors_are_shares_from_none_to_all_of_it(entry: dict[str, Any], *, is_good: bool) -> None:
    assert is_read(changed(alone(chain()), doubts=[GOOD | entry, {}])) == is_good


@pytest.mark.parametrize(("excess_ps", "is_good"), [(0, True), (10**16, True), (10**16 + 1, False), (-1, False)])
def test_a_transfer_is_late_by_no_more_than_an_instruction_may_last(excess_ps: int, *, is_good: bool) -> None:
    frontier = pair(PAIR, small_curve(0, "SEND_F", {0: (1, 0)}))
    assert is_read(changed(frontier, doubts=[{}] * 4 + [{"p90_excess_ps": excess_ps}])) == is_good


def test_a_file_of_before_has_no_tolerance() -> None:
    data = changed(alone(chain()), schema_version=2, tolerance=None)
    assert frontier_from_npz(data, "frontier.npz").bound.tolerance == 0.0
    assert not is_read(changed(alone(chain()), schema_version=3, tolerance=None))


@pytest.mark.parametrize(
    ("points", "is_good"),
    [
        ({100_000: (10, 9000), 500: (20, 5000)}, True),
        ({100_001: (10, 9000), 500: (20, 5000)}, False),
        ({1000: (10, 9000), 0: (20, 5000)}, True),
        ({1000: (10, 9000), -1: (20, 5000)}, False),
        ({500: (10, 9000), 1000: (20, 5000)}, False),
        ({1000: (10, 1), 500: (20, 0)}, True),
        ({1000: (10, 1), 500: (20, -1)}, False),
        ({1000: (1e-9, 9000), 500: (20, 5000)}, True),
        ({1000: (0, 9000), 500: (20, 5000)}, False),
        ({1000: (10, 2**62 - 1), 500: (20, 5000)}, True),
        ({1000: (10, 2**62), 500: (20, 5000)}, False),
        ({1000: (10, 9000), 500: (1e9, 5000)}, True),
        ({1000: (10, 9000), 500: (1.000000001e9, 5000)}, False),
    ],
    ids=str,
)
def test_clocks_times_and_energies_are_read_up_to_their_limits(points: Points, *, is_good: bool) -> None:
    """Of one curve, beside one of usual values."""
    of = small_problem("0F0 0B0", [small_curve(0, "F", points), small_curve(0, "B", TWO)])
    assert is_read(frontier_npz(alone(of))) == is_good


@pytest.mark.parametrize(("blocking_uw", "is_good"), [(0, True), (10**10, True), (10**10 + 1, False), (-1, False)])
def test_a_group_waits_at_no_more_than_its_gpus_can_draw(blocking_uw: int, *, is_good: bool) -> None:
    assert is_read(frontier_npz(alone(chain(blocking_uw=blocking_uw)))) == is_good


def test_a_group_of_two_may_draw_twice_as_much() -> None:
    frontier = alone(chain(blocking_uw=2 * 10**10))
    assert [is_read(changed(frontier, tensor_parallel=number)) for number in (1, 2)] == [False, True]


@pytest.mark.parametrize(("less", "is_good"), [(0, True), (1, False)])
def test_an_archive_is_read_up_to_so_many_bytes(less: int, monkeypatch: pytest.MonkeyPatch, *, is_good: bool) -> None:
    data = frontier_npz(alone(chain()))
    _, arrays = unpacked(data)
    sizes = 0
    for array in arrays.values():
        member = BytesIO()
        np.save(member, array)
        sizes += len(member.getvalue())
    monkeypatch.setattr(module, "_MAX_BYTES", sizes - less)
    if is_good:
        assert frontier_from_npz(data, "frontier.npz").time_ps.tolist() == [20 * MS]
    else:
        with pytest.raises(FrontierFileError, match="saw a damaged archive"):
            frontier_from_npz(data, "frontier.npz")


def spoilt(frontier: Frontier, **arrays: Any) -> bytes:
    """The file with other arrays, and the digest that fits."""
    _, before = unpacked(frontier_npz(frontier))
    data = BytesIO()
    np.savez_compressed(data, **sealed(before | arrays))  # type: ignore[arg-type]
    return data.getvalue()


def test_plans_are_what_is_said_of_them() -> None:
    of = chain()
    frontier = frontier_of(of, [plan_of(of), plan_of(of, _0F0=1)])
    assert is_read(spoilt(frontier))
    one = np.array([0, 1])
    for name in ("time_ps", "effective_uj"):
        assert not is_read(spoilt(frontier, **{name: getattr(frontier, name) + one}))
    assert not is_read(spoilt(frontier, num_changes=frontier.num_changes + np.array([0, 1], dtype=np.int32)))
    assert not is_read(spoilt(frontier, clock_indices=np.array([[0, 0], [2, 0]], dtype=np.uint16)))


def test_a_clock_is_one_of_the_curve_even_where_the_next_curve_has_such_a_one() -> None:
    """Behind the two clocks of the forward stands the backward's first, which takes and draws as much."""
    frontier = alone(chain())
    assert is_read(spoilt(frontier, clock_indices=np.array([[0, 0]], dtype=np.uint16)))
    assert not is_read(spoilt(frontier, clock_indices=np.array([[2, 0]], dtype=np.uint16)))


def test_no_clock_stands_twice_in_a_curve() -> None:
    twice = chain(change=lambda curve: replace(curve, clocks_mhz=np.array([1000, 1000])))
    assert not is_read(frontier_npz(alone(twice)))


@pytest.mark.parametrize(("above_uj", "is_good"), [(0, True), (1, False)])
def test_no_plan_lies_below_the_bound(above_uj: int, *, is_good: bool) -> None:
    """A microjoule of 18 thousand is more than a millionth."""
    frontier = alone(chain())
    assert is_read(spoilt(frontier, bound_effective_uj=frontier.bound.effective_uj + above_uj)) == is_good


@pytest.mark.parametrize(
    ("time_ps", "effective_uj", "is_good"),
    [
        ([20 * MS, 40 * MS], [17_999, 9_999], True),
        ([1, 40 * MS], [17_999, 9_999], True),
        ([0, 40 * MS], [17_999, 9_999], False),
        ([20 * MS, 20 * MS], [17_999, 9_999], False),
        ([20 * MS, 40 * MS], [9_999, 9_999], False),
        ([20 * MS, 20 * MS + 1], [9_999, 9_998], True),
    ],
)
def test_a_bound_ascends_in_time_and_falls(time_ps: list[int], effective_uj: list[int], *, is_good: bool) -> None:
    frontier = plan_frontier(chain())
    assert (
        is_read(spoilt(frontier, bound_time_ps=np.array(time_ps), bound_effective_uj=np.array(effective_uj))) == is_good
    )


@pytest.mark.parametrize(("granularity", "is_good"), [("phase", True), ("rank", False)])
def test_instructions_share_the_clocks_that_the_file_says(granularity: str, *, is_good: bool) -> None:
    of = chain()
    frontier = replace(frontier_of(of, [plan_of(of, _0B0=1)]), granularity=Granularity(granularity))
    assert is_read(frontier_npz(frontier)) == is_good
