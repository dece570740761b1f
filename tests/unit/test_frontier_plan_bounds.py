"""Problems, frontiers and plans of two or four instructions, at the limits of what they may be."""

import time

import numpy as np
import pytest
from small_pipelines import MS, Points, frontier_of, plan_of, small_curve, small_problem

from perseus_dist.errors import PlanningError
from perseus_dist.planning.frontier import frontier as module
from perseus_dist.planning.frontier.frontier import (
    TOLERANCE,
    exact_work,
    is_traced_exactly,
    plan_first,
    plan_frontier,
)
from perseus_dist.planning.frontier.plan import (
    Plan,
    all_max,
    plan_document,
    plan_figures,
    plan_for_deadline,
    plan_for_straggler,
)
from perseus_dist.planning.frontier.problem import PlanningProblem, make_problem
from perseus_dist.planning.frontier.replay import ends_of, replay, replay_all_max
from perseus_dist.planning.frontier.saving_interval import saving_intervals
from perseus_dist.planning.profile.profile import Measurements, Profile
from perseus_dist.planning.schedule.schedule_text import parse_schedule

TWO: Points = {1000: (10, 9000), 500: (20, 5000)}
SIX: Points = {1000: (10, 9000), 900: (11, 8200), 800: (12, 7500), 700: (14, 6900), 600: (17, 6300), 500: (20, 5900)}
FOUR = "0F0 0F1 0B0 0B1"
PAIR = "0F0 0B0\n1F0 1B0"


def chain(points: Points = TWO, orders: str = "0F0 0B0", blocking_uw: int = 0) -> PlanningProblem:
    curves = [small_curve(0, kind, points, blocking_uw=blocking_uw) for kind in "FB"]
    return small_problem(orders, curves, blocking_uw=blocking_uw)


def pair(blocking_uw: int = 0) -> PlanningProblem:
    curves = [small_curve(stage, kind, TWO, blocking_uw=blocking_uw) for stage in (0, 1) for kind in "FB"]
    return small_problem(PAIR, curves, blocking_uw=blocking_uw)


@pytest.mark.parametrize("deadline_ps", [0, -1, 0.5, 20e9])
def test_a_time_asked_for_is_a_whole_number_of_picoseconds_from_one(deadline_ps: float) -> None:
    with pytest.raises(PlanningError, match=f"^deadlines_ps: saw {deadline_ps!r}, expected whole picoseconds from 1"):
        plan_frontier(chain(), deadlines_ps=[deadline_ps])  # type: ignore[list-item]
    assert plan_frontier(chain(), deadlines_ps=[1]).time_ps.tolist() == [20 * MS, 30 * MS, 40 * MS]


def test_the_bound_is_that_of_whole_microjoules_below_every_plan() -> None:
    """18 mJ in 20 ms and 10 in 40; half a microjoule each for a vertex and for waiting."""
    bound = plan_frontier(chain()).bound
    assert bound.time_ps.tolist() == [20 * MS, 40 * MS]
    assert bound.effective_uj.tolist() == [17_999, 9_999]
    assert (bound.tolerance, bound.total_blocking_uw) == (0.0, 0)


def test_the_bound_falls_by_whole_microjoules() -> None:
    """Of instructions that differ by few: slopes are whole microwatts, two vertices less than a microjoule apart."""
    few: list[tuple[int, str, Points]] = [
        (0, "F", {1000: (7, 4), 900: (9, 1), 800: (11, 0)}),
        (0, "B", {1000: (1, 4), 900: (5, 2), 800: (10, 0)}),
        (1, "F", {1000: (3, 5), 900: (8, 2)}),
        (1, "B", {1000: (5, 5), 900: (6, 3), 800: (11, 2)}),
        (2, "F", {1000: (2, 3), 900: (9, 0)}),
        (2, "B", {1000: (1, 4), 900: (2, 2)}),
    ]
    orders = "0F0 0F1 0F2 0B0 0B1 0B2\n1F0 1F1 1B0 1F2 1B1 1B2\n2F0 2B0 2F1 2B1 2F2 2B2"
    found = plan_frontier(small_problem(orders, [small_curve(*one) for one in few]), num_points=4)
    assert (np.diff(found.bound.effective_uj) < 0).all()
    assert (np.diff(found.bound.time_ps) > 0).all()
    assert (found.gaps >= 0).all()


@pytest.mark.parametrize("num_points", [2, 4, 8])
def test_no_more_plans_are_sought_where_as_many_were_found_as_asked_for(num_points: int) -> None:
    assert len(plan_frontier(chain(SIX, FOUR), num_points=num_points).time_ps) == num_points


@pytest.mark.parametrize(("enough", "num_plans"), [(200, 30), (20, 30), (19, 19)])
def test_twice_as_many_are_sought_where_some_coincide_and_they_are_not_enough(
    enough: int, num_plans: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 20 that are asked for 19 are found, of 40 there are 30, and with more 31."""
    monkeypatch.setattr(module, "ENOUGH_POINTS", enough)
    curves = [small_curve(stage, kind, SIX) for stage in (0, 1) for kind in "FB"]
    of = small_problem("0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1", curves)
    assert len(plan_frontier(of, num_points=20).deadline_points) == num_plans


def test_where_nothing_can_be_chosen_there_is_one_plan_and_planning_is_not_cancelled() -> None:
    found = plan_frontier(chain({1000: (10, 9000)}))
    assert (found.time_ps.tolist(), found.total_uj.tolist()) == ([20 * MS], [18_000])


def test_of_plans_that_draw_as_much_the_faster_is_taken() -> None:
    """One rank, which draws 18 mJ in 20 ms or in 30."""
    of = chain({1000: (10, 9000), 500: (20, 9000)}, blocking_uw=100_000)
    found = frontier_of(of, [plan_of(of), plan_of(of, _0F0=1)])
    assert found.total_uj.tolist() == [18_000, 18_000]
    assert (found.deadline_points.tolist(), found.t_star_ps) == ([0], 20 * MS)
    assert (found.point_for_deadline(30 * MS), found.point_for_straggler(30 * MS)) == (0, 1)


def test_how_long_planning_took_is_no_longer_than_it_did() -> None:
    began = time.perf_counter()
    found = plan_frontier(chain(SIX, FOUR))
    took_s = time.perf_counter() - began
    assert min(found.solve_seconds, found.realise_seconds) > 0
    assert found.solve_seconds + found.realise_seconds <= took_s


def test_a_transfer_begins_when_its_result_is_there() -> None:
    curves = [small_curve(stage, kind, TWO) for stage in (0, 1) for kind in "FB"]
    of = small_problem(PAIR, [*curves, small_curve(0, "SEND_F", {0: (15, 0)})])
    assert replay_all_max(of).start_ps.tolist() == [0, 45 * MS, 25 * MS, 35 * MS, 10 * MS]


def test_work_is_pieces_of_hulls_times_instructions_times_ranks() -> None:
    """Of two clocks a hull has one piece."""
    assert exact_work(chain()) == 2 * 2 * 1
    assert exact_work(chain(SIX, FOUR)) == 4 * 5 * 4 * 1
    assert exact_work(pair()) == 4 * 4 * 2


@pytest.mark.parametrize(
    ("most_work", "most_pieces", "is_exact"), [(32, 0, True), (31, 3, False), (31, 4, True), (0, 3, False)]
)
def test_a_frontier_is_exact_up_to_so_much_work_or_so_many_pieces(
    most_work: int, most_pieces: int, monkeypatch: pytest.MonkeyPatch, *, is_exact: bool
) -> None:
    monkeypatch.setattr(module, "MOST_EXACT_WORK", most_work)
    monkeypatch.setattr(module, "MOST_EXACT_PIECES", most_pieces)
    assert is_traced_exactly(pair()) == is_exact
    if is_exact:
        assert plan_frontier(pair()).bound.tolerance == 0
    assert plan_frontier(pair()).bound.tolerance <= TOLERANCE


def rough() -> PlanningProblem:
    """One whose first bound is not exact where it need not be."""
    longer: Points = {mhz: (1.3 * ms, uj) for mhz, (ms, uj) in SIX.items()}
    curves = [small_curve(stage, kind, (SIX, longer)[stage]) for stage in (0, 1) for kind in "FB"]
    return small_problem("0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1", curves)


@pytest.mark.parametrize(("more", "is_exact"), [(0, True), (-1, False)])
@pytest.mark.parametrize("name", ["MOST_EXACT_WORK", "MOST_EXACT_WORK_AT_FIRST"])
def test_a_first_plan_is_held_against_the_exact_bound_up_to_so_much_work(
    name: str, more: int, monkeypatch: pytest.MonkeyPatch, *, is_exact: bool
) -> None:
    of = rough()
    monkeypatch.setattr(module, name, exact_work(of) + more)
    assert (plan_first(of).bound.tolerance == 0) == is_exact


def test_first_plans_are_few_and_those_asked_for() -> None:
    of = chain(SIX, FOUR)
    first = plan_first(of)
    assert first.time_ps.tolist() == [40 * MS, 80 * MS]
    asked = plan_first(of, deadlines_ps=[50 * MS])
    assert asked.time_ps[asked.point_for_deadline(50 * MS)] > 45 * MS


def test_first_plans_end_where_the_least_energy_is_drawn() -> None:
    """Of one rank that draws most at 400 MHz, and there the least beside what it would draw waiting."""
    of = chain({1000: (10, 9000), 800: (12, 8400), 500: (20, 8000), 400: (25, 9000)}, FOUR, blocking_uw=400_000)
    first, whole = plan_first(of), plan_frontier(of)
    assert first.time_ps.tolist() == [40 * MS, 80 * MS]
    assert (first.t_star_ps, whole.t_star_ps, whole.time_ps[-1]) == (80 * MS, 80 * MS, 100 * MS)


def test_a_total_is_that_of_a_plan_and_of_waiting_until_its_end() -> None:
    found = plan_frontier(chain(blocking_uw=100_000))
    assert found.effective_uj.tolist() == [16_000, 11_000, 6_000]
    assert found.total_uj.tolist() == [18_000, 14_000, 10_000]
    assert found.fastest_ps == 20 * MS
    assert found.t_star_ps == 40 * MS


@pytest.mark.parametrize(("more_ps", "is_refused"), [(0, False), (1, True)])
def test_all_instructions_together_take_at_most_a_quarter_of_what_can_be_counted(
    more_ps: int, *, is_refused: bool
) -> None:
    most_ps = 2**63 // 4 - 1
    curves = [small_curve(0, kind, {1000: (10, 9000), 500: (10, 9000)}) for kind in "FB"]
    curves[0] = curves[0].with_durations(np.array([1000, most_ps - 10 * MS + more_ps]))
    if is_refused:
        with pytest.raises(PlanningError, match=r"take 2\.31e\+06 s at their slowest, expected at most 2\.31e\+06 s"):
            small_problem("0F0 0B0", curves)
    else:
        of = small_problem("0F0 0B0", curves)
        assert replay(of, plan_of(of, _0F0=1)).time_ps == most_ps


@pytest.mark.parametrize(
    ("power_uw", "is_refused"),
    [(0, False), (1, True), (999_999, True), (10**6, False), (10**10, False), (10**10 + 1, True), (-1, True)],
)
def test_blocking_power_is_nothing_or_that_of_a_gpu(power_uw: int, *, is_refused: bool) -> None:
    shape = (1, 2)
    measured = Measurements(
        clocks_mhz=np.array([1000, 500]),
        gpus=("",),
        times_s=np.array([[0.01, 0.02]]),
        energies_j=np.array([[9.0, 5.0]]),
        num_samples=np.ones(shape),
        time_std_s=np.full(shape, np.nan),
        energy_std_j=np.full(shape, np.nan),
    )
    profile = Profile(source="made up", measurements={(0, kind): measured for kind in "FB"})
    schedule = parse_schedule("0F0 0B0")
    if is_refused:
        with pytest.raises(PlanningError, match=rf"^blocking_uw_of_rank: saw {power_uw}, expected 0, or whole"):
            make_problem(schedule, profile, blocking_uw_of_rank=[power_uw])
    else:
        of = make_problem(schedule, profile, blocking_uw_of_rank=[power_uw])
        assert of.blocking_uw.tolist() == [power_uw]


def test_clocks_and_their_indices_are_each_others_inverse() -> None:
    of = small_problem("0F0 0B0", [small_curve(0, "F", SIX), small_curve(0, "B", TWO)])
    plan = plan_of(of, _0F0=3, _0B0=1)
    assert of.clocks_mhz(plan).tolist() == [700, 500]
    assert of.clock_indices(of.clocks_mhz(plan)).tolist() == plan.tolist()


def test_what_a_profile_does_not_say_of_changes_takes_the_constant() -> None:
    assert chain().latencies_ps(7).tolist() == [7, 7, 7, 7]


def test_an_instruction_draws_what_was_measured_and_waiting_comes_beside_it() -> None:
    """9 and 5 mJ; each rank waits for 20 ms at 0.1 W while the other works, and 10 ms more of it are slow."""
    of = pair(blocking_uw=100_000)
    played = replay(of, plan_of(of, _1F0=1))
    assert played.energy_uj.tolist() == [9000, 9000, 5000, 9000]
    assert played.start_ps.tolist() == [0, 40 * MS, 10 * MS, 30 * MS]
    assert played.end_ps.tolist() == [10 * MS, 50 * MS, 30 * MS, 40 * MS]
    assert played.changes.tolist() == [0, 1]
    assert played.total_uj == 32_000 + 100 * (2 * 50 - 50)
    assert played.effective_uj == 32_000 - 100 * 50


def test_ends_are_those_of_the_longest_chains() -> None:
    edges = np.array([[0, 2], [1, 2], [2, 3]], dtype=np.int32).T
    assert ends_of(np.array([1, 5, 2, 3]), *map(np.ascontiguousarray, edges)).tolist() == [1, 5, 7, 10]


def plans() -> tuple[Plan, Plan]:
    """For 30 ms, and with everybody waiting for 50 ms, at 0.1 W."""
    found = plan_frontier(chain(blocking_uw=100_000))
    return plan_for_deadline(found, 30 * MS), plan_for_straggler(found, 50 * MS)


def test_figures_of_a_plan_are_shares_of_the_iteration_at_full_clocks() -> None:
    own, waiting = map(plan_figures, plans())
    assert (own["time_s"], own["until_s"], own["deadline_s"]) == pytest.approx((0.03, 0.03, 0.03))
    assert own["energy_j"] == pytest.approx(0.014)
    assert own["saving_percent"] == pytest.approx(100 * 4 / 18)
    assert own["slowdown_percent"] == pytest.approx(50)
    assert own["lower_bound_j"] == pytest.approx(0.013999)
    assert own["gap_percent"] == pytest.approx(100 / 13_999)
    assert (waiting["time_s"], waiting["until_s"]) == pytest.approx((0.04, 0.05))
    assert waiting["energy_j"] == pytest.approx(0.011)
    assert waiting["saving_percent"] == pytest.approx(100 * (1 - 11 / 21))
    assert waiting["slowdown_percent"] == pytest.approx(100)


def test_full_clocks_save_nothing_and_take_as_long() -> None:
    figures = plan_figures(all_max(plan_frontier(chain())))
    assert (figures["saving_percent"], figures["slowdown_percent"], figures["deadline_s"]) == (0, 0, 0.02)


def test_the_interval_of_a_saving_is_told_in_percent() -> None:
    curves = [small_curve(0, kind, TWO, time_errors=(0.01,) * 2, energy_errors=(0.02,) * 2) for kind in "FB"]
    of = small_problem("0F0 0B0", curves)
    plan = plan_of(of, _0F0=1)
    own = plan_for_deadline(frontier_of(of, [plan]), 30 * MS)
    (interval,) = saving_intervals(of, [plan]) or ()
    assert own.saving_interval == interval
    low, high = plan_figures(own)["saving_interval_percent"]
    assert (low, high) == (100 * interval.low, 100 * interval.high)


def test_the_document_says_clocks_and_power_of_one_gpu() -> None:
    document = plan_document(plans()[0])
    (rank,) = document["ranks"]
    assert sorted(one["clock_mhz"] for one in rank["instructions"]) == [500, 1000]
    assert document["blocking_power_w"] == [0.1]
    assert document["baseline_time_s"] == pytest.approx(0.02)
    assert "clocks" not in rank


def test_a_reference_is_each_instruction_at_its_maximum_clock() -> None:
    played = replay_all_max(chain())
    assert (played.time_ps, played.total_uj, played.clocks_mhz.tolist()) == (20 * MS, 18_000, [1000, 1000])
