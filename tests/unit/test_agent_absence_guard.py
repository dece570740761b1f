"""Which plans a rank gives up while its planner is away, and when."""

from collections.abc import Callable
from random import Random

import pytest

from perseus_dist.agent.following.absence_guard import AbsenceGuard
from perseus_dist.agent.following.plan_view import RELEASED, Row

MS = 1_000_000
AT_TARGET = Row(table_revision=1, clocks_mhz=(1200,), point=0, max_slowdown=1.0)


def drive(guard: AbsenceGuard, iterations: range, time_ms: Callable[[bool], float], row: Row = AT_TARGET) -> list[int]:
    """Iterations of so many milliseconds, which depend on whether they run at full clocks; those that did."""
    free = []
    for iteration in iterations:
        is_free = guard.is_free(iteration)
        guard.begin_iteration(RELEASED if is_free else row, 0)
        guard.end_iteration(iteration, round(time_ms(is_free) * MS))
        free += [iteration] * is_free
    return free


def test_a_plan_that_stays_on_time_is_kept_and_tried_now_and_then() -> None:
    guard = AbsenceGuard()
    assert drive(guard, range(100), lambda _: 100.0) == []  # with the planner: no word of ours
    guard.leave(99)
    assert drive(guard, range(100, 300), lambda _: 100.0) == [128, 129, 130, 192, 193, 194, 256, 257, 258]
    assert guard.verdict == ""


def test_iterations_that_become_longer_end_it_within_eight() -> None:
    guard = AbsenceGuard()
    drive(guard, range(20), lambda _: 100.0)
    guard.leave(19)
    drive(guard, range(20, 40), lambda _: 100.0)
    free = drive(guard, range(40, 60), lambda is_free: 101.0 if is_free else 104.0)
    assert 44 <= free[0] <= 48
    assert free == list(range(free[0], 60))
    assert guard.verdict == "iterations have become more than 2% longer"


@pytest.mark.parametrize(("is_waiting", "given_up"), [(True, 115), (False, 131)])
def test_a_straggler_that_is_over_ends_a_plan_that_waits_for_it_with_the_next_probe(
    is_waiting: bool,  # noqa: FBT001
    given_up: int,
) -> None:
    row = Row(point=3, max_slowdown=1.0, is_waiting=is_waiting)
    guard = AbsenceGuard()
    drive(guard, range(40), lambda _: 115.0, row)
    guard.leave(39)
    drive(guard, range(40, 100), lambda _: 115.0, row)  # probes find nothing: it is slow still
    assert guard.verdict == ""
    free = drive(guard, range(100, 140), lambda is_free: 100.0 if is_free else 115.0, row)
    assert free == list(range(given_up - 3, 140))
    assert guard.verdict == "iterations take 15.0% longer than the job's target allows"


@pytest.mark.parametrize(
    ("noise", "excess", "is_kept"), [(0.0, 0.004, True), (0.0, 0.006, False), (0.01, 0.0, True), (0.01, 0.05, False)]
)
def test_noise_decides_how_little_a_probe_tells(noise: float, excess: float, is_kept: bool) -> None:  # noqa: FBT001
    random = Random(13)
    row = Row(point=3, max_slowdown=1.0, is_waiting=True)
    guard = AbsenceGuard()

    def time_ms(is_free: bool) -> float:  # noqa: FBT001
        return random.gauss(100.0 if is_free else 100.0 * (1 + excess), 100.0 * noise)

    drive(guard, range(20), time_ms, row)
    guard.leave(19)
    drive(guard, range(20, 200), time_ms, row)
    assert (guard.verdict == "") == is_kept


@pytest.mark.parametrize(
    ("row", "is_kept"),
    [
        (Row(point=1, max_slowdown=1.2), True),
        (Row(point=1, max_slowdown=1.1), False),
        (Row(point=1, max_slowdown=1.0, deadline_s=0.12), True),
        (Row(point=1, max_slowdown=1.0, deadline_s=0.11), False),
        (Row(point=1), True),  # of a planner that does not say what is allowed
    ],
    ids=["slowdown", "less slowdown", "deadline", "earlier deadline", "unknown"],
)
def test_the_target_says_how_long_iterations_may_take(row: Row, is_kept: bool) -> None:  # noqa: FBT001
    guard = AbsenceGuard()
    drive(guard, range(20), lambda _: 120.0, row)
    guard.leave(19)
    drive(guard, range(20, 100), lambda is_free: 100.0 if is_free else 120.0, row)
    assert (guard.verdict == "") == is_kept


@pytest.mark.parametrize(
    ("full_ms", "planned_ms", "first_free"),
    [(104.5, 113.4, [67]), (104.5, 104.6, [67]), (101.0, 113.4, [])],
    ids=["others follow another plan", "others wait for this rank", "all are at full clocks"],
)
def test_a_rank_that_alone_is_cut_off_makes_no_others_late(
    full_ms: float, planned_ms: float, first_free: list[int]
) -> None:
    """Its plan is for a report that an operator withdraws, and the others are at their target of 1.1 in its probes."""
    row = Row(point=9, max_slowdown=1.2)
    guard = AbsenceGuard()
    drive(guard, range(10), lambda _: 100.0, RELEASED)
    drive(guard, range(10, 30), lambda _: planned_ms, row)
    guard.leave(29)
    free = drive(guard, range(30, 110), lambda is_free: full_ms if is_free else planned_ms, row)
    assert [iteration for iteration in free if iteration > 66][:1] == first_free
    verdict = "in a probe iterations are longer than they were at full clocks"
    assert guard.verdict == (verdict if first_free else "")


@pytest.mark.parametrize("first_shorter", range(70, 76))
def test_a_probe_that_has_become_due_in_its_midst_is_not_mixed_with_the_one_before(first_shorter: int) -> None:
    """Iterations are known to be shorter as the multiple of sixteen has begun, or just before or after."""
    row = Row(point=9, max_slowdown=1.2)
    guard = AbsenceGuard()
    drive(guard, range(30), lambda _: 120.0, row)
    guard.leave(29)
    drive(guard, range(30, first_shorter), lambda _: 120.0, row)
    drive(guard, range(first_shorter, 99), lambda is_free: 100.0 if is_free else 113.0, row)
    assert guard.verdict == "iterations have become more than 2% shorter"


def test_full_clocks_are_those_of_the_newest_probe() -> None:
    """A GPU has become slow since the one before: in a probe without the planner iterations are as they were then."""
    row = Row(point=9, max_slowdown=1.3)
    guard = AbsenceGuard()
    drive(guard, range(10), lambda _: 100.0, RELEASED)
    drive(guard, range(10, 40), lambda _: 125.0, row)
    drive(guard, range(40, 44), lambda _: 110.0, RELEASED)
    drive(guard, range(44, 60), lambda _: 125.0, row)
    guard.leave(59)
    drive(guard, range(60, 200), lambda is_free: 110.0 if is_free else 125.0, row)
    assert guard.verdict == ""


@pytest.mark.parametrize("seed", range(5))
def test_noise_is_no_other_plan(seed: int) -> None:
    random = Random(seed)
    row = Row(point=9, max_slowdown=1.2)
    guard = AbsenceGuard()
    drive(guard, range(10), lambda _: random.gauss(100.0, 0.8), RELEASED)
    drive(guard, range(10, 30), lambda _: random.gauss(119.0, 0.8), row)
    guard.leave(29)
    drive(guard, range(30, 1000), lambda is_free: random.gauss(100.0 if is_free else 119.0, 0.8), row)
    assert guard.verdict == ""


def test_what_runs_at_full_clocks_first_is_no_measure_of_them() -> None:
    row = Row(point=9, max_slowdown=1.2)
    guard = AbsenceGuard()
    for begin in range(0, 40, 10):  # probes of two iterations, of which clocks are on their way in the first
        drive(guard, range(begin, begin + 8), lambda _: 113.4, row)
        drive(guard, range(begin + 8, begin + 9), lambda _: 90.0, RELEASED)
        drive(guard, range(begin + 9, begin + 10), lambda _: 104.5, RELEASED)
    drive(guard, range(40, 60), lambda _: 113.4, row)
    guard.leave(59)
    drive(guard, range(60, 200), lambda is_free: 104.5 if is_free else 113.4, row)
    assert guard.verdict == ""


@pytest.mark.parametrize(
    ("full_ms", "planned_ms", "verdict"),
    [(100.0, 105.0, "iterations have become more than 2% shorter"), (100.0, 119.0, "")],
    ids=["others follow another plan", "a straggler is over"],
)
def test_iterations_that_become_shorter_are_looked_into_soon(full_ms: float, planned_ms: float, verdict: str) -> None:
    row = Row(point=9, max_slowdown=1.2)
    guard = AbsenceGuard()
    drive(guard, range(20), lambda _: 125.0, row)
    guard.leave(19)
    drive(guard, range(20, 66), lambda is_free: 110.0 if is_free else 125.0, row)
    drive(guard, range(66, 70), lambda _: 125.0, row)
    assert guard.verdict == ""
    free = drive(guard, range(70, 126), lambda is_free: full_ms if is_free else planned_ms, row)
    assert free[:3] == [80, 81, 82], "a third of the usual time"
    assert guard.verdict == verdict
    if not verdict:  # what they take now is the measure from then on
        assert free == [80, 81, 82]
        drive(guard, range(126, 142), lambda is_free: full_ms if is_free else 1.03 * planned_ms, row)
        assert guard.verdict == "iterations have become more than 2% longer"


def test_the_planner_comes_back_and_the_plan_with_it() -> None:
    guard = AbsenceGuard()
    drive(guard, range(20), lambda _: 100.0)
    guard.leave(19)
    drive(guard, range(20, 40), lambda _: 110.0)
    assert guard.verdict
    guard.come_back(40)
    assert guard.verdict == ""
    assert drive(guard, range(40, 200), lambda _: 110.0) == [40]  # that one has begun
    guard.leave(199)  # again, and said twice
    drive(guard, range(200, 205), lambda _: 110.0)
    guard.leave(204)
    assert drive(guard, range(205, 255), lambda _: 110.0) == []
    assert drive(guard, range(255, 270), lambda _: 130.0)[-1] == 269


def test_a_plan_that_the_planner_left_at_once_is_compared_with_its_first_iterations() -> None:
    guard = AbsenceGuard()
    drive(guard, range(3), lambda _: 100.0)
    guard.leave(2)
    drive(guard, range(3, 30), lambda _: 100.0)
    assert guard.verdict == ""
    drive(guard, range(30, 40), lambda _: 105.0)
    assert guard.verdict


def test_a_slow_probe_and_an_iteration_not_seen_whole_are_no_evidence() -> None:
    guard = AbsenceGuard()
    drive(guard, range(20), lambda _: 100.0)
    guard.leave(19)
    for iteration in range(20, 400):
        is_free = guard.is_free(iteration)
        guard.begin_iteration(RELEASED if is_free else AT_TARGET, 0)
        if iteration % 4:  # of every fourth, the end was not seen
            guard.end_iteration(iteration, (140 if is_free else 100) * MS)
    assert guard.verdict == ""


def test_a_planner_that_comes_back_within_an_iteration_judges_from_then_on() -> None:
    rng = Random(1)
    judged = 0
    for _ in range(300):
        guard = AbsenceGuard()
        begun, left, back = 0, rng.randrange(2, 60), rng.randrange(60, 200)
        slow = rng.randrange(left, 200)
        for iteration in range(back + 20):
            is_free = guard.is_free(iteration)
            assert not (is_free and iteration > back), "the planner is there"
            guard.begin_iteration(RELEASED if is_free else AT_TARGET, begun)
            begun += (100 if iteration < slow or is_free else 120) * MS
            if iteration == left:
                guard.leave(iteration)
            if iteration == back:
                judged += guard.verdict != ""
                guard.come_back(iteration)
            guard.end_iteration(iteration, begun)
        assert guard.verdict == ""
    assert 50 < judged < 250
