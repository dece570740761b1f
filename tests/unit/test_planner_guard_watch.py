"""What ranks report, in the guard's terms: which iterations say something, and about what.

Each rank is a pipeline of its own.
"""

import pytest

from perseus_dist.messages.from_agent import IterationReport, KindTime
from perseus_dist.messages.terms import NO_POINT
from perseus_dist.planner.job.guard import Waiting
from perseus_dist.planner.job.guard_watch import GuardWatch

NUM_RANKS = 2


def report(
    watch: GuardWatch, iteration: int, time_s: float, *points: int, kind_ratio: float = 0.0, backward_ratio: float = 0.0
) -> None:
    """An iteration of the job, each rank at its point, and rank 1 with times over the profile's."""
    for rank, point in enumerate(points):
        ratios = {"F": kind_ratio, "B": backward_ratio or kind_ratio} if rank == 1 else {"F": 1.0, "B": 1.0}
        one = IterationReport(
            iteration=iteration,
            time_s=time_s,
            pipeline_time_s=time_s,
            energy_j=1.0,
            table_revision=1,
            point=point,
            kind_times=tuple(
                KindTime(kind=kind, time_ratio=ratio, requested_mhz=1000) for kind, ratio in ratios.items()
            )
            if kind_ratio
            else (),
        )
        watch.observe(
            rank, rank, one, is_planned=point != NO_POINT, num_attached=NUM_RANKS, allowed=lambda free_s: free_s
        )


def begun(*, planned_s: float = 1.0) -> GuardWatch:
    """Eight iterations at full clocks, then eight under a plan, until the first probe is due."""
    watch = GuardWatch()
    for iteration in range(8):
        report(watch, iteration, 1.0, NO_POINT, NO_POINT)
    watch.begin_plan(8, range(NUM_RANKS))
    for iteration in range(8, 17):
        report(watch, iteration, planned_s, 0, 0)
    return watch


def test_iterations_at_full_clocks_are_the_reference() -> None:
    watch = begun()
    assert watch.guard.reference_s == 1.0
    assert watch.figures.reference_s == 1.0


def test_what_one_rank_alone_does_at_full_clocks_is_judged_with_the_plan() -> None:
    """Its agent has no rights, for ever: the plan of the others may be slow all the same."""
    watch = GuardWatch()
    for iteration in range(8):
        report(watch, iteration, 1.0, NO_POINT, NO_POINT)
    watch.begin_plan(8, range(NUM_RANKS))
    probed = range(0)
    for iteration in range(8, 40):
        is_probe = iteration in probed
        points = (NO_POINT, NO_POINT) if is_probe else (0, NO_POINT)
        report(watch, iteration, 1.0 if is_probe else 1.1, *points)
        if watch.guard.breach is None and watch.guard.wanted_probe(iteration + 1, Waiting.NONE):
            probed = watch.guard.order_probe(iteration + 1)
    assert watch.guard.breach is not None


def test_a_probe_that_has_not_reached_every_rank_is_no_reference() -> None:
    watch = begun(planned_s=1.1)
    probed = watch.guard.order_probe(17)
    for iteration in probed:
        report(watch, iteration, 1.1, NO_POINT, 0)
    assert watch.guard.reference_s == 1.0
    assert watch.guard.breach is None


def test_probes_are_ordered_as_early_as_messages_have_been_late() -> None:
    watch, late = begun(), 5
    asked = 17
    for is_in_time in (False, False, False, True):
        assert (watch.probe_lead >= late) == is_in_time
        probed = watch.guard.order_probe(asked + watch.probe_lead)
        for iteration in range(asked, probed.stop):
            point = NO_POINT if iteration in probed and iteration >= asked + late else 0
            report(watch, iteration, 1.0, point, point)
        asked = probed.stop
    assert watch.probe_lead == 7
    assert watch.guard.num_probes == 4


def test_iterations_of_the_plan_before_do_not_speak_for_the_next() -> None:
    watch = begun(planned_s=1.1)
    watch.begin_plan(20, range(NUM_RANKS))
    for iteration in range(17, 20):
        report(watch, iteration, 1.1, 0, 0)
    for iteration in range(20, 24):
        report(watch, iteration, 1.0, 1, 1)
    for iteration in range(24, 27):
        report(watch, iteration, 1.0, NO_POINT, NO_POINT)
    assert watch.guard.breach is None
    assert watch.guard.lost_s == 0.0


def test_a_report_from_long_ago_changes_nothing() -> None:
    """A rank comes back after a break and sends what it has kept."""
    watch = begun()
    watch.fall_from_plan(17)
    held = watch.held_until
    for iteration in range(3):
        report(watch, iteration, 99.0, NO_POINT, NO_POINT)
    assert (watch.guard.reference_s, watch.held_until) == (1.0, held)


def test_what_was_held_until_a_later_iteration_ends_where_training_goes_back() -> None:
    watch = begun()
    for _ in range(8):
        watch.fall_from_waiting(5000)
    assert watch.held_until > 5000
    watch.go_back(100)
    assert watch.held_until < 120
    assert not watch.has_held(101)
    assert watch.has_held(119)
    report(watch, 101, 2.0, NO_POINT, NO_POINT)
    report(watch, 102, 2.0, NO_POINT, NO_POINT)
    assert watch.guard.reference_s == 2.0


def test_own_plans_are_given_up_for_longer_each_time_but_not_for_iterations_that_training_repeats() -> None:
    watch = begun()
    for _ in range(3):
        watch.fall_from_own_plans(5000)
    assert (watch.num_falls, watch.own_plans_held_until) == (3, 5000 + 4 * 64)
    watch.go_back(100)
    assert watch.own_plans_held_until == 164
    watch.own_plans_held_until = 0
    watch.go_back(50)
    assert watch.own_plans_held_until == 0


@pytest.mark.parametrize(
    ("kind_ratio", "may_sweep"),
    [(0.0, True), (1.1, True), (1.0, False)],
    ids=["unknown", "a rank is slow", "all is as profiled"],
)
def test_a_profile_that_instructions_confirm_is_not_measured_again(kind_ratio: float, may_sweep: bool) -> None:  # noqa: FBT001
    """The plan was slow for what lies between instructions, such as a slow link: a sweep would find the same."""
    watch = GuardWatch()
    for iteration in range(8):
        report(watch, iteration, 1.0, NO_POINT, NO_POINT)
    watch.begin_plan(8, range(NUM_RANKS))
    for iteration in range(8, 20):
        report(watch, iteration, 1.2, 0, 0, kind_ratio=kind_ratio)
    watch.fall_from_plan(20)
    assert watch.may_sweep(is_too_slow=False) is may_sweep


def test_a_profile_that_iterations_at_full_clocks_refute_is_measured_again_whatever_instructions_say() -> None:
    """Heat held all clocks above the plan's as the profile was measured, and is over."""
    watch = GuardWatch()
    for iteration in range(8):
        report(watch, iteration, 1.0, NO_POINT, NO_POINT)
    watch.begin_plan(8, range(NUM_RANKS))
    for iteration in range(8, 20):
        report(watch, iteration, 1.04, 0, 0, kind_ratio=1.0)
    watch.fall_from_plan(20)
    assert not watch.may_sweep(is_too_slow=False)
    assert watch.may_sweep(is_too_slow=True)


def test_a_profile_just_measured_gets_a_second_chance_unless_iterations_are_shorter_than_it_says() -> None:
    watch = begun(planned_s=1.2)
    watch.begin_sweep()
    watch.fall_from_plan(17)
    assert not watch.may_sweep(is_too_slow=False)
    assert watch.may_sweep(is_too_slow=True)
    watch.fall_from_plan(40)
    assert watch.may_sweep(is_too_slow=False)


@pytest.mark.parametrize(("ratio", "is_suspicious"), [(1.0, True), (1.2, False)])
def test_a_rank_that_is_waited_for_and_takes_what_the_profile_says_is_suspicious(
    ratio: float,
    is_suspicious: bool,  # noqa: FBT001
) -> None:
    """Its peers run at other clocks, so that nothing else contradicts the verdict."""
    watch = begun()
    watch.begin_plan(17, range(NUM_RANKS))
    for iteration in range(17, 22):
        one = IterationReport(
            iteration=iteration,
            time_s=1.2,
            pipeline_time_s=1.2,
            energy_j=1.0,
            table_revision=1,
            point=0,
            kind_times=(KindTime(kind="F", time_ratio=ratio, requested_mhz=1000),),
        )
        for rank in range(NUM_RANKS):
            watch.observe(
                rank,
                rank,
                one,
                is_planned=True,
                num_attached=NUM_RANKS,
                allowed=lambda free_s: free_s,
                is_held_slow=rank == 1,
            )
    assert bool(watch.guard.wanted_probe(22, Waiting.SEEN)) is is_suspicious


def test_iterations_under_the_plan_before_a_late_switch_are_not_the_new_plans() -> None:
    """A planner that was stopped orders a switch from an iteration on that is past: reports of others come after it."""
    watch = begun()
    watch.begin_plan(17, range(NUM_RANKS))
    for iteration in range(17, 30):
        for rank in range(NUM_RANKS):
            one = IterationReport(
                iteration=iteration, time_s=1.5, pipeline_time_s=1.5, energy_j=1.0, table_revision=1, point=5 * rank
            )
            watch.observe(rank, rank, one, is_planned=rank == 0, num_attached=NUM_RANKS, allowed=lambda free_s: free_s)
    assert watch.guard.wanted_probe(30, Waiting.NONE) == ""
    for iteration in range(30, 39):
        report(watch, iteration, 1.0, 0, 0)
    order = watch.guard.order_probe(39)
    for iteration in order:
        report(watch, iteration, 1.0, NO_POINT, NO_POINT)
    assert watch.guard.breach is None
    assert watch.figures.lost_s == 0


@pytest.mark.parametrize(("moved", "lost_s"), [([1], 0.0), ([0], 5.0), ([0, 1], 5.0)])
def test_a_backlog_of_a_pipeline_that_a_late_switch_left_unmoved_does_not_show_that_others_follow_it(
    moved: list[int], lost_s: float
) -> None:
    """Each rank's backlog comes at once: that of rank 0, whose order may be the same as before, comes first."""
    watch = begun()
    watch.begin_plan(17, moved)
    for rank, is_planned in ((0, True), (1, False)):
        for iteration in range(17, 30):
            one = IterationReport(
                iteration=iteration, time_s=1.5, pipeline_time_s=1.5, energy_j=1.0, table_revision=1, point=5 * rank
            )
            watch.observe(rank, rank, one, is_planned=is_planned, num_attached=NUM_RANKS, allowed=lambda free_s: free_s)
    for iteration in range(30, 39):
        report(watch, iteration, 1.0, 0, 0)
    for iteration in watch.guard.order_probe(39):
        report(watch, iteration, 1.0, NO_POINT, NO_POINT)
    assert watch.figures.lost_s == pytest.approx(lost_s, abs=0.6)


@pytest.mark.parametrize(
    ("ratio", "num_probes", "is_misstated"),
    [(0.9, 1, True), (1.1, 1, False), (1.1, 2, True), (0.99, 2, False), (1.01, 2, False)],
)
def test_one_probe_shows_that_a_rank_takes_less_than_profiled_and_two_that_it_takes_more(
    ratio: float,
    num_probes: int,
    is_misstated: bool,  # noqa: FBT001
) -> None:
    watch = begun()
    report(watch, 17, 1.0, NO_POINT, NO_POINT, kind_ratio=0.5)  # no probe
    for first in range(18, 18 + 10 * num_probes, 10):
        first_of_probe, *later = watch.guard.order_probe(first)
        report(watch, first_of_probe, 1.0, NO_POINT, NO_POINT)
        for iteration in later:
            report(watch, iteration, 1.0, NO_POINT, NO_POINT, kind_ratio=ratio)
    assert watch.misstated == ({1: pytest.approx(ratio - 1)} if is_misstated else {})
    watch.begin_plan(40, [0])
    assert watch.misstated == {}


@pytest.mark.parametrize(
    ("planned", "most"), [(1.047, 1.06), (1.02, 1.02), (1.07, 1.07)], ids=["as slow", "faster since", "slower since"]
)
def test_what_a_slow_rank_takes_at_full_clocks_is_the_most_while_it_is_about_as_slow(
    planned: float, most: float
) -> None:
    """Its plan was made again and again, for two slownesses in turn, of which the lesser made it late."""
    watch = begun()
    for iteration in watch.guard.order_probe(17):
        report(watch, iteration, 1.0, NO_POINT, NO_POINT, kind_ratio=1.06)
    for iteration in range(25, 30):
        report(watch, iteration, 1.0, 0, 0, kind_ratio=planned)
    assert watch.time_ratios(1) == (planned, planned, most)
    watch.begin_sweep()
    for iteration in range(30, 35):
        report(watch, iteration, 1.0, 0, 0, kind_ratio=planned)
    assert watch.time_ratios(1) == (planned, planned, planned), "of another profile"


def test_a_kind_of_computation_that_alone_was_slow_as_it_was_profiled_is_found() -> None:
    """A power cap held backwards at the highest clock and no forwards: 2.3 % of one kind, and 1.2 % of both."""
    watch = begun()
    first_of_probe, *later = watch.guard.order_probe(18)
    report(watch, first_of_probe, 1.0, NO_POINT, NO_POINT)
    for iteration in later:
        report(watch, iteration, 1.0, NO_POINT, NO_POINT, kind_ratio=1.0, backward_ratio=0.975)
    assert watch.misstated == {1: pytest.approx(-0.025)}


def test_a_probe_is_told_of_when_all_ranks_have_told() -> None:
    watch = begun()
    probed = watch.guard.order_probe(18)
    assert watch.has_heard_all
    one = IterationReport(
        iteration=probed.stop - 1,
        time_s=1.0,
        energy_j=1.0,
        pipeline_time_s=1.0,
        point=NO_POINT,
        kind_times=(KindTime(kind="F", time_ratio=0.9, requested_mhz=1000),),
    )
    for rank in range(NUM_RANKS):
        watch.observe(rank, rank, one, is_planned=False, num_attached=NUM_RANKS, allowed=lambda free_s: free_s)
        assert watch.has_heard_all == (rank == NUM_RANKS - 1)


def released(watch: GuardWatch, first: int, times_s: list[float]) -> int:
    """Iterations at full clocks after a plan has been given up; in how many of them the hold was found to be over."""
    watch.begin_plan(first, range(NUM_RANKS))  # the switch that releases all clocks
    num_over = 0
    for iteration, time_s in enumerate(times_s, first):
        report(watch, iteration, time_s, NO_POINT, NO_POINT)
        num_over += watch.has_held(iteration)
    return num_over


def test_a_long_hold_ends_once_iterations_at_full_clocks_have_become_faster() -> None:
    watch = begun()
    for _ in range(5):
        watch.fall_from_plan(17)
    assert watch.held_until == 17 + 64
    assert released(watch, 18, [1.2] * 20 + [1.0] * 7) == 0
    report(watch, 45, 1.0, NO_POINT, NO_POINT)
    assert watch.has_held(45)
    assert not watch.has_held(45), "once"
    assert watch.held_until == 45


@pytest.mark.parametrize(
    "times_s", [[1.0] * 40, [1.0] * 20 + [1.2] * 20, [1.2, 1.0] * 20], ids=["alike", "slower", "by turns"]
)
def test_a_hold_lasts_while_iterations_at_full_clocks_have_not_become_faster(times_s: list[float]) -> None:
    watch = begun()
    for _ in range(5):
        watch.fall_from_plan(17)
    assert released(watch, 18, times_s) == 0


def test_a_long_hold_ends_once_they_take_less_than_before_the_plan_was_given_up() -> None:
    watch = begun()
    for iteration in range(17, 30):
        report(watch, iteration, 1.2, NO_POINT, NO_POINT)
    for _ in range(5):
        watch.fall_from_plan(30)
    assert released(watch, 31, [1.0] * 10) == 1


@pytest.mark.parametrize(("is_on_time", "num_over"), [(True, 1), (False, 0)])
def test_a_long_hold_of_a_plan_that_was_on_time_at_its_end_is_short(is_on_time: bool, num_over: int) -> None:  # noqa: FBT001
    watch = begun()
    for _ in range(5):
        watch.fall_from_plan(17, was_on_time_again=is_on_time)
    assert released(watch, 18, [1.0] * 10) == num_over


@pytest.mark.parametrize("num_on_time", [0, 1, 2])
def test_a_breach_says_whether_the_plan_is_on_time_again(num_on_time: int) -> None:
    watch = begun(planned_s=1.2)
    for iteration in range(17, 17 + num_on_time):
        report(watch, iteration, 1.0, 0, 0)
    for iteration in watch.guard.order_probe(17 + num_on_time):
        report(watch, iteration, 1.0, NO_POINT, NO_POINT)
    assert watch.guard.breach is not None
    assert watch.guard.breach.is_on_time_again == (num_on_time == 2)


@pytest.mark.parametrize("half", [9, 12, 20, 31])
def test_a_gpu_that_comes_and_goes_ends_early_what_the_budget_allows(half: int) -> None:
    """At most one hold each 128 iterations, or as many as leave half a percent of the time lost."""
    watch = begun()
    num_early, iteration = 0, 18
    times_s = ([1.2] * half + [1.0] * half) * 40
    while times_s:
        watch.begin_plan(iteration + 1, range(NUM_RANKS))
        lost_s = 0.0
        while times_s and lost_s < 0.4:  # then a probe finds the plan slow
            iteration += 1
            lost_s += times_s[0] - 1.0
            report(watch, iteration, times_s.pop(0), 0, 0)
        watch.guard.lost_s += lost_s
        watch.fall_from_plan(iteration)
        held_until, num_over = watch.held_until, 0
        watch.begin_plan(iteration + 1, range(NUM_RANKS))
        while times_s and not num_over:
            iteration += 1
            report(watch, iteration, times_s.pop(0), NO_POINT, NO_POINT)
            num_over = watch.has_held(iteration)
        num_early += iteration < held_until
    assert num_early <= 1 + 80 * half // 80


def test_a_hold_ends_early_again_once_what_the_plan_lost_is_made_up_for() -> None:
    watch = begun()
    for _ in range(5):
        watch.fall_from_plan(17, was_on_time_again=True)
    assert released(watch, 18, [1.0] * 8) == 1
    watch.begin_plan(26, range(NUM_RANKS))
    watch.guard.lost_s += 0.15
    watch.fall_from_plan(34, was_on_time_again=True)
    assert released(watch, 35, [1.0] * 21) == 0  # 0.15 iterations of 30 since iteration 26
    report(watch, 56, 1.0, NO_POINT, NO_POINT)
    assert watch.has_held(56)
