"""How long plans that were given up stay so, which iterations of ranks are the job's, and whose plan they follow."""

from dataclasses import replace

import pytest
from test_planner_guard_watch_bounds import begun, tell

from perseus_dist.messages.from_agent import IterationReport
from perseus_dist.messages.terms import NO_POINT
from perseus_dist.planner.job.guard import Guard, GuardPolicy
from perseus_dist.planner.job.guard_watch import GuardWatch

A_LITTLE = 1e-6


def observe(
    watch: GuardWatch, rank: int, iteration: int, *, time_s: float = 1.0, point: int = 0, is_planned: bool = True
) -> bool:
    """One rank of two tells of an iteration."""
    one = IterationReport(
        iteration=iteration, time_s=time_s, pipeline_time_s=time_s, energy_j=1.0, table_revision=1, point=point
    )
    return watch.observe(rank, rank, one, is_planned=is_planned, num_attached=2, allowed=float)


def fallen(num: int = 5, at: int = 20, *, was_on_time_again: bool = False) -> GuardWatch:
    """Of a plan that was given up so many times in a row."""
    watch = begun(num=at)
    for _ in range(num):
        watch.fall_from_plan(at, was_on_time_again=was_on_time_again)
    return watch


def released(watch: GuardWatch, first: int, *times_s: float) -> list[int]:
    """Iterations at full clocks: those with which a hold was over."""
    watch.begin_plan(first, range(2))
    over = []
    for iteration, time_s in enumerate(times_s, first):
        tell(watch, iteration, 0.0, 0.0, time_s=time_s, point=NO_POINT)
        if watch.has_held(iteration):
            over.append(iteration)
    return over


def test_holds_double_from_four_iterations_on_up_to_four_thousand() -> None:
    watch = GuardWatch()
    lasts = []
    for _ in range(13):
        watch.fall_from_plan(100)
        lasts.append(watch.held_until - 100)
    assert lasts == [*(4 * 2**num for num in range(11)), 4096, 4096]
    assert (watch.num_falls, watch.num_plan_falls, watch.num_wait_falls) == (13, 13, 0)


def test_each_kind_of_fall_doubles_its_own_holds() -> None:
    watch = GuardWatch()
    watch.fall_from_waiting(100)
    assert watch.held_until == 104
    assert not watch.is_released
    watch.fall_from_waiting(100)
    assert watch.held_until == 108
    watch.hold_back(100)
    assert watch.held_until == 104
    assert watch.is_released
    watch.hold_back(100)
    assert watch.held_until == 108
    watch.fall_from_plan(100)
    assert watch.held_until == 116, "a plan that could not be tried counts with those that were slow"
    assert watch.num_falls == 3
    watch.fall_from_waiting(100)
    assert not watch.is_released


def test_plans_of_stragglers_are_held_for_sixty_four_iterations_and_twice_as_many_each_time() -> None:
    watch = GuardWatch()
    lasts = []
    for _ in range(13):
        watch.fall_from_own_plans(100)
        lasts.append(watch.own_plans_held_until - 100)
    assert lasts == [*(64 * 2**num for num in range(11)), 64 * 1024, 64 * 1024]
    assert watch.num_own_falls == 13


def test_a_hold_is_over_once_with_its_last_iteration() -> None:
    watch = GuardWatch()
    assert not watch.has_held(0)
    watch.fall_from_waiting(100)
    assert [iteration for iteration in range(100, 110) if watch.has_held(iteration)] == [104]


def test_training_that_goes_back_leaves_what_is_held_for_less() -> None:
    watch = GuardWatch()
    watch.fall_from_waiting(100)
    watch.fall_from_own_plans(100)
    watch.swept_until = 90
    watch.go_back(95)
    assert (watch.held_until, watch.own_plans_held_until, watch.swept_until) == (99, 159, 90)
    watch.go_back(101)
    assert (watch.held_until, watch.own_plans_held_until, watch.swept_until) == (99, 159, 90)
    watch.go_back(80)
    assert (watch.held_until, watch.own_plans_held_until, watch.swept_until) == (84, 144, 80)


@pytest.mark.parametrize(("first", "over"), [(20, 28), (21, 28), (29, 29)])
def test_a_plan_that_was_on_time_at_its_end_is_held_for_eight_iterations_at_least(first: int, over: int) -> None:
    watch = fallen(was_on_time_again=True)
    assert released(watch, first, *[1.0] * 12)[:1] == [over]


def test_a_plan_that_was_on_time_at_its_end_is_held_while_full_clocks_jump() -> None:
    watch = fallen(was_on_time_again=True)
    assert released(watch, 21, *[1.0, 1.0, 1.1, 1.1] * 4) == []
    assert watch.held_until == 20 + 64


def test_a_hold_of_another_kind_does_not_end_early() -> None:
    watch = fallen(was_on_time_again=True)
    for _ in range(6):
        watch.fall_from_waiting(20)
    assert released(watch, 21, *[1.0] * 20) == []


def test_whether_full_clocks_were_steady_is_known_as_a_hold_ends() -> None:
    for times_s, was_steady in (([1.0] * 8, True), ([1.0, 1.1] * 4, False)):
        watch = fallen(1)
        assert watch.was_steady
        assert released(watch, 20, *times_s) == [24]
        assert watch.was_steady == was_steady
        assert watch.is_passing == (not was_steady)


@pytest.mark.parametrize(
    ("lost", "over"), [(0.0, 30 + 16), (1 / 32, 30 + 16), (1 / 16, 30 + 32), (10.0, 28 + 128)], ids=str
)
def test_another_hold_ends_early_once_what_was_lost_is_within_the_budget_or_after_many_iterations(
    lost: float, over: int
) -> None:
    """Of so many iterations. What is tolerated of the plan's four is lost at least, and a quarter of it may be."""
    watch = fallen(was_on_time_again=True)
    watch.guard.policy = replace(GuardPolicy(), tolerance=1 / 128, budget_share=1 / 512)
    watch.guard.lost_s = 50.0
    assert released(watch, 20, *[2.0] * 9) == [28]
    watch.begin_plan(30, range(2))
    watch.guard.lost_s += 2.0 * lost
    for _ in range(3):
        watch.fall_from_plan(34, was_on_time_again=True)
    assert watch.held_until > over
    assert released(watch, 35, *[2.0] * 140) == [over]


def test_a_hold_that_lasts_as_long_as_ordered_lets_the_next_one_end_early() -> None:
    watch = fallen(2, was_on_time_again=True)
    assert released(watch, 20, *[1.0] * 9) == [28]
    watch.begin_plan(30, range(2))
    watch.guard.lost_s += 100.0
    for _ in range(3):
        watch.fall_from_plan(34, was_on_time_again=True)
    assert released(watch, 35, *[1.0] * 12) == [34 + 8]


def test_a_plan_that_no_reference_judges_has_lost_what_is_tolerated() -> None:
    watch = GuardWatch()
    for iteration, over in ((20, 28), (30, 60)):
        for _ in range(5):
            watch.fall_from_plan(iteration, was_on_time_again=True)
        watch.held_until = 1000
        assert [one for one in range(iteration, 200) if watch.has_held(one)] == [over]


@pytest.mark.parametrize(("num_kept", "num_slow", "is_passing"), [(1, 3, True), (1, 4, False), (0, 1, False)])
def test_a_plan_that_kept_the_promise_in_a_quarter_of_its_iterations_is_slow_now_and_then(
    num_kept: int,
    num_slow: int,
    is_passing: bool,  # noqa: FBT001
) -> None:
    watch = begun()
    for iteration, time_s in enumerate([1.0, *[1.0] * num_kept, *[1.5] * num_slow], 20):
        tell(watch, iteration, 0.0, 0.0, time_s=time_s)
    assert watch.is_passing == is_passing
    watch.fall_from_plan(40)
    assert watch.kept_share == num_kept / (num_kept + num_slow)
    assert watch.may_sweep(is_too_slow=False) != is_passing
    assert watch.may_sweep(is_too_slow=True)


def test_nothing_is_swept_where_full_clocks_jump_unless_the_profile_is_wrong_for_sure() -> None:
    watch = fallen(1)
    watch.was_steady = False
    assert not watch.may_sweep(is_too_slow=False)
    assert not watch.may_sweep(is_too_slow=True)
    watch.fall_from_plan(20, is_profile_wrong=True)
    assert watch.may_sweep(is_too_slow=False)


def test_what_was_swept_last_gets_a_second_chance_until_a_plan_is_trusted() -> None:
    watch = fallen(1)
    assert watch.may_sweep(is_too_slow=False), "nothing was swept"
    watch.begin_sweep()
    assert watch.num_since_sweep == 0
    assert not watch.may_sweep(is_too_slow=False)
    watch.fall_from_plan(30)
    assert not watch.may_sweep(is_too_slow=False)
    watch.fall_from_plan(40)
    assert watch.may_sweep(is_too_slow=False)


def test_falls_are_forgotten_under_a_plan_that_is_trusted() -> None:
    watch = GuardWatch(guard=Guard(policy=replace(GuardPolicy(), first_gap=1)))
    watch.fall_from_plan(0)
    watch.fall_from_waiting(0)
    watch.begin_sweep()
    watch.was_steady = False
    watch.begin_plan(0, range(2))
    for first in range(0, 30, 10):
        assert (watch.num_plan_falls, watch.num_wait_falls, watch.num_since_sweep) == (1, 1, 0)
        for iteration in range(first, first + 7):
            tell(watch, iteration, 0.0, 0.0)
        for iteration in watch.guard.order_probe(first + 7):
            tell(watch, iteration, 0.0, 0.0, point=NO_POINT)
    assert (watch.num_plan_falls, watch.num_wait_falls, watch.num_since_sweep) == (0, 0, None)
    assert watch.was_steady


def test_a_silent_rank_is_waited_for_during_four_iterations() -> None:
    watch = begun()
    assert [observe(watch, 0, iteration) for iteration in range(20, 26)] == [False] * 4 + [True, True]
    assert not observe(watch, 1, 20), "it is known, and not told again"
    assert not observe(watch, 1, 21)
    assert observe(watch, 1, 22)


def test_an_iteration_is_known_with_its_last_rank_and_lasts_as_long_as_the_slowest() -> None:
    watch = begun()
    for iteration in range(20, 24):
        assert not observe(watch, 0, iteration, time_s=1.0, point=NO_POINT)
        assert observe(watch, 1, iteration, time_s=2.0, point=NO_POINT)
    assert watch.guard.reference_s == 1.5, "of four that took 1 s and of four"
    for iteration in range(24, 29):
        observe(watch, 1, iteration, time_s=2.0, point=NO_POINT)
        observe(watch, 0, iteration, time_s=1.0, point=NO_POINT)
    assert watch.guard.reference_s == 2.0


def test_iterations_whose_time_is_not_known_say_nothing() -> None:
    watch = begun()
    assert not tell(watch, 20, 0.0, 0.0, time_s=0.0)
    assert tell(watch, 21, 0.0, 0.0, time_s=A_LITTLE)


@pytest.mark.parametrize(("num_late", "lead"), [(0, 0), (1, 1), (2, 3), (3, 7), (6, 63), (7, 63)])
def test_a_probe_is_ordered_earlier_by_one_and_twice_what_was_too_late_up_to_sixty_three(
    num_late: int, lead: int
) -> None:
    watch = begun()
    for first in range(20, 20 + 5 * num_late, 5):
        for iteration in watch.guard.order_probe(first):
            tell(watch, iteration, 0.0, 0.0)
    [first, *_] = watch.guard.order_probe(100)
    tell(watch, first, 0.0, 0.0, point=NO_POINT)
    assert watch.probe_lead == lead


@pytest.mark.parametrize(("swept_until", "lost_s"), [(20, 2.0), (21, 1.5), (22, 1.0)])
def test_iterations_are_those_of_the_plan_from_the_end_of_a_sweep_on(swept_until: int, lost_s: float) -> None:
    watch = begun()
    watch.swept_until = swept_until
    for iteration in range(20, 24):
        tell(watch, iteration, 0.0, 0.0, time_s=1.5)
    for iteration in watch.guard.order_probe(24):
        tell(watch, iteration, 0.0, 0.0, point=NO_POINT)
    assert watch.figures.lost_s == lost_s


def test_a_late_switch_is_waited_for_during_sixty_four_iterations() -> None:
    watch = begun()
    for iteration in range(20, 90):
        observe(watch, 0, iteration, time_s=1.5, point=0)
        observe(watch, 1, iteration, time_s=1.5, point=5, is_planned=False)
    for iteration in watch.guard.order_probe(90):
        tell(watch, iteration, 0.0, 0.0, point=NO_POINT)
    assert watch.figures.lost_s == pytest.approx(0.5 * (90 - 84))


@pytest.mark.parametrize("is_first", [True, False], ids=["first switch", "second"])
@pytest.mark.parametrize("moved", [[0], [1], []], ids=str)
def test_a_rank_that_is_silent_hides_no_plan_that_another_ones_move_proves(moved: list[int], *, is_first: bool) -> None:
    """Rank 1 does not tell. Where rank 0 moved with the newest switch that moved any, it shows that it is followed."""
    watch = GuardWatch()
    for iteration in range(20):
        tell(watch, iteration, 0.0, 0.0, point=NO_POINT)
    if not is_first:
        watch.begin_plan(20, [0, 1])
    watch.begin_plan(20, moved)
    for iteration in range(20, 28):
        observe(watch, 0, iteration, time_s=1.5)
    for iteration in watch.guard.order_probe(28):
        observe(watch, 0, iteration, point=NO_POINT, is_planned=False)
    for iteration in range(31, 35):
        observe(watch, 0, iteration, point=NO_POINT, is_planned=False)
    assert watch.figures.lost_s == (0.0 if moved == [1] else 4.0)


def test_an_iteration_that_all_ranks_tell_of_is_the_plans_whoever_it_moved() -> None:
    watch = begun()
    watch.begin_plan(20, [7])
    for iteration in range(20, 28):
        tell(watch, iteration, 0.0, 0.0, time_s=1.5)
    for iteration in watch.guard.order_probe(28):
        tell(watch, iteration, 0.0, 0.0, point=NO_POINT)
    assert watch.figures.lost_s == 4.0
