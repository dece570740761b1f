"""Run times at their limits: of whom and for how long they are kept, and which transfers between stages they show."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from fleets import fleet_enforcing, fleet_profiling
from test_lifecycle_transfers_bounds import job_with
from test_planner_lifecycle import Fleet

from perseus_dist.messages.from_agent import RunTimes
from perseus_dist.planner.job.measured_transfers import slowest
from perseus_dist.planner.job.state.measured import NUM_SNAPSHOTS
from perseus_dist.planner.lifecycle.transfers import record_run_times

MS = 1_000_000  # ns


def run_times(
    fleet: Fleet,
    links_ms: tuple[float, float] = (0.0, 0.0),
    *,
    iteration: int = 7,
    ranks: Sequence[int] = (0, 1),
    dp_rank: int = 0,
    late_ms: int = 0,
    start_ms: int = 0,
) -> None:
    """An iteration of a pipeline: forwards take 10 ms, backwards 20 ms, and the two sends to the second stage so long.

    They block their sender. The first stage's last computation begins later by ``late_ms``, and their clock says
    ``start_ms`` as the iteration begins.
    """
    first, second = map(round, links_ms)
    turn = 40 + first + second  # the second stage's second forward begins
    begins_1 = (10 + first, 20 + first, turn, turn + 10)
    begins_0 = (0, 10 + first, turn, turn + 30 + late_ms)
    ends_0 = [begin + length for begin, length in zip(begins_0, (10, 10, 20, 20), strict=True)]
    ends_1 = [begin + length for begin, length in zip(begins_1, (10, 20, 10, 20), strict=True)]
    for rank in ranks:
        begins, ends = ((begins_0, ends_0), (begins_1, ends_1))[rank]
        told = RunTimes(
            iteration=iteration,
            begins_ns=tuple(MS * (start_ms + one) for one in begins),
            ends_ns=tuple(MS * (start_ms + one) for one in ends),
            host_clock="one host",
        )
        record_run_times(fleet.job, fleet.job.members.ranks[2 * dp_rank + rank], told)


def test_one_gpu_of_a_tensor_parallel_group_speaks_for_all() -> None:
    fleet = Fleet()
    fleet.attach_all()
    state = fleet.job.members.ranks[0]
    told = RunTimes(iteration=1, begins_ns=(1, 2, 3, 4), ends_ns=(2, 3, 4, 5))
    record_run_times(fleet.job, replace(state, rank=replace(state.rank, tp_rank=1)), told)
    assert not fleet.job.measured.run_times
    record_run_times(fleet.job, state, told)
    assert fleet.job.measured.run_times == {1: {(0, 0): told}}


def test_times_say_nothing_before_the_schedule_is_known() -> None:
    fleet = Fleet()
    fleet.attach(0)
    record_run_times(fleet.job, fleet.job.members.ranks[0], RunTimes(iteration=1, begins_ns=(), ends_ns=()))
    assert not fleet.job.measured.run_times


@pytest.mark.parametrize(("is_switched", "is_planned", "is_shown"), [(0, 0, 1), (0, 1, 1), (1, 1, 1), (1, 0, 0)])
def test_iterations_are_shown_before_a_plan_and_under_it_but_not_those_of_probes(
    is_switched: int, is_planned: int, is_shown: int
) -> None:
    fleet = fleet_enforcing() if is_switched else fleet_profiling()
    clocks_mhz = (900,) * 4 if is_planned else ()
    for rank in (0, 1):
        told = RunTimes(iteration=7, begins_ns=(1, 2, 3, 4), ends_ns=(2, 3, 4, 5), clocks_mhz=clocks_mhz)
        record_run_times(fleet.job, fleet.job.members.ranks[rank], told)
    assert len(fleet.job.measured.timelines.whole) == is_shown
    assert len(fleet.job.measured.snapshots) == (0 if is_planned else 1)


@pytest.mark.parametrize(("num_later", "is_kept"), [(3, True), (4, False)])
def test_an_iteration_waits_for_ranks_while_three_later_ones_are_told_of(num_later: int, *, is_kept: bool) -> None:
    fleet = fleet_enforcing()
    for iteration in range(7, 8 + num_later):
        run_times(fleet, iteration=iteration, ranks=(0,))
    run_times(fleet, iteration=7, ranks=(1,))
    assert len(fleet.job.measured.snapshots) == int(is_kept)


def test_transfers_are_measured_once_all_pipelines_have_told_of_an_iteration() -> None:
    fleet = fleet_enforcing(dp=2)
    run_times(fleet, (5.0, 5.0))
    assert not fleet.job.measured.snapshots
    run_times(fleet, (8.0, 8.0), dp_rank=1)
    (found,) = fleet.job.measured.snapshots
    assert [slowest([transfers])[0, "SEND_F"] for transfers in found] == pytest.approx([0.005, 0.008])
    assert fleet.job.measured.snapshot_iteration == 7
    assert not fleet.job.measured.run_times


@pytest.mark.parametrize("varying", [0, 1])
@pytest.mark.parametrize(("late_ms", "is_told"), [(0, True), (9, False)])
def test_what_varies_is_told_of_the_pipeline_that_lasts_longest(varying: int, late_ms: int, *, is_told: bool) -> None:
    """From the begin of its first stage's first computation to the end of the last."""
    fleet = fleet_enforcing(dp=2)
    run_times(fleet, (0.0, 20.0), dp_rank=varying)  # lasts 110 ms
    run_times(fleet, (9.0, 9.0), dp_rank=1 - varying, late_ms=late_ms, start_ms=10**6)  # 108 ms, or more
    assert (fleet.job.measured.varying_transfers_s > 0) == is_told


@pytest.mark.parametrize(
    ("links_ms", "known_ms", "num_agreeing"),
    [
        ((9.0, 0.0), (0.0,), 4),  # back, though plans did without it
        ((11.4, 0.0), (0.0,), 4),  # it was about as slow
        ((11.6, 0.0), (0.0,), 2),  # or slower, which says nothing of this
        ((0.0,), (0.0,), 2),  # for the first time
        ((9.0, 0.0), (9.0,), 2),  # the plan knows it
        ((9.0, 0.0), (6.6,), 2),  # or nearly so
        ((0.0, 9.0), (0.0,), 2),  # it is as it was just before
        ((9.0, 6.6), (0.0,), 2),  # or nearly so
        ((), (0.0,), 2),  # nothing was measured before
    ],
)
def test_where_a_link_is_slow_again_that_plans_did_without_more_snapshots_must_agree(
    links_ms: tuple[float, ...], known_ms: tuple[float, ...], num_agreeing: int
) -> None:
    fleet = fleet_enforcing()
    fleet.job = job_with(*links_ms, planned_ms=known_ms)
    run_times(fleet, (9.0, 9.0))
    assert fleet.job.measured.num_agreeing == num_agreeing
    assert len(fleet.job.measured.snapshots) == len(links_ms) + 1


@pytest.mark.parametrize(("before", "after"), [(2, 4), (16, 32), (NUM_SNAPSHOTS, NUM_SNAPSHOTS), (20, NUM_SNAPSHOTS)])
def test_each_time_twice_as_many_must_agree_up_to_all_that_are_kept(before: int, after: int) -> None:
    fleet = fleet_enforcing()
    fleet.job = job_with(9.0, 0.0, planned_ms=(0.0,))
    fleet.job.measured.num_agreeing = before
    run_times(fleet, (9.0, 9.0))
    assert fleet.job.measured.num_agreeing == after


@pytest.mark.parametrize("missing", ["plan", "reference"])
def test_without_a_plan_or_a_reference_no_more_snapshots_must_agree(missing: str) -> None:
    fleet = fleet_enforcing()
    fleet.job = job_with(9.0, 0.0, planned_ms=(0.0,))
    if missing == "plan":
        fleet.job.plan = None
    else:
        fleet.job.enforcement.guard.guard.reference_s = None
    run_times(fleet, (9.0, 9.0))
    assert fleet.job.measured.num_agreeing == 2
