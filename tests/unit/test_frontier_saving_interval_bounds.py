"""Intervals of savings and the bias of a choice, worked out by hand for one rank of two instructions."""

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
from small_pipelines import MS, Points, plan_of, small_curve, small_problem

from perseus_dist.errors import PlanningError
from perseus_dist.planning.frontier.choice_bias import choice_bias
from perseus_dist.planning.frontier.problem import PlanningProblem
from perseus_dist.planning.frontier.saving_interval import (
    NUM_DRAWS,
    ErrorsKnownBy,
    SavingInterval,
    errors_known_by,
    saving_intervals,
)
from perseus_dist.planning.profile.cost_curve import CostCurve

TWO: Points = {1000: (10, 9000), 500: (20, 5000)}
EXACT = (0.0, 0.0)
HALF_OF_A_NORMAL = 0.3989  # the mean of a normal deviate, where it is negative and 0 elsewhere
DRAWING = 0.3  # of 64 deviates, far from any factor of two


def exact(stage: int, kind: str, blocking_uw: int = 0) -> CostCurve:
    """Two clocks whose times and energies are known."""
    return small_curve(stage, kind, TWO, blocking_uw=blocking_uw, time_errors=EXACT, energy_errors=EXACT)


def chain(
    blocking_uw: int = 0, *, time_errors: tuple[float, ...] = EXACT, energy_errors: tuple[float, ...] = EXACT
) -> PlanningProblem:
    """A forward with these errors, and a backward whose times and energies are known."""
    curves = [
        small_curve(0, "F", TWO, blocking_uw=blocking_uw, time_errors=time_errors, energy_errors=energy_errors),
        exact(0, "B", blocking_uw),
    ]
    return small_problem("0F0 0B0", curves, blocking_uw=blocking_uw)


def found(of: PlanningProblem, plan: np.ndarray, **options: int) -> SavingInterval:
    (one,) = saving_intervals(of, [plan], **options) or ()
    return one


def middle(interval: SavingInterval) -> float:
    return (interval.low + interval.high) / 2


def test_without_errors_the_interval_is_the_saving_itself() -> None:
    """18 mJ at full clocks, 14 under the plan, and 10 under another; waiting draws 0.1 mJ each of 20, 30 and 40 ms."""
    of = chain()
    plan, slower = plan_of(of, _0F0=1), plan_of(of, _0F0=1, _0B0=1)
    intervals = saving_intervals(of, [plan, slower, plan_of(of)])
    assert intervals is not None
    assert [(one.low, one.high) for one in intervals] == [
        pytest.approx((share, share)) for share in (4 / 18, 8 / 18, 0.0)
    ]
    assert found(chain(blocking_uw=100_000), plan).low == pytest.approx(1 - 14 / 18)


@pytest.mark.parametrize(
    ("t_prime_ms", "saved"), [(0, 4 / 18), (20, 4 / 18), (25, 4.5 / 18.5), (30, 5 / 19), (40, 5 / 20)]
)
def test_waiting_for_a_straggler_costs_both_until_its_end(t_prime_ms: int, saved: float) -> None:
    """0.1 W of one rank: 18 mJ less 2 of waiting in 20 ms, and 14 less 3 in 30, to which waiting until T' comes."""
    interval = found(chain(blocking_uw=100_000), np.array([1, 0]), t_prime_ps=t_prime_ms * MS)
    assert (interval.low, interval.high) == pytest.approx((saved, saved))


def test_the_width_is_two_standard_deviations_of_what_energies_are_wrong_by() -> None:
    """A tenth of the forward's 9 mJ at full clocks is wrong, of 18 mJ: 14 / 18 of 5 % to either side, twice."""
    interval = found(chain(energy_errors=(0.1, 0.0)), np.array([1, 0]))
    assert interval.high - interval.low == pytest.approx(4 * 0.05 * 14 / 18, rel=DRAWING)
    half = found(chain(energy_errors=(0.05, 0.0)), np.array([1, 0]))
    assert half.high - half.low == pytest.approx((interval.high - interval.low) / 2, rel=0.05)


def test_what_energies_are_wrong_by_together_makes_it_wider_too() -> None:
    def of_common(*shares: float) -> float:
        of = chain()
        assert of.curves[0].doubt is not None
        doubt = replace(of.curves[0].doubt, energy_common_share=np.array(shares))
        curves = [replace(curve, doubt=doubt) if curve.kind == "F" else curve for curve in of.curves]
        interval = found(small_problem("0F0 0B0", curves), np.array([1, 0]))
        return interval.high - interval.low

    assert of_common(0.0, 0.0) == pytest.approx(0, abs=1e-12)
    assert of_common(0.1, 0.0) == pytest.approx(4 * 0.05 * 14 / 18, rel=DRAWING)
    assert of_common(0.1, 0.1) == pytest.approx(4 * 0.1 * abs(9 * 14 - 5 * 18) / 18**2, rel=DRAWING)


def test_what_times_are_wrong_by_costs_waiting_alone() -> None:
    """A tenth of 20 ms at 0.1 W are 0.2 mJ more or less, of 18 mJ, for the rank that waits for the other."""
    curves = [
        small_curve(0, "F", TWO, blocking_uw=100_000, time_errors=(0.0, 0.1)),
        exact(0, "B", 100_000),
        *(small_curve(1, kind, {1000: (10, 9000)}, blocking_uw=100_000) for kind in "FB"),
    ]
    of = small_problem("0F0 0B0\n1F0 1B0", curves, blocking_uw=100_000)
    interval = found(of, plan_of(of, _0F0=1))
    all_max_mj = 4 * 9 + 2 * 40 * 0.1 - 4 * 10 * 0.1
    assert interval.high - interval.low == pytest.approx(4 * 0.2 / all_max_mj, rel=DRAWING)


def test_a_profile_is_known_by_samples_only_where_all_of_it_is() -> None:
    sampled = chain()
    assert errors_known_by(sampled) == ErrorsKnownBy.SAMPLES
    forward, backward = sampled.curves
    assert forward.doubt is not None
    scattered = replace(forward, doubt=replace(forward.doubt, is_from_samples=False))
    assert errors_known_by(small_problem("0F0 0B0", [scattered, backward])) == ErrorsKnownBy.SCATTER
    assert errors_known_by(small_problem("0F0 0B0", [scattered, replace(backward, doubt=None)])) is None
    assert errors_known_by(small_problem("0F0 0B0", [forward, replace(backward, doubt=None)])) is None


def test_nothing_need_be_known_of_what_no_plan_changes() -> None:
    one = small_curve(0, "B", {1000: (10, 9000)})
    load = small_curve(0, "LOAD", {0: (1, 0)})
    assert errors_known_by(small_problem("0LOAD0 0F0 0B0", [chain().curves[0], one, load])) == ErrorsKnownBy.SAMPLES


@pytest.mark.parametrize("num_draws", [2, 4, NUM_DRAWS])
def test_drawings_from_two_on_are_enough(num_draws: int) -> None:
    interval = found(chain(energy_errors=(0.1, 0.0)), np.array([1, 0]), num_draws=num_draws)
    assert interval.low < interval.high


@pytest.mark.parametrize("name", ["switch_latency_ps", "t_prime_ps"])
def test_a_time_of_nothing_is_one_and_less_is_none(name: str) -> None:
    of = chain()
    assert saving_intervals(of, [plan_of(of)], **{name: 0}) is not None
    with pytest.raises(PlanningError, match=f"^{name}: saw -1"):
        saving_intervals(of, [plan_of(of)], **{name: -1})


def with_latencies(p90_ms: float | None) -> PlanningProblem:
    """Changes of clocks take 4 ms, and nine in ten no more than these."""
    p90_ps = None if p90_ms is None else np.full(2, round(p90_ms * MS))
    curves = [replace(one, latencies_ps=np.full(2, 4 * MS), latencies_p90_ps=p90_ps) for one in chain().curves]
    return small_problem("0F0 0B0", curves)


@pytest.mark.parametrize("p90_ms", [None, 4, 3])
def test_changes_of_clocks_that_take_no_longer_at_times_leave_the_saving(p90_ms: float | None) -> None:
    """The backward is slow for 4 ms, a fifth of it: 5 + 0.2 x 5 + 0.8 x 9 mJ, of 18."""
    interval = found(with_latencies(p90_ms), np.array([1, 0]))
    saved = 1 - (5 + 0.2 * 5 + 0.8 * 9) / 18
    assert (interval.low, interval.high) == pytest.approx((saved, saved))


def test_changes_of_clocks_spread_by_how_much_longer_nine_in_ten_take() -> None:
    """A millisecond more is a twentieth of 4 mJ less."""
    interval = found(with_latencies(6), np.array([1, 0]))
    std_ms = 2 / NormalDist().inv_cdf(0.9)
    assert interval.high - interval.low == pytest.approx(4 * std_ms * (0.2 / 18), rel=DRAWING)
    assert middle(interval) == pytest.approx(1 - (5 + 0.2 * 5 + 0.8 * 9) / 18, abs=1e-3)


def test_changes_to_one_clock_take_as_long_for_all_of_a_stage() -> None:
    """Of 0F0 and 0B0 at 500 MHz, and 0F1 and 0B1 at 1000, both later ones are slow for as long as each other."""
    p90_ps = np.full(2, 6 * MS)
    curves = [replace(one, latencies_ps=np.full(2, 4 * MS), latencies_p90_ps=p90_ps) for one in chain().curves]
    of = small_problem("0F0 0F1 0B0 0B1", curves)
    twice, once = found(of, plan_of(of, _0F0=1, _0B0=1)), found(of, plan_of(of, _0F0=1))
    # slow, fast, slow, fast: two changes to 1000 MHz, and one to 500 whose latency makes it faster
    wide, narrow = (one.high - one.low for one in (twice, once))
    assert wide == pytest.approx(math.hypot(2, 1) * narrow, rel=0.3)


def transfers(p90_excess_ms: float, blocking_uw: int = 100_000) -> PlanningProblem:
    """Two stages, one behind the other, and a transfer of 1 ms that is later by 10 ms at most in nine of ten."""
    curves = [exact(stage, kind, blocking_uw) for stage in (0, 1) for kind in "FB"]
    sent = small_curve(0, "SEND_F", {0: (1, 100)}, blocking_uw=blocking_uw)
    curves += [replace(sent, p90_excess_ps=round(p90_excess_ms * MS))]
    return small_problem("0F0 0B0\n1F0 1B0", curves, blocking_uw=blocking_uw)


def test_a_transfer_is_late_by_an_exponential_time_and_the_waiting_costs_all_ranks() -> None:
    """10 ms at most in nine of ten are 4.34 on the mean, and as much is their deviation."""
    scale_ms = 10 / math.log(10)
    steady, spread = (found(transfers(ms), plan_of(transfers(ms), _0F0=1)) for ms in (0, 10))
    assert steady.low == pytest.approx(steady.high)
    # 0.1 W of two ranks in 41 and 51 ms, beside 36 and 32 mJ less 4 and 5 that are counted among them
    all_max_mj, plan_mj = 36 - 4 + 0.2 * 41, 32 - 5 + 0.2 * 51
    assert steady.low == pytest.approx(1 - plan_mj / all_max_mj)
    late_mj = 0.2 * scale_ms
    assert middle(spread) == pytest.approx(1 - (plan_mj + late_mj) / (all_max_mj + late_mj), rel=0.01)
    of_late = late_mj * abs(all_max_mj - plan_mj) / all_max_mj**2
    assert spread.high - spread.low == pytest.approx(4 * of_late, rel=0.4)


def test_a_transfer_takes_more_energy_the_later_it_is_in_proportion() -> None:
    """Without blocking power its 0.1 mJ are 0.534 on the mean: a tenth of a percent of the saving's share."""
    of = transfers(10, blocking_uw=0)
    plan = plan_of(of, _0F0=1)
    drawn_mj = 0.1 * (1 + 10 / math.log(10))
    assert middle(found(of, plan)) == pytest.approx(1 - (32 + drawn_mj) / (36 + drawn_mj), rel=0.002)


def test_each_transfer_that_spreads_takes_its_own_time() -> None:
    """1 ms there and 7 ms back, which spreads: 0.2 W in 52.3 ms, beside 36 mJ less 4, and 10 ms more under the plan."""
    curves = [exact(stage, kind, 100_000) for stage in (0, 1) for kind in "FB"]
    curves += [replace(small_curve(0, "SEND_F", {0: (1, 100)}, blocking_uw=100_000), p90_excess_ps=1)]
    curves += [replace(small_curve(1, "SEND_B", {0: (7, 700)}, blocking_uw=100_000), p90_excess_ps=10 * MS)]
    of = small_problem("0F0 0B0\n1F0 1B0", curves, blocking_uw=100_000)
    late_ms = 10 / math.log(10)
    saved = 1 - (32 - 5 + 0.2 * (58 + late_ms)) / (36 - 4 + 0.2 * (48 + late_ms))
    assert middle(found(of, plan_of(of, _0F0=1))) == pytest.approx(saved, rel=0.01)


def test_two_drawings_of_a_transfer_are_opposite() -> None:
    of = transfers(10)
    interval = found(of, plan_of(of, _0F0=1), num_draws=2)
    assert interval.low < interval.high - 1e-4


THREE: Points = {1000: (10, 9000), 800: (12, 6000), 500: (20, 5000)}


def test_a_chosen_clock_costs_its_bias_and_may_cost_half_as_much_again() -> None:
    """Neither full clocks nor 800 MHz are wrong, but 500 MHz, which errors make look worse than it is at times."""
    curve = biased({1000: (10, 9000), 800: (12, 7500), 500: (15, 5600)}, (0.0,) * 3, (0.0, 0.0, 0.2))
    of = small_problem("0F0 0B0", [curve, exact(0, "B")])
    bias_uj = choice_bias(curve)[1][1]
    assert bias_uj > 100
    interval = found(of, plan_of(of, _0F0=1))
    assert interval.high == pytest.approx(1 - (16_500 + bias_uj) / 18_000, abs=1e-4)
    assert interval.high - interval.low == pytest.approx(0.5 * bias_uj / 18_000, abs=1e-4)


def test_a_chosen_clock_takes_its_bias_longer_for_whom_waits() -> None:
    curve = small_curve(0, "F", THREE, blocking_uw=100_000, time_errors=(0.0, 0.0, 0.4), energy_errors=(0.0,) * 3)
    curves = [curve, exact(0, "B", 100_000), exact(1, "F", 100_000), exact(1, "B", 100_000)]
    of = small_problem("0F0 0B0\n1F0 1B0", curves, blocking_uw=100_000)
    bias_ms = choice_bias(curve)[0][1] / MS
    assert bias_ms > 0.5
    all_max_mj, plan_mj = 36 - 4 + 0.2 * 40, 33 - 4.2 + 0.2 * 42
    interval = found(of, plan_of(of, _0F0=1))
    assert interval.high == pytest.approx(1 - (plan_mj + 0.1 * bias_ms) / all_max_mj, abs=1e-4)


def test_behind_the_last_clock_worth_choosing_nothing_is_saved_by_more_time() -> None:
    curve = biased({1000: (10, 9000), 500: (20, 5000), 400: (30, 6000)}, (0.0,) * 3, (0.0, 0.001, 0.0))
    _, bias_uj = choice_bias(curve)
    assert bias_uj[2] == bias_uj[1] != 0, "at no price 500 MHz is met, as at half of what it saves"


def biased(points: Points, time_errors: tuple[float, ...], energy_errors: tuple[float, ...]) -> CostCurve:
    return small_curve(0, "F", points, time_errors=time_errors, energy_errors=energy_errors)


def test_at_the_end_of_a_hull_both_clocks_cost_the_same_and_every_other_error_decides() -> None:
    """At the price of full clocks 500 MHz costs as much; where an error makes it cheaper, it is met."""
    bias_ps, bias_uj = choice_bias(biased(TWO, (0.0, 0.0), (0.0, 0.1)))
    assert bias_ps.tolist() == [0, 0]
    assert bias_uj[0] == pytest.approx(0.1 * 5000 * HALF_OF_A_NORMAL, rel=DRAWING)
    assert abs(bias_uj[1]) < 0.3 * 0.1 * 5000, (
        "at half the price it is met in any case, and errors are none on the mean"
    )
    bias_ps, bias_uj = choice_bias(biased(TWO, (0.0, 0.1), (0.0, 0.0)))
    assert bias_uj.tolist() == [0, 0]
    assert bias_ps[0] == pytest.approx(0.1 * 20 * MS * HALF_OF_A_NORMAL, rel=DRAWING)
    bias_ps, _ = choice_bias(biased(TWO, (0.1, 0.0), (0.0, 0.0)))
    assert bias_ps[0] == pytest.approx(0.1 * 10 * MS * HALF_OF_A_NORMAL, rel=DRAWING)


def test_between_two_slopes_a_clock_is_met_and_small_errors_of_others_do_not_count() -> None:
    """800 MHz saves 1.5 uJ / us from full clocks on, and 500 MHz 0.125 from there on: between them it is the best."""
    _, of_other = choice_bias(biased(THREE, (0.0,) * 3, (0.001, 0.0, 0.001)))
    assert of_other[1] == 0
    assert of_other[0] > 0, "at full clocks' own price 800 MHz costs as much"
    _, of_own = choice_bias(biased(THREE, (0.0,) * 3, (0.0, 0.001, 0.0)))
    assert 0 < abs(of_own[1]) < 0.001 * 6000
    assert of_own[2] == 0


def test_a_clock_off_the_hull_pays_what_the_one_behind_it_does() -> None:
    """600 MHz lies above the line from 800 to 500, and counts as 500: that one is met at its price."""
    points: Points = {1000: (10, 9000), 800: (12, 6000), 600: (16, 5800), 500: (20, 5000)}
    curve = biased(points, (0.0,) * 4, (0.0, 0.001, 0.0, 0.001))
    assert curve.hull.tolist() == [0, 1, 3]
    _, bias_uj = choice_bias(curve)
    assert bias_uj[2] == bias_uj[3] != 0
    assert abs(bias_uj[2]) < 0.001 * 5000


def test_a_price_is_no_less_than_nothing_at_the_slowest_clock() -> None:
    """Behind the last clock nothing is saved: half the last slope, at which 500 MHz is far better than 800."""
    _, bias_uj = choice_bias(biased(THREE, (0.0,) * 3, (0.0, 0.02, 0.0)))
    assert bias_uj[2] == 0
    _, large = choice_bias(biased(THREE, (0.0,) * 3, (0.0, 0.2, 0.0)))
    assert large[2] > 0


@pytest.mark.parametrize("num_clocks", [1, 2])
def test_a_choice_is_one_of_two_at_least(num_clocks: int) -> None:
    points = dict([*TWO.items()][:num_clocks])
    bias_ps, bias_uj = choice_bias(biased(points, (0.1,) * num_clocks, (0.1,) * num_clocks))
    assert [len(bias_ps), len(bias_uj)] == [num_clocks] * 2
    assert bool(bias_ps.any() and bias_uj.any()) == (num_clocks == 2)
