"""After a plan was given up, or a sweep beside one has ended: what is planned with, measured or tried again."""

from dataclasses import replace

import pytest
from fleets import fleet_enforcing
from test_lifecycle_transfers_bounds import snapshot
from test_lifecycle_under_plan_bounds import NOW_S, enforced, is_asked
from test_planner_metrics import verdict

from perseus_dist.messages.terms import NO_POINT
from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.job.state.profiling import TakenSamples
from perseus_dist.planner.lifecycle.advance import advance
from perseus_dist.planner.lifecycle.sweeping.again import measure_again


def released(*, dp: int = 1, num_falls: int = 1, held: int = 4) -> Job:
    """The plan was slow, and so many iterations have been held since."""
    job = enforced(dp=dp)
    assert job.switch is not None
    guard = job.enforcement.guard
    for _ in range(num_falls):
        guard.fall_from_plan(job.progress.iteration)
    job.phase = Phase.RELEASED
    job.enforcement.switch = replace(job.switch, points=(NO_POINT,) * dp)
    guard.held_until = job.progress.iteration + 4
    job.progress.iteration += held
    return job


@pytest.mark.parametrize(("held", "is_over"), [(3, False), (4, True)])
def test_a_plan_that_was_slow_is_measured_again_once_the_hold_is_over(held: int, *, is_over: bool) -> None:
    job = released(held=held)
    advance(job, NOW_S)
    assert job.phase is (Phase.REPROFILING if is_over else Phase.RELEASED)
    if is_over:
        assert job.reason == "the plan was slow: sweeping all ranks again"
        assert job.profiling.sweep is not None
        assert job.profiling.sweep.ordered.ranks == (0, 1)


def test_a_plan_that_was_given_up_waits_for_ranks_that_are_away() -> None:
    job = released()
    job.members.rank_of_stream.popitem()
    assert advance(job, NOW_S) == []
    assert job.phase is Phase.RELEASED


@pytest.mark.parametrize(("dp", "is_found", "is_swept"), [(2, True, False), (2, False, True), (1, True, True)])
def test_a_straggler_beside_replicas_explains_why_a_plan_was_slow(dp: int, *, is_found: bool, is_swept: bool) -> None:
    job = released(dp=dp)
    if is_found:
        job.detection.verdicts = (verdict(0, 1.2, is_acted_upon=False),)
    advance(job, NOW_S)
    assert job.phase is (Phase.REPROFILING if is_swept else Phase.ENFORCING)
    if not is_swept:
        assert job.reason == "the plan is tried again"
        assert job.switch is not None
        assert NO_POINT not in job.switch.points


def test_a_plan_that_was_slow_now_and_then_is_tried_again() -> None:
    job = released()
    job.enforcement.guard.kept_share = 0.5
    advance(job, NOW_S)
    assert (job.phase, job.reason) == (Phase.ENFORCING, "the plan is tried again")


def test_a_profile_is_to_blame_where_full_clocks_are_faster_than_it_says_and_its_transfers_are_not_over() -> None:
    for known_ms, is_swept in (((), True), ((20.0,), False)):
        job = released()
        assert job.plan is not None
        job.enforcement.guard.kept_share = 0.5
        job.enforcement.guard.guard.reference_s = 0.8
        job.plan = replace(job.plan, snapshots=tuple(map(snapshot, known_ms)))
        advance(job, NOW_S)
        assert job.phase is (Phase.REPROFILING if is_swept else Phase.ENFORCING)


def test_a_plan_that_cannot_be_measured_again_is_tried_again() -> None:
    job = released()
    for state in job.members.ranks.values():
        state.control = "observe"
    advance(job, NOW_S)
    assert (job.phase, job.reason) == (Phase.ENFORCING, "the plan is tried again")


@pytest.mark.parametrize(("held", "snapshots_ms"), [(0, (20.0,)), (4, (20.0,))])
def test_new_transfers_are_planned_with_whether_the_hold_is_over_or_not(
    held: int, snapshots_ms: tuple[float, ...]
) -> None:
    job = released(held=held)
    job.enforcement.guard.guard.reference_s = 1.0
    job.measured.snapshots.extend(map(snapshot, snapshots_ms))
    assert is_asked(advance(job, NOW_S))
    assert job.phase is Phase.PLANNING


@pytest.mark.parametrize(("reference_s", "is_planned"), [(0.8, True), (1.0, False)])
def test_transfers_that_are_over_are_planned_without_at_once_where_the_profile_is_too_slow(
    reference_s: float, *, is_planned: bool
) -> None:
    job = released()
    assert job.plan is not None
    job.enforcement.guard.guard.reference_s = reference_s
    job.measured.snapshots.extend([snapshot(0.0), snapshot(0.0)])
    job.plan = replace(job.plan, snapshots=(snapshot(0.0), snapshot(20.0)))
    job.planning.transfers_at_s = NOW_S
    assert is_asked(advance(job, NOW_S)) == is_planned


@pytest.mark.parametrize(
    ("is_by_phase", "num_falls", "keeps"), [(True, 2, True), (True, 1, False), (False, 2, False), (True, 3, True)]
)
def test_clocks_that_change_by_time_and_were_late_twice_are_planned_once_for_each_rank(
    num_falls: int, *, is_by_phase: bool, keeps: bool
) -> None:
    job = released(num_falls=num_falls)
    assert job.plan is not None
    job.plan = replace(job.plan, summary=replace(job.plan.summary, is_by_phase=is_by_phase))
    assert is_asked(advance(job, NOW_S)) == keeps
    assert job.planning.keeps_to_ranks == keeps
    if keeps:
        assert job.reason == "clocks that change by time were late twice: planning one clock for each rank"


def test_a_rank_that_was_slower_under_the_plan_than_its_replicas_is_planned_with() -> None:
    job = released(dp=2)
    job.enforcement.guard.slower_then = {1: 0.02}
    assert is_asked(advance(job, NOW_S))
    assert [(slow.pp_rank, slow.factor) for slow in job.planning.slightly_slow] == [(1, 1.02)]
    job = released(dp=2)
    job.enforcement.guard.slower_then = {1: 0.02, 3: 0.02}
    advance(job, NOW_S)
    assert job.phase is Phase.REPROFILING, "the profile is to blame"


# ---- a sweep that has ended ------------------------------------------------------------------------------------------


def swept_again() -> Job:
    """A sweep beside a plan, to which all samples have come."""
    fleet = fleet_enforcing()
    measure_again(fleet.job, (0, 1), fleet.now_s, "for a test")
    assert fleet.job.profiling.sweep is not None
    return fleet.job


def test_a_sweep_that_ends_without_a_choice_of_clocks_leaves_the_plan() -> None:
    job = swept_again()
    job.profiling.sweep = None
    job.profiling.samples.clear()
    advance(job, NOW_S)
    assert job.phase is Phase.ENFORCING
    assert job.reason.startswith("the plan in force stays")


@pytest.mark.parametrize(("times_s", "held_back_s"), [((), 0.0), ((2.0,), 2.0)])
def test_where_no_rank_could_measure_blocking_power_what_iterations_took_is_noted(
    times_s: tuple[float, ...], held_back_s: float
) -> None:
    job = swept_again()
    job.profiling.sweep = None
    (of_series,) = job.profiling.samples.values()
    told = replace(of_series[0][0].samples, blocking_power_w=0.0, samples=())
    for of_rank in of_series.values():
        of_rank[:] = [TakenSamples(one.clock_mhz, replace(one.samples, blocking_power_w=0.0)) for one in of_rank]
        of_rank.append(TakenSamples(1300, told))
    job.progress.recent_times_s.clear()
    job.progress.recent_times_s.extend(times_s)
    job.measured.baseline = None
    job.progress.pipelines[0].latest = None
    job.measured.baseline_iterations.clear()
    advance(job, NOW_S)
    assert job.phase is Phase.PLANNING
    assert job.profiling.held_back_s == held_back_s
