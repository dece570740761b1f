"""What a rank that attaches gets at its limits: tables and switches that others have had, or another plan."""

from dataclasses import replace

import pytest
from fleets import fleet_enforcing, fleet_profiling
from test_planner_lifecycle import SCHEDULE, Fleet, _gpu, _rank, of_type, summary
from test_planner_runs import GPU, LONGER, WORKLOAD, Runs

from perseus_dist.messages.from_agent import Attach
from perseus_dist.messages.from_planner import Release, Sweep, Switch
from perseus_dist.messages.terms import NO_POINT
from perseus_dist.planner.job.facts.plans import StragglerPlanReady
from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.job.state.planning import JobPlan
from perseus_dist.planner.lifecycle.events import Log, RankAttached, Send, SendTable
from perseus_dist.planner.lifecycle.registration import attach_rank


def plan_of(job: Job) -> JobPlan:
    assert job.plan is not None
    return job.plan


def back(fleet: Fleet, rank: int = 1, **changes: object) -> list[object]:
    """A rank that comes back with this, and all that it is sent behind the first message."""
    fleet.detach(rank)
    stream = fleet.attach(rank, **changes)  # type: ignore[arg-type]
    return list(fleet.inbox[stream][1:])


def own_plan(job: Job, dp_rank: int, *, is_by_phase: bool = False) -> StragglerPlanReady:
    """In force for a pipeline."""
    assert job.switch is not None
    own = StragglerPlanReady(
        dp_rank=dp_rank,
        revision=9,
        base_revision=1,
        slow_ranks=(),
        summary=replace(summary(), is_by_phase=is_by_phase),
        tables=(b"own 0", b"own 1"),
    )
    job.detection.straggler_plans[dp_rank] = own
    revisions = tuple(9 if number == dp_rank else 0 for number in range(len(job.switch.points)))
    job.enforcement.switch = replace(job.switch, own_revisions=revisions)
    return own


@pytest.mark.parametrize(("revision", "is_sent"), [(0, True), (1, False)])
def test_a_rank_gets_the_table_that_it_lacks_and_the_switch_in_any_case(revision: int, *, is_sent: bool) -> None:
    got = back(fleet_enforcing(), table_revision=revision)
    assert (b"table 1" in got) == is_sent
    assert len(of_type(got, Switch)) == 1


def test_a_rank_of_a_pipeline_with_its_own_plan_gets_that_too() -> None:
    fleet = fleet_enforcing(dp=2)
    own_plan(fleet.job, 1)
    got = back(fleet, 3, table_revision=0)
    assert got[:2] == [b"table 1", b"own 1"]
    assert isinstance(got[2], Switch)
    assert got[2].table_revision == 9
    assert not {b"own 0", b"own 1"}.intersection(one for one in back(fleet, 1) if isinstance(one, bytes))


@pytest.mark.parametrize(
    ("pending", "is_first", "is_asked"), [(None, False, True), (5, False, False), (5, True, True), (None, True, True)]
)
def test_a_rank_that_holds_a_later_table_is_released_and_another_plan_is_asked_for_unless_one_is_being_made(
    pending: int | None, *, is_first: bool, is_asked: bool
) -> None:
    fleet = fleet_enforcing()
    job = fleet.job
    job.plan = replace(plan_of(job), is_first=is_first)
    job.planning.pending = pending
    num_requests = len(fleet.requests)
    got = back(fleet, table_revision=2)
    assert got[0] == Release(reason="the planner does not know table 2; another plan follows")
    assert job.revisions.held_table == 2
    assert job.revisions.held_switch == 2 << 32
    assert (len(fleet.requests) > num_requests) == is_asked
    if is_asked:
        assert fleet.requests[-1].revision == 3


def test_a_rank_that_holds_a_table_before_there_is_a_plan_makes_none_be_asked_for() -> None:
    fleet = fleet_profiling()
    got = back(fleet, table_revision=1)
    assert isinstance(got[0], Release)
    assert fleet.job.planning.again_at_s is None
    assert fleet.requests == []


@pytest.mark.parametrize("is_own", [True, False])
@pytest.mark.parametrize(
    ("follows", "pending", "is_first", "is_asked"),
    [(True, None, False, False), (False, None, False, True), (False, 5, False, False), (False, 5, True, True)],
)
def test_a_rank_that_cannot_change_clocks_by_time_gets_no_plan_that_does_and_another_one_is_asked_for(
    pending: int | None, *, is_own: bool, follows: bool, is_first: bool, is_asked: bool
) -> None:
    fleet = fleet_enforcing()
    job = fleet.job
    plan = replace(plan_of(job), is_first=is_first)
    job.plan = plan if is_own else replace(plan, summary=replace(plan.summary, is_by_phase=True))
    if is_own:
        own_plan(job, 0, is_by_phase=True)
    job.planning.pending = pending
    num_requests = len(fleet.requests)
    got = back(fleet, table_revision=1, follows_moments=follows)
    assert bool(of_type(got, Switch)) == follows
    assert (len(fleet.requests) > num_requests) == is_asked


def test_a_switch_that_training_has_not_come_to_in_its_new_beginning_is_decided_anew_for_all() -> None:
    fleet = fleet_enforcing()
    job = fleet.job
    assert job.switch is not None
    fleet.detach(0)
    fleet.detach(1)
    job.enforcement.switch = replace(job.switch, effective_iteration=10_000)
    told = Attach(rank=_rank(1), gpu=_gpu(), incarnation=9, iteration=0, run_id="run 1", table_revision=1)
    effects = attach_rank(job, RankAttached(stream=99, attach=told), fleet.now_s)
    (switch,) = of_type([one.message for one in effects if isinstance(one, Send)], Switch)
    assert isinstance(switch, Switch)
    assert switch.effective_iteration < 100
    assert switch.switch_revision == 2
    assert switch.point != NO_POINT


def test_a_plan_of_an_earlier_run_is_sent_with_the_first_switch_of_this_one() -> None:
    fleet = fleet_enforcing()
    fleet.job.enforcement.switch = None
    told = Attach(rank=_rank(1), gpu=_gpu(), incarnation=1001, iteration=fleet.iteration, run_id="run 1")
    effects = attach_rank(fleet.job, RankAttached(stream=99, attach=told), fleet.now_s)
    assert not of_type(effects, SendTable)
    assert not of_type([one.message for one in effects if isinstance(one, Send)], Switch)


def test_a_sweep_that_waits_for_a_runs_baseline_is_not_sent_before_it_goes_on() -> None:
    fleet = fleet_profiling()
    assert of_type(back(fleet), Sweep) == [fleet.sweep(0)]
    fleet.job.phase, fleet.job.measured.baseline = Phase.WARMING_UP, None
    fleet.job.measured.baseline_iterations.clear()
    assert of_type(back(fleet), Sweep) == []


# ---- other work under the same name ----------------------------------------------------------------------------------


def test_a_job_that_begins_anew_says_so_once() -> None:
    fleet = Runs().first()
    fleet.end_trainers()
    fleet.begin_next_run()
    fleet.attach_with(LONGER)
    (sentence,) = [one for one in fleet.log if "begin anew" in one and one.startswith("the schedule was")]
    assert sentence.endswith("plan and baseline begin anew, the profile is kept")
    spec = fleet.job.spec
    assert spec is not None
    assert (spec.is_anew, spec.keeps_profile, spec.run_id) == (False, True, "run 2")
    assert spec.schedule_digest == LONGER.digest() != SCHEDULE.digest()
    assert fleet.job.members.places.keys() == {0, 1}


def test_a_job_of_which_nothing_was_measured_says_that_it_begins_anew() -> None:
    fleet = Fleet()
    fleet.attach(0)
    fleet.detach(0)
    fleet.attach(0, incarnation=9, rank=replace(_rank(0), schedule_digest="f" * 64))
    assert len([one for one in fleet.log if one.endswith(": the job begins anew")]) == 1
    fleet.detach(0)
    told = Attach(rank=replace(_rank(0), dp_size=2), gpu=_gpu(), incarnation=11, run_id="run 1")
    log, *_ = attach_rank(fleet.job, RankAttached(stream=99, attach=told), fleet.now_s)
    assert isinstance(log, Log), "it waits for nothing to be stored"
    assert log.sentence.endswith(": the job begins anew")


def test_ranks_of_a_job_of_other_sizes_are_not_compared_with_those_before_and_stand_where_they_say() -> None:
    fleet = Runs().first()
    fleet.end_trainers()
    fleet.begin_next_run()
    fleet.attach(0, gpu=GPU, workload=WORKLOAD, rank=replace(_rank(0), dp_size=2))
    spec = fleet.job.spec
    assert spec is not None
    assert (spec.is_anew, spec.keeps_profile, spec.dp_size) == (True, False, 2)
    assert len(fleet.job.progress.pipelines) == 2
    assert fleet.job.members.places.keys() == {0}
    assert set(fleet.job.members.rank_at.values()) == {0}
    assert not fleet.job.profiling.acked_samples


@pytest.mark.parametrize("carries", [True, False])
def test_what_was_measured_of_stages_is_carried_where_the_policy_says_so(*, carries: bool) -> None:
    fleet = Runs()
    fleet.job.policy = replace(fleet.job.policy, carries_stages=carries)
    fleet.first()
    fleet.end_trainers()
    fleet.begin_next_run()
    fleet.attach(0, gpu=GPU, workload=WORKLOAD, rank=replace(_rank(0), dp_size=2))
    assert bool(fleet.job.profiling.stages) == carries
    assert (fleet.job.planning.ahead.left is not None) == carries
