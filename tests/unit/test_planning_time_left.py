"""How long planning still takes, by its progress."""

import pytest

from perseus_dist.planner.worker.planning_time_left import PlanningTimeLeft
from perseus_dist.planning.frontier.frontier import REALISING


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.told_s: list[float] = []

    def of(self, num_frontiers: int) -> PlanningTimeLeft:
        left = PlanningTimeLeft(num_frontiers, self.told_s.append, now_s=lambda: self.now_s)
        left.begin_frontier()
        return left

    def after(self, seconds: float) -> None:
        self.now_s += seconds


def test_nothing_is_told_before_plans_are_realised_and_shortly_after() -> None:
    clock = Clock()
    left = clock.of(1)
    for phase, share, seconds in (("exact frontier", 0.9, 2.9), (REALISING, 0.0, 0.4), (REALISING, 0.5, 2.0)):
        assert left(phase, share)
        clock.after(seconds)
    assert left(REALISING, 0.01)
    assert clock.told_s == []


def test_what_is_left_of_a_frontier_takes_as_long_as_what_is_done() -> None:
    clock = Clock()
    left = clock.of(1)
    left("frontier", 0.0)
    clock.after(7.0)
    left(REALISING, 0.0)
    for share in (0.1, 0.2, 0.5, 1.0):
        clock.after(3.0)
        left(REALISING, share)
    assert clock.told_s == pytest.approx([27.0, 24.0, 9.0, 0.0])


def test_frontiers_that_follow_take_as_long_as_the_one_before_them() -> None:
    clock = Clock()
    left = clock.of(3)
    clock.after(2.0)  # the frontier itself
    left(REALISING, 0.0)
    clock.after(4.0)
    left(REALISING, 0.5)
    assert clock.told_s == [4.0 + 2 * 10.0]
    clock.after(4.0)
    left.begin_frontier()
    clock.after(2.0)
    left(REALISING, 0.0)
    clock.after(4.0)
    left(REALISING, 0.5)
    left.begin_frontier()
    left("plans by rank", 0.0)
    clock.after(4.0)
    left("plans by rank", 0.8)
    assert clock.told_s[1:] == pytest.approx([4.0 + 10.0, 1.0])


def test_a_large_frontier_says_what_is_left_while_it_is_traced() -> None:
    clock = Clock()
    left = clock.of(2)
    left("frontier", 0.0)
    clock.after(4.0)
    left("frontier", 0.1)  # 36 s of tracing, as long to realise, and another frontier like it
    assert clock.told_s == pytest.approx([36.0 + 40.0 + 80.0])
    clock.after(36.0)
    left("frontier", 1.0)
    left(REALISING, 0.0)
    clock.after(20.0)
    left(REALISING, 1.0)
    assert clock.told_s[1:] == pytest.approx([40.0 + 80.0, 60.0])
    left.begin_frontier()
    left("frontier", 0.0)
    clock.after(10.0)
    left("frontier", 0.5)
    assert clock.told_s[3:] == pytest.approx([10.0 + 10.0]), "half as long as tracing, as the frontier before"
