"""How much slack plans keep, at the limits of each rule, on pipelines of two to four instructions."""

from dataclasses import replace

import numpy as np
import pytest
from small_pipelines import MS, Points, frontier_of, plan_of, small_curve, small_problem

from perseus_dist.planning.frontier import frontier as frontier_module
from perseus_dist.planning.frontier import noise_margin
from perseus_dist.planning.frontier.choice_bias import choice_bias
from perseus_dist.planning.frontier.frontier import Frontier, plan_first, plan_frontier
from perseus_dist.planning.frontier.noise_margin import (
    MARGINS,
    NEGLIGIBLE_SPREAD,
    NoiseMargin,
    independent_share,
    margin_for,
    plan_with_margin,
    stretched,
    stretched_ps,
)
from perseus_dist.planning.frontier.noisy_replay import NUM_DRAWS, NoisyReplay
from perseus_dist.planning.frontier.problem import PlanningProblem
from perseus_dist.planning.frontier.replay import replay, replay_all_max

TWO: Points = {1000: (10, 9000), 500: (20, 5000)}
THREE: Points = {1000: (10, 9000), 800: (12, 6000), 500: (20, 5000)}
CHAIN = "0F0 0B0"
PAIR = "0F0 0B0\n1F0 1B0"  # 0F0 1F0 1B0 0B0, one behind the other
SIDE_BY_SIDE = "0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1"


def chain(
    points: Points = TWO,
    *,
    spread: float = 0.0,
    time_errors: tuple[float, ...] = (),
    energy_errors: tuple[float, ...] = (),
) -> PlanningProblem:
    """A forward and a backward, one behind the other."""
    curves = [
        small_curve(0, kind, points, spread=spread, time_errors=time_errors, energy_errors=energy_errors)
        for kind in "FB"
    ]
    return small_problem(CHAIN, curves)


def side_by_side(spread: float, points: Points = THREE, longer: Points | None = None) -> PlanningProblem:
    """Two stages and two microbatches, of which the second stage may take longer."""
    of_stage = (points, longer or points)
    curves = [small_curve(stage, kind, of_stage[stage], spread=spread) for stage in (0, 1) for kind in "FB"]
    return small_problem(SIDE_BY_SIDE, curves)


@pytest.mark.parametrize(("spread", "is_known"), [(NEGLIGIBLE_SPREAD, False), (NEGLIGIBLE_SPREAD * 1.001, True)])
def test_noise_is_reckoned_with_from_above_what_is_negligible(spread: float, *, is_known: bool) -> None:
    found = margin_for(chain(spread=spread))
    assert (found.replay is not None) == is_known
    assert found.is_needed == is_known
    assert (found.noise > 0) == is_known


def test_what_was_seen_and_asked_for_is_kept_where_noise_is_negligible() -> None:
    assert margin_for(chain(), least=0.3, seen_noise=0.01) == NoiseMargin(margin=0.3, noise=0.01)
    assert margin_for(chain(), least=0.3).is_needed
    assert not margin_for(chain()).is_needed


@pytest.mark.parametrize("share", [0.999, 1.0, 1.001])
def test_what_each_instruction_has_by_itself_counts_from_above_what_is_negligible(
    share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = chain(spread=0.02)
    expected = NoisyReplay(of).noise
    own = independent_share(0.02, expected=expected, seen=expected / 2)
    assert 0 < own < 1
    monkeypatch.setattr(noise_margin, "NEGLIGIBLE_SPREAD", own * 0.02 * share)
    found = margin_for(of, seen_noise=expected / 2, least=0.1)
    assert (found.replay is None) == (share >= 1)
    assert (found.margin >= 0.1, found.noise) == (True, expected / 2)


def test_the_usual_spread_is_that_of_most_curves_with_a_choice_of_clocks() -> None:
    """Four of an instruction of one clock, whose spread no plan makes worse, do not hide it, nor stand in for it."""
    spreads = {(0, "F"): (TWO, 0.03), (0, "B"): (TWO, 0.02), (1, "F"): ({1000: (10, 9000)}, 0.0)}
    spreads[1, "B"] = ({1000: (10, 9000)}, 0.0)
    curves = [small_curve(*key, points, spread=spread) for key, (points, spread) in spreads.items()]
    assert margin_for(small_problem(PAIR, curves)).replay is not None
    fixed = [small_curve(stage, kind, {1000: (10, 9000)}, spread=0.5) for stage in (0, 1) for kind in "FB"]
    assert margin_for(small_problem(PAIR, fixed)) == NoiseMargin()
    assert margin_for(small_problem(PAIR, fixed)).replay is None


def test_noise_that_nobody_has_seen_is_that_of_the_drawings_and_seen_noise_stands_before_it() -> None:
    of = chain(spread=0.02)
    assert margin_for(of).noise == NoisyReplay(of).noise
    assert margin_for(of, seen_noise=0.5).noise == 0.5


def late_by_margin(of: PlanningProblem) -> dict[float, float]:
    """How late the plan at the time of all-maximum clocks is under each margin."""
    noisy, at_max_ps = NoisyReplay(of), replay_all_max(of).time_ps
    late = {}
    for margin in MARGINS:
        first = plan_first(stretched(of, margin))
        late[margin] = noisy.lateness(first.clock_indices[first.point_for_deadline(at_max_ps)])
    return late


def test_the_least_margin_is_taken_that_is_no_later_than_tolerated(monkeypatch: pytest.MonkeyPatch) -> None:
    of = side_by_side(0.02, {1000: (10, 9000), 700: (25, 6000), 500: (40, 3000)}, longer={1000: (20, 9000)})
    late = late_by_margin(of)  # 0F1 has 40 ms, all of which 500 MHz takes, and with a margin 700 MHz
    assert late[0.0] > 0
    monkeypatch.setattr(noise_margin, "TOLERATED", late[0.0])
    assert margin_for(of).margin == 0.0
    monkeypatch.setattr(noise_margin, "TOLERATED", late[0.0] * 0.9999)
    assert margin_for(of).margin == min(margin for margin in MARGINS if late[margin] < 0.9999 * late[0.0])


def test_where_no_margin_is_enough_the_largest_is_taken_or_what_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise_margin, "TOLERATED", -1.0)
    of = side_by_side(0.02)
    assert [margin_for(of, least=least).margin for least in (0.0, 0.75, 1.0, 1.5)] == [1.0, 1.0, 1.0, 1.5]


@pytest.mark.parametrize(
    ("spread", "expected", "seen", "share"),
    [
        (1.0, 0.5, 0.5, 1.0),  # all of it is each one's own
        (1.0, 0.5, 1.0, 0.0),  # all of it is common
        (1.0, 0.5, 1.5, 0.0),  # and more than that
        (1.0, 0.5, 0.75, 0.7637626158),  # (1 - 0.5625) / 0.75
        (1.0, 0.5, 0.25, 0.5),  # less than what would be each one's own: 0.0625 / 0.25
        (4.0, 2.0, 3.0, 0.7637626158),
        (1.0, 1.0, 0.5, 0.5),  # one instruction
        (1.0, 1.0, 3.0, 1.0),
        (1.0, 2.0, 1.0, 0.5),
    ],
)
def test_the_share_of_noise_that_instructions_have_by_themselves(
    spread: float, expected: float, seen: float, share: float
) -> None:
    assert independent_share(spread, expected=expected, seen=seen) == pytest.approx(share)


@pytest.mark.parametrize(("margin", "counted_ps"), [(0.5, [900, 1000, 2500]), (1.0, [900, 1000, 3000])])
def test_a_deadline_is_stretched_beyond_full_clocks_alone(margin: float, counted_ps: list[int]) -> None:
    assert [stretched_ps(time_ps, 1000, margin) for time_ps in (900, 1000, 2000)] == counted_ps


@pytest.mark.parametrize(("margin", "counted_ms"), [(0.0, (10, 20)), (0.5, (10, 25)), (1.0, (10, 30))])
def test_time_beyond_the_maximum_clock_counts_more_by_the_margin(margin: float, counted_ms: tuple[int, int]) -> None:
    assert [(one.durations_ps / MS).tolist() for one in stretched(chain(), margin).curves] == [[*counted_ms]] * 2


@pytest.mark.parametrize(
    ("errors", "counted_ms"),
    [((0.0, 0.01), 20.1), ((0.01, 0.0), 20.1), ((0.03, 0.04), 20.5), ((0.0, 0.0), 20)],
)
def test_a_lower_clock_counts_as_longer_by_the_error_of_the_difference_once(
    errors: tuple[float, float], counted_ms: float
) -> None:
    of = chain(time_errors=errors, energy_errors=(0.0, 0.0))
    assert (stretched(of, 0.0).curves[0].durations_ps / MS).tolist() == [10, pytest.approx(counted_ms)]
    assert (stretched(of, 1.0).curves[0].durations_ps / MS).tolist() == [10, pytest.approx(counted_ms + 10)]


@pytest.mark.parametrize(("below_ms", "is_faster"), [(0.3, False), (0.3001, True), (0.2999, False), (0.0, False)])
def test_a_lower_clock_is_clearly_faster_from_more_than_three_errors(below_ms: float, *, is_faster: bool) -> None:
    of = chain({1000: (10, 9000), 800: (10 - below_ms, 6000)}, time_errors=(0.0, 0.01))
    counted_ms = (stretched(of, 0.5).curves[0].durations_ps / MS).tolist()
    assert counted_ms == pytest.approx([10, 10 - below_ms if is_faster else 10.1])


def told(of: PlanningProblem, *plans: np.ndarray, margin: float = 0.5) -> Frontier:
    """What remains of these plans on stretched curves."""
    return plan_with_margin(of, margin, lambda counted: frontier_of(counted, plans))


@pytest.mark.parametrize(("late_us", "is_kept"), [(68, True), (69, True), (70, False), (200, False)])
def test_a_plan_as_fast_as_full_clocks_is_left_out_if_errors_alone_make_it_look_so(
    late_us: int, *, is_kept: bool
) -> None:
    """Of 69 ms a thousandth may be errors."""
    error = late_us / 64_000
    curves = [
        small_curve(0, "F", {1000: (64, 9000), 800: (64, 6000)}, time_errors=(0.0, error)),
        small_curve(0, "B", {1000: (5, 9000)}),
    ]
    of = small_problem(CHAIN, curves)
    full, slow = plan_of(of), plan_of(of, _0F0=1)
    found = told(of, full, slow)
    assert [row.tolist() for row in found.clock_indices] == [(slow if is_kept else full).tolist()]


def test_a_slower_plan_stays_however_long_it_counts() -> None:
    of = chain(time_errors=(0.0, 0.3))
    full, slow = plan_of(of), plan_of(of, _0F0=1)
    assert told(of, full, slow).time_ps.tolist() == [20 * MS, 30 * MS]


def test_full_clocks_are_a_plan_of_their_own_and_figures_are_those_of_the_problem() -> None:
    of = chain()
    slow = plan_of(of, _0F0=1, _0B0=1)
    found = told(of, slow, margin=1.0)
    assert found.time_ps.tolist() == [20 * MS, 40 * MS]
    assert found.effective_uj.tolist() == [18_000, 10_000]
    assert found.clock_indices.tolist() == [[0, 0], [1, 1]]
    assert found.problem is of
    assert found.baseline.time_ps == 20 * MS
    assert found.bound.time_ps.tolist() == plan_frontier(of).bound.time_ps.tolist()


def test_a_plan_is_told_with_its_changes_of_clocks() -> None:
    of = chain(THREE)
    rows = [plan_of(of), plan_of(of, _0B0=1)]
    found = plan_with_margin(of, 0.25, lambda counted: frontier_of(counted, rows, switch_latency_ps=3 * MS))
    assert found.time_ps.tolist() == [20 * MS, replay(of, rows[1], switch_latency_ps=3 * MS).time_ps]
    assert 21 * MS < found.time_ps[1] < 22 * MS


def test_the_drawn_noise_of_an_iteration_is_that_of_its_longest_path() -> None:
    """Alike ones, one behind the other, vary less together than each, and more of them less."""
    alone, four = NoisyReplay(chain(spread=0.02)), side_by_side(0.02)
    assert alone.noise == pytest.approx(0.02 / 2**0.5, rel=0.25)
    assert NoisyReplay(four).noise < alone.noise
    assert NoisyReplay(chain(spread=0.02), spread_factor=0.5).noise == pytest.approx(0.5 * alone.noise, rel=1e-3)


def test_full_clocks_are_not_late_at_all_whatever_is_known_of_errors() -> None:
    of = chain(THREE, spread=0.02, time_errors=(0.03,) * 3, energy_errors=(0.03,) * 3)
    assert max(np.abs(choice_bias(of.curves[0])[0])) > 0
    assert NoisyReplay(of).lateness(plan_of(of)) == 0.0
    assert NoisyReplay(of).late_by(plan_of(of)) == pytest.approx(0, abs=1e-3)


def test_the_lateness_of_a_chosen_clock_is_its_bias_and_the_errors_of_profiles() -> None:
    """Only the forward is slower, and only the profile is uncertain: 20 of 30 ms are wrong by a fifth of a percent."""
    points: Points = {1000: (10, 9000), 500: (20, 3000)}
    curves = [small_curve(0, "F", points, time_errors=(0.0, 0.05)), small_curve(0, "B", {1000: (10, 9000)})]
    of = small_problem(CHAIN, curves)
    bias_ps = choice_bias(curves[0])[0][1]
    assert abs(bias_ps) > 0.001 * MS
    drawn = NoisyReplay(of)
    longer = 20 + bias_ps / MS
    expected = (10 + longer) / 30 - 1 + 0.05 * longer / 20  # at full clocks errors are none: 20 ms in every drawing
    assert drawn.lateness(plan_of(of, _0F0=1)) == pytest.approx(expected, rel=0.35)
    assert drawn.late_by(plan_of(of, _0F0=1)) == 0.0, "runs do not spread"


def test_a_chosen_clock_is_later_by_its_bias_and_where_it_is_not_chosen_by_nothing() -> None:
    """500 MHz takes 40 ms or, as some drawings have it, much less: who chose 800 MHz might have met that."""
    points: Points = {1000: (10, 9000), 800: (20, 6000), 500: (40, 4000)}
    curves = [
        small_curve(0, "F", points, time_errors=(0.0, 0.0, 0.3)),
        small_curve(0, "B", {1000: (10, 9000)}),
    ]
    of = small_problem(CHAIN, curves)
    bias_ps = choice_bias(curves[0])[0][1]
    assert bias_ps > 0.1 * MS
    assert NoisyReplay(of).lateness(plan_of(of, _0F0=1)) == pytest.approx(bias_ps / (30 * MS))


def test_of_two_paths_as_long_the_latest_counts_and_of_one_alone_the_mean() -> None:
    of = side_by_side(0.02, points={1000: (10, 9000), 500: (40, 5000)}, longer={1000: (20, 9000)})
    noisy = NoisyReplay(of)
    one_path, two_paths = plan_of(of), plan_of(of, _0F1=1)
    assert replay(of, one_path).time_ps == replay(of, two_paths).time_ps
    assert noisy.late_by(two_paths) > noisy.late_by(one_path) + 0.001
    assert noisy.lateness(two_paths) == pytest.approx(noisy.late_by(two_paths) - noisy.late_by(one_path), abs=1e-4)
    assert noisy.late_by(one_path) < 0.001


def test_a_pair_of_opposite_errors_has_nothing_left_on_the_mean() -> None:
    """Whatever is drawn: a chain's mean is that of its instructions, exp(e) + exp(-e) of each, and no less than 1."""
    noisy = NoisyReplay(chain(spread=0.02))
    late = noisy.late_by(plan_of(chain()))
    assert 0 < late < 0.02**2
    assert NUM_DRAWS % 2 == 0


def test_a_frontier_that_is_rough_is_bounded_anew_where_the_plans_bound_is_finer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frontier_module, "MOST_EXACT_WORK", 1)
    of = side_by_side(
        0.0, longer={1000: (13, 9000), 900: (14, 8000), 800: (16, 7000), 700: (18, 6500), 500: (25, 6000)}
    )
    assert plan_first(of).bound.tolerance > 0.01
    found = plan_with_margin(of, 0.5, plan_frontier)
    assert found.bound.tolerance == 0.0
    rough = plan_with_margin(of, 0.5, plan_first)
    assert rough.bound.tolerance == plan_first(of).bound.tolerance


@pytest.mark.parametrize(("share", "is_anew"), [(0.99, True), (1.0, False), (1.01, False)])
def test_a_bound_is_as_fine_as_that_of_the_plans_to_a_factor_of_two(
    share: float,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_anew: bool,
) -> None:
    monkeypatch.setattr(frontier_module, "MOST_EXACT_WORK", 1)
    monkeypatch.setattr(noise_margin, "TOLERANCE", 0.0)
    of = side_by_side(
        0.0, longer={1000: (13, 9000), 900: (14, 8000), 800: (16, 7000), 700: (18, 6500), 500: (25, 6000)}
    )
    tolerance = share * plan_first(of).bound.tolerance / 2

    def plan(counted: PlanningProblem) -> Frontier:
        planned = plan_first(counted)
        return replace(planned, bound=replace(planned.bound, tolerance=tolerance))

    assert (plan_with_margin(of, 0.5, plan).bound.tolerance == 0.0) == is_anew
