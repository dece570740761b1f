"""Cost curves: Pareto choices, the exact hull, tensor-parallel groups, and schedules that a profile does not fit."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseus_dist.errors import ProfileError
from perseus_dist.planning.profile.cost_curve import MAX_SLOPE_UW, CostCurve, cost_curve, cost_curves
from perseus_dist.planning.profile.profile import Measurements, Profile, read_profile
from perseus_dist.units import FloatArray, uw_from_w

BLOCKING_UW = 70_000_000


def measurements(times_s: object, energies_j: object, *, gpus: tuple[str, ...] = ("",), line: int = 2) -> Measurements:
    """Clocks 1410, 1395, ... with these (num_gpus, num_clocks) figures."""
    times = np.atleast_2d(np.asarray(times_s, dtype=np.float64))
    unknown = np.full_like(times, np.nan)
    return Measurements(
        clocks_mhz=1410 - 15 * np.arange(times.shape[1], dtype=np.int64),
        gpus=gpus,
        times_s=times,
        energies_j=np.atleast_2d(np.asarray(energies_j, dtype=np.float64)),
        num_samples=np.ones_like(times),
        time_std_s=unknown,
        energy_std_j=unknown,
        line=line,
    )


def curve_of(points: list[tuple[float, float]], *, blocking_uw: int = 0) -> CostCurve:
    times_s, energies_j = zip(*points, strict=True)
    return cost_curve(measurements(times_s, energies_j), stage=0, kind="F", blocking_uw=blocking_uw)


# Few distinct values make ties; microseconds and millijoules keep slopes within what real profiles have.
points_on_a_grid = st.lists(
    st.tuples(st.integers(1, 40).map(lambda n: n * 1e-3), st.integers(1, 40).map(lambda n: n * 0.25)),
    min_size=1,
    max_size=40,
)
points_anywhere = st.lists(st.tuples(st.floats(1e-6, 100), st.floats(1e-3, 1e5)), min_size=1, max_size=40)


@given(st.one_of(points_on_a_grid, points_anywhere), st.sampled_from([0, 1, BLOCKING_UW]))
def test_choices_are_exactly_the_pareto_front(points: list[tuple[float, float]], blocking_uw: int) -> None:
    curve = curve_of(points, blocking_uw=blocking_uw)
    measured = list(zip(curve.durations_ps.tolist(), curve.effective_uj.tolist(), strict=True))
    front = {p for p in measured if not any(q != p and q[0] <= p[0] and q[1] <= p[1] for q in measured)}
    assert [measured[choice] for choice in curve.choices] == sorted(front)
    assert curve.choices.dtype == curve.hull.dtype == np.int32
    assert measured[curve.choices[0]] == min(measured)
    assert measured[curve.at_least_energy][1] == min(energy for _, energy in measured)
    assert curve.at_max == 0


@given(st.one_of(points_on_a_grid, points_anywhere), st.sampled_from([0, BLOCKING_UW]))
def test_the_hull_lies_below_every_choice_and_its_slopes_fall(
    points: list[tuple[float, float]], blocking_uw: int
) -> None:
    curve = curve_of(points, blocking_uw=blocking_uw)
    hull, slopes = curve.hull.tolist(), curve.slope_uw.tolist()
    assert hull[0] == curve.choices[0]
    assert hull[-1] == curve.choices[-1]
    assert set(hull) <= set(curve.choices.tolist())
    np.testing.assert_array_equal(curve.hull_ps, curve.durations_ps[hull])
    assert slopes[-1] == 0
    assert all(a > b for a, b in pairwise(slopes))
    for k, (left, right) in enumerate(pairwise(hull)):
        t0, t1 = int(curve.durations_ps[left]), int(curve.durations_ps[right])
        e0, e1 = int(curve.effective_uj[left]), int(curve.effective_uj[right])
        exact_uw = (e0 - e1) * 10**12 / (t1 - t0)
        assert slopes[k] == MAX_SLOPE_UW or abs(slopes[k] - exact_uw) <= max(1.0, 1e-15 * exact_uw)
        for choice in curve.choices.tolist():
            t, e = int(curve.durations_ps[choice]), int(curve.effective_uj[choice])
            # A vertex that rounding ties away may lie below the chord, by less than 1 uW over its length.
            if t0 <= t <= t1 and slopes[k] < MAX_SLOPE_UW:
                assert (e - e0) * (t1 - t0) - (e1 - e0) * (t - t0) >= -((t1 - t0) ** 2) / 10**12 - (t1 - t0)


def test_a_small_hull_by_hand() -> None:
    curve = curve_of([(1.0, 10.0), (1.0, 9.0), (2.0, 6.0), (3.0, 5.5), (4.0, 3.0), (5.0, 3.0), (6.0, 4.0)])
    assert curve.choices.tolist() == [1, 2, 3, 4]
    assert curve.hull.tolist() == [1, 2, 4]
    assert curve.hull_ps.tolist() == [10**12, 2 * 10**12, 4 * 10**12]
    assert curve.slope_uw.tolist() == [3_000_000, 1_500_000, 0]
    assert curve.saving_share == pytest.approx(0.7)
    assert curve.slowdown_share == pytest.approx(3.0)


def test_points_on_one_line_leave_its_ends() -> None:
    assert curve_of([(1.0, 5.0), (2.0, 4.0), (3.0, 3.0), (4.0, 2.0)]).hull.tolist() == [0, 3]


def test_slopes_too_small_or_too_large_for_integers() -> None:
    assert curve_of([(1.0, 1.000001), (50.0, 1.0)]).slope_uw.tolist() == [1, 0]
    assert curve_of([(1.0, 1e6), (1.0 + 2e-12, 1.0)]).slope_uw.tolist() == [MAX_SLOPE_UW, 0]


@given(st.floats(1e-6, 1e4), st.floats(1e-3, 1e6), st.integers(0, 10**9), st.integers(1, 64))
def test_effective_energy_is_exact_to_a_microjoule(time_s: float, energy_j: float, blocking_uw: int, size: int) -> None:
    curve = cost_curve(measurements(time_s, energy_j), stage=0, kind="F", blocking_uw=blocking_uw, tensor_parallel=size)
    assert curve.energies_uj[0] == round(np.float64(size * energy_j) * 10**6)
    exact_uj = int(curve.energies_uj[0]) - size * blocking_uw * int(curve.durations_ps[0]) / 10**12
    assert abs(int(curve.effective_uj[0]) - exact_uj) <= 1


def test_one_profiled_gpu_stands_for_the_group() -> None:
    found = measurements([[0.1, 0.2]], [[30.0, 20.0]])
    curve = cost_curve(found, stage=0, kind="F", blocking_uw=BLOCKING_UW, tensor_parallel=4)
    assert curve.durations_ps.tolist() == [10**11, 2 * 10**11]
    assert curve.energies_uj.tolist() == [120_000_000, 80_000_000]
    assert curve.effective_uj.tolist() == [120_000_000 - 28_000_000, 80_000_000 - 56_000_000]


def test_a_group_lasts_as_long_as_its_slowest_gpu_and_the_others_wait() -> None:
    found = measurements([[0.1, 0.2], [0.15, 0.18]], [[30.0, 20.0], [33.0, 19.0]], gpus=("a", "b"))
    curve = cost_curve(found, stage=0, kind="F", blocking_uw=BLOCKING_UW, tensor_parallel=2)
    assert curve.durations_ps.tolist() == [150 * 10**9, 200 * 10**9]
    assert curve.energies_uj.tolist() == [63_000_000 + 3_500_000, 39_000_000 + 1_400_000]
    with pytest.raises(ProfileError, match=r"stage 0 forward: saw 2 GPUs \(a, b\), expected 1 or the 4"):
        cost_curve(found, stage=0, kind="F", blocking_uw=0, tensor_parallel=4)


def test_a_constant_has_one_choice() -> None:
    found = measurements([[0.1, 0.2]], [[3.0, 5.0]])
    curve = cost_curve(found, stage=0, kind="LOAD", blocking_uw=0)
    assert curve.clocks_mhz.tolist() == [0]
    assert curve.durations_ps.tolist() == [150 * 10**9]
    assert curve.energies_uj.tolist() == [4_000_000]
    assert curve.choices.tolist() == curve.hull.tolist() == [0]
    assert curve.slope_uw.tolist() == [0]


def profile(kinds: dict[int, str]) -> Profile:
    """A profile with these stages and one-letter kinds, and LOAD on stage 0 where its letter is L."""
    names = {"L": "LOAD"}
    found = measurements([[0.1, 0.2]], [[30.0, 20.0]], line=7)
    keys = [(stage, names.get(letter, letter)) for stage, letters in kinds.items() for letter in letters]
    return Profile(source="p.csv", measurements=dict.fromkeys(keys, found))


FB = dict.fromkeys(range(4), "FB")


def test_blocking_power_is_that_of_the_stage() -> None:
    wanted = [(0, "F"), (1, "F"), (0, "B"), (1, "B"), (1, "B")]
    curves = cost_curves(profile({0: "FB", 1: "FB"}), stages_kinds=wanted, blocking_uw_of_stage=[0, BLOCKING_UW])
    assert set(curves) == set(wanted)
    assert curves[0, "F"].effective_uj.tolist() == [30_000_000, 20_000_000]
    assert curves[1, "B"].effective_uj.tolist() == [23_000_000, 6_000_000]


@pytest.mark.parametrize(
    ("kinds", "wanted", "parts"),
    [
        (FB, dict.fromkeys(range(8), "FB"), ["p.csv: saw 4 stages", "schedule's 8", "lower pp= or chunks="]),
        (FB, {0: "FB", 1: "FB"}, ["saw 4 stages", "schedule's 2", "raise pp= or chunks="]),
        ({0: "FB"}, {0: "FIW"}, ["stage 0 has backward, forward", "expected backward_input too"]),
        ({0: "FIW"}, {0: "FB"}, ["backward_input, backward_weight, forward", "expected backward too"]),
        ({0: "FB"}, {0: "FBL"}, ["expected load too"]),
        ({0: "FBL"}, {0: "FB"}, ["p.csv:7: column 'instruction': saw 'load'", "schedule file"]),
    ],
)
def test_schedules_that_the_profile_does_not_fit(
    kinds: dict[int, str], wanted: dict[int, str], parts: list[str]
) -> None:
    with pytest.raises(ProfileError) as refused:
        cost_curves(profile(kinds), stages_kinds=profile(wanted).measurements, blocking_uw_of_stage=[0] * 8)
    assert "\n" not in str(refused.value)
    for part in parts:
        assert part in str(refused.value)


def test_gpu_labels_that_do_not_fit_are_refused_with_file_and_line() -> None:
    found = measurements(np.ones((3, 2)), np.ones((3, 2)), gpus=("a", "b", "c"), line=9)
    bad = Profile(source="p.csv", measurements={(0, "F"): found, (0, "B"): found})
    with pytest.raises(ProfileError, match=r"p.csv:9: stage 0 backward: saw 3 GPUs"):
        cost_curves(bad, stages_kinds=bad.measurements, blocking_uw_of_stage=[0], tensor_parallel=2)


@pytest.mark.parametrize(("name", "blocking_w"), [("gpt3-175b+a100_sxm_bf16", 83.64), ("bloom+a40_bf16", 70.38)])
def test_hulls_of_the_shared_profiles_equal_a_float_computation(
    shared_data: Path, name: str, blocking_w: float
) -> None:
    found = read_profile(shared_data / "sosp24" / "stage_profile" / f"{name}.csv")
    blocking_uw = int(uw_from_w(blocking_w))
    curves = cost_curves(found, stages_kinds=found.measurements, blocking_uw_of_stage=[blocking_uw] * 8)
    for key, curve in curves.items():
        of_key = found.measurements[key]
        expected = float_hull(of_key.times_s[0], of_key.energies_j[0] - blocking_w * of_key.times_s[0])
        assert curve.hull.tolist() == expected


def float_hull(times_s: FloatArray, energies_j: FloatArray) -> list[int]:
    """Indices of the lower hull up to the least energy, by asking for the steepest descent from each vertex."""
    at, best = int(np.lexsort((energies_j, times_s))[0]), int(np.argmin(energies_j))
    hull = [at]
    while at != best:
        later = np.flatnonzero(times_s > times_s[at])
        at = int(later[np.argmin((energies_j[later] - energies_j[at]) / (times_s[later] - times_s[at]))])
        hull.append(at)
    return hull
