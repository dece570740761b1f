"""Saved frontiers, and the frontier as a CSV."""

import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perseus_dist.errors import FrontierFileError, OutputError
from perseus_dist.planning.coarse.coarse_frontier import plan_by
from perseus_dist.planning.frontier.frontier import Frontier, plan_frontier
from perseus_dist.planning.frontier.frontier_csv import write_frontier_csv
from perseus_dist.planning.frontier.frontier_file import BETWEEN_VERSION, load_frontier, save_frontier
from perseus_dist.planning.frontier.problem import make_problem
from perseus_dist.planning.frontier.replay import Execution
from perseus_dist.planning.profile.cost_curve import CostCurve
from perseus_dist.planning.profile.curve_doubt import CurveDoubt
from perseus_dist.planning.profile.profile import read_profile
from perseus_dist.planning.schedule.granularity import Granularity
from perseus_dist.planning.schedule.schedule import gpipe, interleaved, one_f_one_b
from perseus_dist.planning.schedule.schedule_text import parse_schedule
from perseus_dist.units import PS_PER_MS

# Two chunks on a rank, a backward in halves, constants with and without a microbatch: all that a schedule can have.
ORDERS = """\
0LOAD0 0F0 0F1 2F0 2B0 2F1 2B1 0I0 0I1 0W0 0W1 0STEP
1F0 1F1 1B0 1B1
"""
SCHEDULES = (
    one_f_one_b(pp=2, microbatches=3),
    gpipe(pp=1, microbatches=2),
    one_f_one_b(pp=4, microbatches=6),
    gpipe(pp=3, microbatches=4),
    interleaved(pp=2, microbatches=4, chunks=2),
)


def write_profile_csv(path: Path) -> Path:
    rows = ["stage,instruction,frequency,time,energy", "0,load,1000,0.01,1", "0,step,1000,0.02,1"]
    kinds = {
        0: ("forward", "backward_input", "backward_weight"),
        1: ("forward", "backward"),
        2: ("forward", "backward"),
    }
    for stage, names in kinds.items():
        for name in names:
            rows += [
                f"{stage},{name},{1400 - 100 * step},{0.1 + 0.003 * stage + 0.01 * step},{30 - (3 - stage / 4) * step}"
                for step in range(4 + stage)
            ]
    path.write_text("\n".join(rows))
    return path


@pytest.fixture(scope="module")
def frontier(tmp_path_factory: pytest.TempPathFactory) -> Frontier:
    profile = read_profile(write_profile_csv(tmp_path_factory.mktemp("profile") / "profile.csv"))
    powers_uw = [60_000_000, 80_000_000]
    problem = make_problem(parse_schedule(ORDERS), profile, blocking_uw_of_rank=powers_uw, tensor_parallel=2)
    return plan_frontier(problem, switch_latency_ps=5 * PS_PER_MS)


@pytest.mark.parametrize("num_examples", [8, pytest.param(20, marks=pytest.mark.stress)])
def test_frontiers_of_instructions_of_any_length_can_be_read_back(num_examples: int, tmp_path: Path) -> None:
    """Energies are whole microjoules, of which short instructions take few; no plan may lie below the bound."""

    @settings(max_examples=num_examples)
    @given(seed=st.integers(0, 2**32), size_s=st.floats(1e-6, 1e2), granularity=st.sampled_from(Granularity))
    @example(seed=2, size_s=1e-6, granularity=Granularity.INSTRUCTION)
    def holds(seed: int, size_s: float, granularity: Granularity) -> None:
        check_is_read_back(seed, size_s, granularity, tmp_path)

    holds()


def check_is_read_back(seed: int, size_s: float, granularity: Granularity, folder: Path) -> None:
    rng = np.random.default_rng(seed)
    schedule = SCHEDULES[seed % len(SCHEDULES)]
    most_clocks = 12 if granularity is Granularity.INSTRUCTION else 6  # the search of the others grows fast with them
    clocks_mhz = rng.choice(np.arange(300, 1800, 15), rng.integers(2, most_clocks), replace=False)
    rows = ["stage,instruction,frequency,time,energy"]
    for stage in range(schedule.num_stages):
        for name in ("forward", "backward"):
            time_s, power_w = size_s * rng.uniform(0.5, 2), rng.uniform(100, 400)
            for share, clock_mhz in zip(clocks_mhz / clocks_mhz.max(), clocks_mhz, strict=True):
                at_clock_s = time_s / share ** rng.uniform(0.8, 1)
                energy_j = max(at_clock_s * (80 + power_w * share**2.5), 1e-6)
                rows.append(f"{stage},{name},{clock_mhz},{at_clock_s:.9g},{energy_j:.9g}")
    (folder / "profile.csv").write_text("\n".join(rows))
    blocking_uw = [int(rng.choice([0, 20_000_000, 80_000_000]))] * schedule.num_ranks
    problem = make_problem(schedule, read_profile(folder / "profile.csv"), blocking_uw_of_rank=blocking_uw)
    frontier = plan_by(problem, granularity)
    assert (frontier.gaps >= 0).all()
    save_frontier(frontier, folder / "frontier.npz")
    assert (load_frontier(folder / "frontier.npz").time_ps == frontier.time_ps).all()


@pytest.fixture
def saved(frontier: Frontier, tmp_path: Path) -> Path:
    save_frontier(frontier, tmp_path / "frontier.npz")
    return tmp_path / "frontier.npz"


def assert_same(one: object, other: object, cls: type, *, but: tuple[str, ...] = ()) -> None:
    """Every attribute is the same, arrays also in their types."""
    for field in fields(cls):
        if field.name not in but:
            left, right = getattr(one, field.name), getattr(other, field.name)
            np.testing.assert_array_equal(left, right, err_msg=field.name)
            assert getattr(left, "dtype", None) == getattr(right, "dtype", None), field.name


def test_gives_back_the_same(frontier: Frontier, saved: Path) -> None:
    loaded = load_frontier(saved)
    assert_same(loaded, frontier, Frontier, but=("problem", "bound", "baseline"))
    assert_same(loaded.baseline, frontier.baseline, Execution, but=("dag",))
    np.testing.assert_array_equal(loaded.bound.time_ps, frontier.bound.time_ps)
    np.testing.assert_array_equal(loaded.gaps, frontier.gaps)
    assert loaded.problem.dag.schedule == frontier.problem.dag.schedule
    assert loaded.problem.tensor_parallel == 2
    for curve, expected in zip(loaded.problem.curves, frontier.problem.curves, strict=True):
        assert_same(curve, expected, CostCurve, but=("doubt",))
        assert curve.doubt is not None or len(curve.clocks_mhz) < 6
        if curve.doubt is not None:
            assert_same(curve.doubt, expected.doubt, CurveDoubt)
    for point in range(len(frontier.time_ps)):
        assert_same(loaded.execution(point), frontier.execution(point), Execution, but=("dag",))


def test_the_same_frontier_gives_the_same_bytes(saved: Path, tmp_path: Path) -> None:
    save_frontier(load_frontier(saved), tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == saved.read_bytes()


def test_loading_solves_nothing(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("perseus_dist._solver.solve_frontier")
    monkeypatch.delattr("perseus_dist._solver.realise")
    assert load_frontier(saved).fastest_ps > 0


def test_refuses_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FrontierFileError, match=r"none\.npz: cannot be read \(No such file or directory\)"):
        load_frontier(tmp_path / "none.npz")


@pytest.mark.parametrize("share", [0.0005, 0.02, 0.3, 0.7, 0.98, 0.9999])
def test_refuses_a_truncated_file(saved: Path, share: float) -> None:
    data = saved.read_bytes()
    saved.write_bytes(data[: max(4, int(share * len(data)))])
    with pytest.raises(
        FrontierFileError, match=r"damaged archive of .* bytes, expected a whole frontier\.npz; copy it"
    ):
        load_frontier(saved)


def test_refuses_flipped_bits(saved: Path) -> None:
    data = bytearray(saved.read_bytes())
    refusals = []
    for place in range(40, len(data), len(data) // 23):
        damaged = data.copy()
        damaged[place] ^= 0x55
        saved.write_bytes(damaged)
        try:
            load_frontier(saved)  # a bit that no reader looks at may flip
        except FrontierFileError as error:
            refusals.append(str(error))
    assert len(refusals) > 12
    assert all(refusal.startswith(f"{saved}: saw") for refusal in refusals)


@pytest.mark.parametrize(
    "content",
    [b"", b"time_s,energy_j\n1,2\n", b"\x80\x04K\x01.", b"\x93NUMPY\x01\x00"],
    ids=["empty", "text", "pickle", "npy"],
)
def test_refuses_other_files(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "other").write_bytes(content)
    with pytest.raises(FrontierFileError, match=r"saw something else than a saved frontier; name a frontier\.npz"):
        load_frontier(tmp_path / "other")


def test_refuses_other_archives(tmp_path: Path) -> None:
    np.savez(tmp_path / "arrays.npz", header=np.arange(3), time_ps=np.arange(3))
    with zipfile.ZipFile(tmp_path / "texts.zip", "w") as archive:
        archive.writestr("header", "{}")
    data = io.BytesIO()
    np.savez(data, header=np.array([{"format": "perseus-dist frontier"}], dtype=object))
    (tmp_path / "objects.npz").write_bytes(data.getvalue())
    for name, expected in (("arrays.npz", "else"), ("texts.zip", "else"), ("objects.npz", "damaged")):
        with pytest.raises(FrontierFileError, match=expected):
            load_frontier(tmp_path / name)


def rewrite(path: Path, **changes: Callable[[Any], Any]) -> None:
    """Change entries of the header, or arrays, of a saved frontier."""
    with np.load(path) as archive:
        arrays = dict(archive)
    header = json.loads(arrays["header"].tobytes())
    for name, change in changes.items():
        target = header if name in header else arrays
        target[name] = change(target[name])
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    np.savez(path, **arrays)


def test_refuses_a_newer_schema(saved: Path) -> None:
    rewrite(saved, schema_version=lambda _: BETWEEN_VERSION + 1)
    expected = f"saw schema version {BETWEEN_VERSION + 1}, expected {BETWEEN_VERSION}; upgrade perseus-dist"
    with pytest.raises(FrontierFileError, match=expected):
        load_frontier(saved)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("schedule", lambda text: text.replace("1B1", "1B0")),
        ("schedule", lambda text: text.replace("2F", "3F").replace("2B", "3B")),
        ("curves", lambda curves: curves[:-1]),
        ("num_clocks", lambda counts: [counts[0] + 1, *counts[1:]]),
        ("tensor_parallel", lambda _: None),
        ("time_ps", lambda array: array[::-1]),
        ("time_ps", lambda array: array[:0]),
        ("effective_uj", lambda array: array[:-1]),
        ("effective_uj", lambda array: array.astype(np.float64)),
        ("blocking_uw", lambda array: array[:-1]),
        ("time_ps", lambda array: np.append(np.int64(0), array[1:])),
        ("bound_time_ps", lambda array: array[:0]),
        ("bound_time_ps", lambda array: np.append(np.int64(0), array[1:])),
        ("clock_indices", lambda array: array + np.uint16(9)),
        ("clock_indices", lambda array: array[:, :-1]),
        ("curve_choices", lambda array: array + np.int32(99)),
        ("curve_hull", lambda array: array - np.int32(99)),
        ("curve_durations_ps", lambda array: array.astype(np.int32)),
    ],
)
def test_refuses_parts_that_do_not_fit(saved: Path, name: str, change: Callable[[Any], Any]) -> None:
    rewrite(saved, **{name: change})
    with pytest.raises(FrontierFileError, match="whose parts do not fit together"):
        load_frontier(saved)


def test_refuses_a_folder_that_is_not_there(frontier: Frontier, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be written"):
        save_frontier(frontier, tmp_path / "none" / "frontier.npz")
    assert not list(tmp_path.iterdir())


def test_csv(frontier: Frontier, tmp_path: Path) -> None:
    write_frontier_csv(frontier, tmp_path / "frontier.csv")
    header, *lines = (tmp_path / "frontier.csv").read_text().splitlines()
    assert header == "time_s,energy_j,lower_bound_j"
    rows = [[float(cell) for cell in line.split(",")] for line in lines]
    assert len(rows) == len(frontier.deadline_points) > 10
    time_s, energy_j, bound_j = np.array(rows).T
    assert (np.diff(time_s) > 0).all()
    assert (np.diff(energy_j) < 0).all()
    np.testing.assert_array_equal(np.rint(time_s * 1e12), frontier.time_ps[frontier.deadline_points])
    np.testing.assert_array_equal(np.rint(energy_j * 1e6), frontier.total_uj[frontier.deadline_points])
    np.testing.assert_allclose(energy_j / bound_j - 1, frontier.gaps[frontier.deadline_points], rtol=0, atol=1e-12)
