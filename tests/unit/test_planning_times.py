"""Planning times by kind and size of request."""

from dataclasses import replace

import pytest

from perseus_dist.planner.worker.plan_request import PlanningRequest
from perseus_dist.planner.worker.planning_times import PlanningTimes
from perseus_dist.planning.frontier.slow_rank import SlowRank


def request(size: int, **other: bool) -> PlanningRequest:
    return PlanningRequest(
        request_id=1,
        job_id="job",
        revision=1,
        schedule_text=" ".join(["0F0"] * (size - 1)),
        contributions=(),
        blocking_power_w=(),
        tp_size=1,
        switch_latency_s=0.0,
        **other,  # type: ignore[arg-type]
    )


def test_the_nearest_size_counts_in_proportion_and_the_newest_time_of_it() -> None:
    times = PlanningTimes()
    assert times.expected_s(request(100)) is None
    times.add(request(100), 50.0)
    times.add(request(100), 10.0)
    times.add(request(300), 90.0)
    assert times.expected_s(request(100)) == 10.0
    assert times.expected_s(request(160)) == pytest.approx(16.0)
    assert times.expected_s(request(200)) == pytest.approx(60.0)  # 1.5 times smaller, and not 2 times larger
    assert times.expected_s(request(49)) is None
    assert times.expected_s(request(601)) is None


def test_first_plans_and_those_of_slow_ranks_take_times_of_their_own() -> None:
    times = PlanningTimes()
    times.add(request(100), 50.0)
    first = request(100, is_first=True)
    slow = replace(request(100), slow_ranks=(SlowRank(pp_rank=0, factor=1.2),))
    assert times.expected_s(first) is times.expected_s(slow) is None
    times.add(first, 2.0)
    times.add(slow, 5.0)
    assert (times.expected_s(request(100)), times.expected_s(first), times.expected_s(slow)) == (50.0, 2.0, 5.0)


def test_old_times_of_many_sizes_are_forgotten() -> None:
    times = PlanningTimes()
    times.add(request(10_000), 1.0)
    for size in range(2, 302):
        times.add(request(size), 1.0)
    assert times.expected_s(request(10_000)) is None
    assert times.expected_s(request(301)) == 1.0
