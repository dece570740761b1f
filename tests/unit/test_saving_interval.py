"""Intervals of savings: what widens them, what moves them, and what is refused."""

import json
from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from malformed.frontiers import sealed

from perseus_dist.errors import FrontierFileError, PlanningError
from perseus_dist.planning.frontier.choice_bias import choice_bias
from perseus_dist.planning.frontier.frontier import plan_frontier
from perseus_dist.planning.frontier.frontier_file import frontier_npz, load_frontier, save_frontier
from perseus_dist.planning.frontier.plan import all_max, plan_figures, plan_for_deadline, plan_for_straggler
from perseus_dist.planning.frontier.problem import PlanningProblem, make_problem
from perseus_dist.planning.frontier.replay import replay, replay_all_max
from perseus_dist.planning.frontier.saving_interval import ErrorsKnownBy, errors_known_by, saving_intervals
from perseus_dist.planning.profile.clock_changes import ClockChanges
from perseus_dist.planning.profile.cost_curve import cost_curve
from perseus_dist.planning.profile.curve_doubt import curve_doubt
from perseus_dist.planning.profile.profile import Measurements, Profile, read_profile, write_profile
from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.units import PS_PER_S, ps_from_s

CLOCKS_MHZ = np.arange(1410, 900, -60)
PP, BLOCKING_UW = 4, 80_000_000


def measurements(base_s: float, *, noise: float, seed: int | None = None, num_samples: int = 9) -> Measurements:
    """Times and energies of a smooth curve, with errors drawn where there is a seed."""
    speed = CLOCKS_MHZ / CLOCKS_MHZ[0]
    times_s = base_s / speed[None]
    energies_j = times_s * (100 + 200 * speed[None] ** 3)
    stds = [noise * times_s * np.sqrt(num_samples), noise * energies_j * np.sqrt(num_samples)]
    if seed is not None:
        random = np.random.default_rng(seed)
        times_s, energies_j = (one * (1 + noise * random.standard_normal(one.shape)) for one in (times_s, energies_j))
    return Measurements(
        clocks_mhz=CLOCKS_MHZ,
        gpus=("",),
        times_s=times_s,
        energies_j=energies_j,
        num_samples=np.full(times_s.shape, float(num_samples)),
        time_std_s=stds[0],
        energy_std_j=stds[1],
    )


def profile(noise: float, *, seed: int | None = None, changes: ClockChanges | None = None) -> Profile:
    return Profile(
        source="profile.csv",
        measurements={
            (stage, kind): measurements(base_s * (1 + stage / 10), noise=noise, seed=None if seed is None else seed + n)
            for n, (stage, kind, base_s) in enumerate(
                (s, k, b) for s in range(PP) for k, b in (("F", 0.05), ("B", 0.1))
            )
        },
        clock_changes={} if changes is None else dict.fromkeys(range(PP), changes),
    )


def problem(of: Profile) -> PlanningProblem:
    return make_problem(one_f_one_b(pp=PP, microbatches=6), of, blocking_uw_of_rank=[BLOCKING_UW] * PP)


def chosen(of: PlanningProblem) -> Sequence[np.ndarray]:
    frontier = plan_frontier(of, num_points=16)
    return [frontier.clock_indices[frontier.point_for_deadline(frontier.baseline.time_ps)]]


def width(of: Profile) -> float:
    found = saving_intervals(problem(of), chosen(problem(profile(0.0))))
    assert found is not None
    return found[0].high - found[0].low


def test_more_noise_makes_it_wider_and_none_leaves_the_saving() -> None:
    of_none, of_some, of_more = (width(profile(noise)) for noise in (0.0, 0.005, 0.01))
    assert of_none == pytest.approx(0, abs=1e-9)
    assert 0 < 1.5 * of_some < of_more
    smooth = problem(profile(0.0))
    plan = chosen(smooth)
    saved = 1 - replay(smooth, plan[0]).total_uj / replay_all_max(smooth).total_uj
    found = saving_intervals(smooth, plan)
    assert found is not None
    assert found[0].low == pytest.approx(saved, abs=1e-9) == found[0].high
    assert found[0].known_by == ErrorsKnownBy.SAMPLES


def test_the_true_saving_lies_inside_at_most_noises() -> None:
    truth = problem(profile(0.0))
    inside = 0
    for seed in range(0, 400, 20):
        noisy = problem(profile(0.005, seed=seed))
        plan = chosen(noisy)
        found = saving_intervals(noisy, plan)
        assert found is not None
        saved = 1 - replay(truth, plan[0]).total_uj / replay_all_max(truth).total_uj
        inside += found[0].low <= saved <= found[0].high
    assert inside >= 17  # of 20; two standard deviations are 19


def test_repeated_drawings_give_the_same() -> None:
    noisy = problem(profile(0.01))
    plan = chosen(noisy)
    assert saving_intervals(noisy, plan) == saving_intervals(noisy, plan)


def test_slower_changes_of_clocks_make_it_wider() -> None:
    def changes(p90_s: float) -> ClockChanges:
        return ClockChanges(
            clocks_mhz=CLOCKS_MHZ[:1],
            times_s=np.array([0.01]),
            p90_s=np.array([p90_s]),
            num_samples=np.array([5.0]),
        )

    as_median, slower, unknown = (width(profile(0.001, changes=changes(p90_s))) for p90_s in (0.01, 0.04, np.nan))
    assert slower > as_median
    assert unknown == as_median


def test_all_max_saves_nothing_for_certain() -> None:
    noisy = problem(profile(0.02))
    found = saving_intervals(noisy, [np.zeros(noisy.num_instructions, dtype=np.int32)])
    assert found is not None
    assert (found[0].low, found[0].high) == (0.0, 0.0)


def test_waiting_for_a_straggler_counts_until_its_end() -> None:
    frontier = plan_frontier(problem(profile(0.005)), num_points=16)
    t_prime_ps = 2 * frontier.baseline.time_ps
    waiting = plan_for_straggler(frontier, t_prime_ps).saving_interval
    assert waiting is not None
    saving = plan_for_straggler(frontier, t_prime_ps).saving_share
    assert waiting.low < saving
    assert (waiting.low + waiting.high) / 2 == pytest.approx(saving, abs=0.01)


def test_without_samples_the_scatter_over_clocks_counts() -> None:
    def without(of: Measurements, kept: slice) -> Measurements:
        unknown = np.full(of.times_s[:, kept].shape, np.nan)
        return replace(
            of,
            clocks_mhz=of.clocks_mhz[kept],
            times_s=of.times_s[:, kept],
            energies_j=of.energies_j[:, kept],
            num_samples=np.ones(unknown.shape),
            time_std_s=unknown,
            energy_std_j=unknown,
        )

    def bare(noise: float, kept: slice) -> PlanningProblem:
        found = profile(noise, seed=1)
        return problem(
            replace(found, measurements={key: without(one, kept) for key, one in found.measurements.items()})
        )

    whole, noisy = bare(0.0, slice(None)), bare(0.01, slice(None))
    assert errors_known_by(noisy) == ErrorsKnownBy.SCATTER
    of_whole, of_noisy = (saving_intervals(one, chosen(one)) for one in (whole, noisy))
    assert of_whole is not None
    assert of_noisy is not None
    assert of_whole[0].high - of_whole[0].low < 0.1 * (of_noisy[0].high - of_noisy[0].low)
    few = bare(0.01, slice(None, None, 2))  # five clocks: too few for a trend
    assert errors_known_by(few) is None
    assert saving_intervals(few, chosen(few)) is None
    figures = plan_figures(all_max(plan_frontier(few, num_points=4)))
    assert figures["saving_interval_percent"] is None
    assert figures["saving_interval_from"] is None


def test_the_figures_say_the_interval() -> None:
    frontier = plan_frontier(problem(profile(0.01)), num_points=16)
    figures = plan_figures(plan_for_deadline(frontier, frontier.baseline.time_ps))
    low, high = figures["saving_interval_percent"]
    assert low < high
    assert figures["saving_interval_from"] == "samples"


def test_errors_of_clocks_that_were_not_measured_are_those_beside() -> None:
    of = measurements(0.1, noise=0.01)
    time_std_s = of.time_std_s.copy()
    time_std_s[0, 3] = np.nan
    doubt = curve_doubt(replace(of, time_std_s=time_std_s))
    assert doubt is not None
    np.testing.assert_allclose(doubt.time_share, 0.01)
    assert doubt.is_from_samples


def test_errors_of_a_group_are_those_of_its_slowest_and_of_all() -> None:
    one = measurements(0.1, noise=0.01)
    names = ("times_s", "energies_j", "num_samples", "time_std_s", "energy_std_j")
    both: dict[str, Any] = {name: np.concatenate([getattr(one, name)] * 2) for name in names}
    both["times_s"][1] *= 1.1  # twice the error of the other, as a share
    both["time_std_s"][1] *= 2.2
    doubt = curve_doubt(replace(one, gpus=("0", "1"), **both))
    assert doubt is not None
    np.testing.assert_allclose(doubt.time_share, 0.02)
    np.testing.assert_allclose(doubt.energy_share, 0.01 / np.sqrt(2))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_gpus_that_take_equally_long_the_one_known_least_counts(order: tuple[int, int]) -> None:
    one = measurements(0.1, noise=0.01)
    names = ("times_s", "energies_j", "num_samples", "time_std_s", "energy_std_j")
    both: dict[str, Any] = {name: np.concatenate([getattr(one, name)] * 2) for name in names}
    both["time_std_s"][1] *= 2
    doubt = curve_doubt(replace(one, gpus=("0", "1"), **{name: values[list(order)] for name, values in both.items()}))
    assert doubt is not None
    np.testing.assert_allclose(doubt.time_share, 0.02)


def test_errors_larger_than_what_was_measured_say_nothing() -> None:
    of = measurements(0.1, noise=0.01)
    assert curve_doubt(replace(of, time_std_s=4 * of.times_s)) is None


def test_what_looks_cheap_is_worse_than_it_looks() -> None:
    noisy = problem(profile(0.01, seed=3))
    for curve in noisy.curves:
        bias_ps, bias_uj = choice_bias(curve)
        assert bias_uj.mean() + bias_ps.mean() / PS_PER_S * curve.slope_uw.mean() > 0
    for curve in problem(profile(0.0)).curves:
        assert not np.any(choice_bias(curve))


def test_of_two_clocks_the_chosen_one_is_likely_to_be_worse_and_of_one_alone_nothing_is_chosen() -> None:
    of = measurements(0.1, noise=0.03)
    names = ("times_s", "energies_j", "num_samples", "time_std_s", "energy_std_j")
    for num_clocks in (2, 1):
        by_clock: dict[str, Any] = {name: getattr(of, name)[:, :num_clocks] for name in names}
        few = replace(of, clocks_mhz=CLOCKS_MHZ[:num_clocks], **by_clock)
        curve = cost_curve(few, stage=0, kind="F", blocking_uw=BLOCKING_UW, tensor_parallel=1)
        curve = replace(curve, doubt=curve_doubt(few))
        bias_ps, bias_uj = choice_bias(curve)
        assert len(bias_ps) == len(bias_uj) == num_clocks
        assert bool(np.any(bias_uj)) == (num_clocks == 2)


@pytest.mark.parametrize("num_draws", [0, 1, 3, -2, 2.0])
def test_refuses_numbers_of_drawings(num_draws: int) -> None:
    with pytest.raises(PlanningError, match=r"^num_draws: saw .*, expected an even number from 2; give 64$"):
        saving_intervals(problem(profile(0.01)), [], num_draws=num_draws)


@pytest.mark.parametrize("name", ["switch_latency_ps", "t_prime_ps"])
@pytest.mark.parametrize("value", [-1, float("nan")])
def test_refuses_times(name: str, value: int) -> None:
    with pytest.raises(PlanningError, match=rf"^{name}: saw .*, expected picoseconds from 0"):
        saving_intervals(problem(profile(0.01)), [], **{name: value})


def test_a_small_change_of_the_constant_latency_is_followed() -> None:
    noisy = problem(profile(0.002))
    plan = chosen(noisy)
    free, slow = (saving_intervals(noisy, plan, switch_latency_ps=int(ps_from_s(s))) for s in (0.0, 0.02))
    assert free is not None
    assert slow is not None
    assert slow[0].high < free[0].high


@pytest.mark.filterwarnings("error")
def test_nothing_is_known_of_errors_beside_nothing_or_far_beyond_a_value() -> None:
    known = measurements(0.05, noise=0.01)
    one_without, unknown = known.energies_j.copy(), np.full_like(known.energies_j, np.nan)
    one_without[0, 2] = 0.0
    assert curve_doubt(known) is not None
    for energies_j in (one_without, np.zeros_like(one_without)):
        assert curve_doubt(replace(known, energies_j=energies_j)) is None
        assert curve_doubt(replace(known, energies_j=energies_j, energy_std_j=unknown, time_std_s=unknown)) is None
    assert curve_doubt(replace(known, time_std_s=np.full_like(known.times_s, 1e3))) is None
    beyond = curve_doubt(replace(known, time_std_s=np.full_like(known.times_s, 1e308)))
    assert beyond is not None
    assert not beyond.is_from_samples
    one_without[0, 2] = 1e-320
    assert curve_doubt(replace(known, energies_j=one_without)) is not None


def with_transfers(noise: float, *, time_s: float, p90_s: float) -> Profile:
    """The profile, and transfers of every link that take at least ``time_s``, nine in ten at most ``p90_s``."""
    shape, unknown = (1, 1), np.full((1, 1), np.nan)
    transfer = Measurements(
        clocks_mhz=np.zeros(1, dtype=np.int64),
        gpus=("",),
        times_s=np.full(shape, time_s),
        energies_j=np.zeros(shape),
        num_samples=np.ones(shape),
        time_std_s=unknown,
        energy_std_j=unknown,
        time_p90_s=np.full(shape, p90_s),
    )
    of = profile(noise)
    links = [(s, "SEND_F") for s in range(PP - 1)] + [(s, "SEND_B") for s in range(1, PP)]
    return replace(of, measurements={**of.measurements, **dict.fromkeys(links, transfer)})


def played_saving(of: PlanningProblem, plan: np.ndarray, scale_s: float, seed: int) -> float:
    """Mean saving of iterations in which each transfer is later by an exponential time of this mean [s], by hand."""
    random, saved = np.random.default_rng(seed), []
    is_transfer = np.arange(of.num_instructions) >= of.dag.num_scheduled
    order = list(nx.topological_sort(nx.DiGraph(of.dag.edges.tolist())))
    before: dict[int, list[int]] = {node: [] for node in order}
    for first, second in of.dag.edges.tolist():
        before[second].append(first)
    for _ in range(200):
        late_ps = np.where(is_transfer, random.exponential(scale_s, of.num_instructions) * PS_PER_S, 0)
        energies = []
        for indices in (np.zeros_like(plan), plan):
            curves = [of.curves[k] for k in of.curve_of]
            lasts_ps = late_ps + [curve.durations_ps[i] for curve, i in zip(curves, indices, strict=True)]
            end_ps: dict[int, float] = {}
            for node in order:
                end_ps[node] = max([end_ps[one] for one in before[node]], default=0.0) + lasts_ps[node]
            effective_uj = sum(int(curve.effective_uj[i]) for curve, i in zip(curves, indices, strict=True))
            energies.append(effective_uj + of.total_blocking_uw * max(end_ps.values()) / PS_PER_S)
        saved.append(1 - energies[1] / energies[0])
    return float(np.mean(saved))


def test_transfers_that_spread_move_and_widen_it_to_what_iterations_save() -> None:
    """Each transfer is late by itself: hardly any iteration has all of them late, and hardly any has none."""
    steady = problem(with_transfers(1e-5, time_s=0.004, p90_s=0.004))
    plan = chosen(steady)
    (known,) = saving_intervals(steady, plan) or ()
    spread = problem(with_transfers(1e-5, time_s=0.004, p90_s=0.024))
    (found,) = saving_intervals(spread, plan) or ()
    predicted = 1 - replay(spread, plan[0]).total_uj / replay_all_max(spread).total_uj
    saving = played_saving(spread, plan[0], 0.020 / np.log(10), seed=3)
    assert abs(predicted - saving) > 5e-4
    assert not known.low <= saving <= known.high
    assert found.low <= saving <= found.high
    assert 4 * (known.high - known.low) < found.high - found.low < 0.02


def test_a_spread_of_transfers_survives_file_and_frontier(tmp_path: Path) -> None:
    of = with_transfers(0.01, time_s=0.004, p90_s=0.006)
    write_profile(of, tmp_path / "profile.csv")
    assert "1,send_b,0,0.004,0.0,1,,,,0.006" in (tmp_path / "profile.csv").read_text()
    assert read_profile(tmp_path / "profile.csv").measurements.keys() == of.measurements.keys()
    assert read_profile(tmp_path / "profile.csv").measurements[1, "SEND_B"].time_p90_s == 0.006
    planned = plan_frontier(problem(read_profile(tmp_path / "profile.csv")), num_points=4)
    save_frontier(planned, tmp_path / "frontier.npz")
    loaded = load_frontier(tmp_path / "frontier.npz")
    plans = loaded.clock_indices[:1]
    assert [curve.p90_excess_ps for curve in loaded.problem.curves if curve.kind == "SEND_F"] == [
        2 * PS_PER_S // 1000
    ] * 3
    assert saving_intervals(loaded.problem, plans) == saving_intervals(planned.problem, plans)


@pytest.mark.parametrize("spread", [-1, 10**19, 1.5, True, "1", 2 * PS_PER_S])
def test_a_spread_of_something_else_or_that_is_none_is_damage(spread: object, tmp_path: Path) -> None:
    planned = plan_frontier(problem(with_transfers(0.01, time_s=0.004, p90_s=0.006)), num_points=2)
    with np.load(BytesIO(frontier_npz(planned))) as archive:
        arrays = dict(archive)
    header = json.loads(arrays["header"].tobytes())
    is_transfer = [kind.startswith("SEND") for _, kind in header["curves"]]
    at = is_transfer.index(spread != 2 * PS_PER_S)  # a good one of a computation
    header["doubts"][at]["p90_excess_ps"] = spread
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    np.savez(tmp_path / "spoilt.npz", **sealed(arrays))  # type: ignore[arg-type]
    with pytest.raises(FrontierFileError, match="do not fit together"):
        load_frontier(tmp_path / "spoilt.npz")
