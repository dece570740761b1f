"""The phases under a plan at their limits: what makes it be planned or measured again, and what waits."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from fleets import fleet_enforcing, fleet_planning
from test_lifecycle_baseline_bounds import iteration
from test_lifecycle_profile_check_bounds import job_of_profile, job_with_csv, rows_of_step
from test_lifecycle_transfers_bounds import job_with, snapshot
from test_planner_first_plan import under_first_plan

from perseus_dist.messages.terms import NO_POINT
from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.job.saving.full_clocks import FullClocks
from perseus_dist.planner.lifecycle.advance import advance
from perseus_dist.planner.lifecycle.events import Effect, Log, StartPlanning

NOW_S = 1000.0


def is_asked(effects: Sequence[Effect]) -> bool:
    return any(isinstance(effect, StartPlanning) for effect in effects)


def said(effects: Sequence[Effect]) -> list[str]:
    return [effect.sentence for effect in effects if isinstance(effect, Log)]


def enforced(*, dp: int = 1) -> Job:
    return fleet_enforcing(dp=dp).job


# ---- the plan in force -----------------------------------------------------------------------------------------------


def test_a_plan_that_nobody_follows_yet_comes_into_force() -> None:
    job = enforced()
    job.enforcement.switch = None
    reason = job.reason
    advance(job, NOW_S)
    assert job.switch is not None
    assert job.switch.points != (NO_POINT,)
    assert job.switch.reason.startswith(reason)


@pytest.mark.parametrize(("is_attached", "is_decided"), [(True, True), (False, False)])
def test_a_switch_for_later_than_training_is_decided_anew_by_force(*, is_attached: bool, is_decided: bool) -> None:
    job = enforced()
    assert job.switch is not None
    job.enforcement.switch = replace(job.switch, effective_iteration=10_000)
    if not is_attached:
        job.members.rank_of_stream.clear()
    advance(job, NOW_S)
    assert (job.switch.effective_iteration < 100) == is_decided


@pytest.mark.parametrize(
    ("at_s", "pending", "is_due"),
    [(NOW_S, None, True), (NOW_S + 0.1, None, False), (NOW_S - 5, None, True), (NOW_S, 5, False), (None, None, False)],
)
def test_the_worker_is_asked_again_at_the_time_that_was_set_unless_it_is_at_it(
    at_s: float | None, pending: int | None, *, is_due: bool
) -> None:
    job = enforced()
    job.planning.again_at_s, job.planning.pending = at_s, pending
    effects = advance(job, NOW_S)
    assert is_asked(effects) == is_due
    assert (job.reason == "planning again") == is_due


def test_the_worker_is_asked_again_though_it_is_at_the_whole_frontier() -> None:
    job = under_first_plan().job
    job.planning.again_at_s = NOW_S
    assert is_asked(advance(job, NOW_S))
    assert job.reason == "planning again"


def test_while_the_worker_is_to_be_asked_again_nothing_else_is_done() -> None:
    job = job_of_profile(1.2)
    job.planning.again_at_s = NOW_S + 1
    assert advance(job, NOW_S) == []
    assert job.phase is Phase.ENFORCING


def test_a_request_that_does_not_know_new_transfers_is_begun_anew_and_counts_as_one_for_them() -> None:
    job = fleet_planning().job
    job.measured.snapshots.append(snapshot(20.0))
    assert is_asked(advance(job, NOW_S))
    assert job.reason.endswith("by the plan that is being made: beginning anew")
    assert job.planning.is_restarted
    assert job.planning.moved_at_s == NOW_S
    job.measured.snapshots.append(snapshot(40.0))
    assert advance(job, NOW_S) == []


# ---- transfers and the profile ---------------------------------------------------------------------------------------


def test_new_transfers_are_planned_with_unless_they_were_measured_long_ago() -> None:
    for ago, is_planned in ((16, True), (17, False)):
        job = job_with(20.0, planned_ms=(10.0,))
        job.measured.snapshot_iteration = job.progress.iteration - ago
        effects = advance(job, NOW_S)
        assert is_asked(effects) == is_planned
        assert not any(sentence.endswith("as before") for sentence in said(effects)), "it is not worth a word"
        assert job.phase is (Phase.PLANNING if is_planned else Phase.ENFORCING)


def test_iterations_that_overlap_are_planned_for_once_full_clocks_show_it() -> None:
    for framework, is_planned in (("torch.distributed.pipelining", True), ("deepspeed", False)):
        job = enforced()
        known = job.members.fingerprints[0]
        workload = replace(known.fingerprint.workload, framework=framework)
        job.members.fingerprints[0] = replace(known, fingerprint=replace(known.fingerprint, workload=workload))
        assert job.measured.baseline is not None
        job.measured.baseline = replace(job.measured.baseline, time_s=0.9)
        assert is_asked(advance(job, NOW_S)) == is_planned
        assert job.reason.endswith("planning for iterations that overlap") == is_planned


@pytest.mark.parametrize(("known_ms", "is_swept"), [((), True), ((20.0,), False), ((20.0, 0.0), True)])
def test_a_doubtful_profile_is_measured_again_unless_transfers_that_the_plan_knows_may_be_over(
    known_ms: tuple[float, ...], *, is_swept: bool
) -> None:
    job = job_of_profile(1.2)
    assert job.plan is not None
    job.plan = replace(job.plan, snapshots=tuple(map(snapshot, known_ms)))
    advance(job, NOW_S)
    assert job.phase is (Phase.REPROFILING if is_swept else Phase.ENFORCING)
    if is_swept:
        assert job.reason.endswith("measured while GPUs were slow: sweeping all ranks again")
        assert job.profiling.sweep is not None
        assert job.profiling.sweep.ordered.ranks == (0, 1)


def test_transfers_that_may_be_over_are_no_trouble_where_nothing_speaks_against_the_profile() -> None:
    job = job_with(planned_ms=(20.0,))
    job.measured.saving.begin(FullClocks(time_s=1.0, energy_j=100.0, num_iterations=100, weight=16.0))
    advance(job, NOW_S)
    assert job.phase is Phase.ENFORCING


def test_transfers_are_planned_with_at_once_where_the_profile_is_doubtful() -> None:
    for modelled_s, is_planned in ((1.2, True), (1.0, False)):
        job = job_of_profile(modelled_s)
        job.measured.snapshots.append(snapshot(20.0))
        job.measured.snapshot_iteration = job.progress.iteration
        job.planning.moved_at_s = job.planning.transfers_at_s = NOW_S
        assert is_asked(advance(job, NOW_S)) == is_planned


@pytest.mark.parametrize("can_set", [True, False])
def test_a_step_in_the_sweep_releases_clocks_while_it_is_measured_again_if_it_can_be(*, can_set: bool) -> None:
    job = job_with_csv(*rows_of_step(0.2))
    if not can_set:
        for state in job.members.ranks.values():
            state.control = "observe"
    advance(job, NOW_S)
    assert job.phase is (Phase.REPROFILING if can_set else Phase.ENFORCING)
    assert job.switch is not None
    assert (job.switch.points == (NO_POINT,)) == can_set
    assert (job.profiling.sweep is not None) == can_set


@pytest.mark.parametrize(
    ("shares", "excess", "ranks"),
    [
        ({0: 0.05}, "pp_rank 0 take up to 5.0 % more", (0,)),
        ({1: -0.05}, "pp_rank 1 take up to 5.0 % less", (1,)),
        ({0: 0.05, 1: -0.75}, "pp_rank 0, 1 take up to 75.0 % less", (0, 1)),
        ({0: 0.75, 1: -0.05}, "pp_rank 0, 1 take up to 75.0 % more", (0, 1)),
    ],
)
def test_a_stage_whose_computations_are_off_the_profile_in_probes_is_swept_again(
    shares: dict[int, float], excess: str, ranks: tuple[int, ...]
) -> None:
    job = enforced()
    job.enforcement.guard.misstated.update(shares)
    advance(job, NOW_S)
    assert job.phase is Phase.REPROFILING
    assert job.reason == f"computations of {excess} at full clocks than by the profile: sweeping it again"
    assert job.profiling.num_misstated_sweeps == 1
    assert job.profiling.sweep is not None
    assert job.profiling.sweep.ordered.ranks == ranks


def test_drift_is_answered_where_nothing_else_explains_it() -> None:
    job = enforced()
    job.enforcement.drifts.update({0: 0.2, 1: 0.2})
    job.enforcement.drift_since_s = NOW_S
    advance(job, NOW_S)
    assert job.reason.startswith("times of pp_rank 0, 1 have left the profile by 20 %")


def test_blocking_power_is_measured_once_iterations_have_become_faster() -> None:
    for time_s, is_measured in ((0.5, True), (1.0, False)):
        job = enforced()
        job.profiling.held_back_s = 1.0
        job.measured.probed.append(iteration(1, time_s))
        advance(job, NOW_S)
        assert job.phase is (Phase.REPROFILING if is_measured else Phase.ENFORCING)
        assert job.reason.endswith("measuring blocking power once more") == is_measured


def test_blocking_power_is_not_measured_beside_another_sweep_nor_the_frontier_asked_for() -> None:
    job = under_first_plan().job
    job.planning.pending = None
    job.profiling.held_back_s = 1.0
    job.measured.probed.append(iteration(1, 0.5))
    job.enforcement.guard.misstated[0] = 0.05
    assert not is_asked(advance(job, NOW_S))
    assert job.reason.endswith("sweeping it again")
    assert len(job.profiling.sweeps) == 2


def test_the_whole_frontier_is_asked_for_under_a_first_plan() -> None:
    job = under_first_plan().job
    job.planning.pending = None
    assert is_asked(advance(job, NOW_S))
    assert job.phase is Phase.ENFORCING


# ---- slightly slow ranks ---------------------------------------------------------------------------------------------


def test_a_plan_that_is_late_with_a_slightly_slow_rank_is_made_again_with_it() -> None:
    fleet = fleet_enforcing(dp=2)
    fleet.planned_s, fleet.time_ratios = 1.01, {1: 1.02}
    fleet.iterate(20)
    request = fleet.requests[-1]
    assert [(slow.pp_rank, round(slow.factor, 3)) for slow in request.slightly_slow] == [(1, 1.02)]
    assert any(
        "iterations take longer than the target allows: planning with a rank of pp_rank 1 1.020 times as slow" in one
        for one in fleet.log
    )
