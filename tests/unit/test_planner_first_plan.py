"""The first plan before the frontier: put in force alone, guarded, kept across restarts, and replaced."""

from dataclasses import replace

import pytest
from test_planner_lifecycle import DRIFT, POLICY, Fleet, S, summary

from perseus_dist.messages.terms import NO_POINT, Target
from perseus_dist.planner.job.facts.plans import TableMade
from perseus_dist.planner.job.frontier_summary import FrontierSummary
from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.planner.lifecycle.events import PlanExpected, PlanFailed, PlanReady, TargetSet, Tick
from perseus_dist.planner.lifecycle.lifecycle import Phase
from perseus_dist.planner.lifecycle.status.job_status import job_status
from perseus_dist.planner.worker.plan_request import PlanningRequest, PlanResult
from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.simulation.chaos.trial import try_seed
from perseus_dist.simulation.job import SimulatedJob
from perseus_dist.simulation.virtual.run import virtual_job


def first_summary() -> FrontierSummary:
    """As fast as all-max, and the plan of least energy."""
    return FrontierSummary(
        time_ps=(S, round(1.2 * S)),
        total_uj=(820, 660),
        lower_bound_uj=(700, 600),
        baseline_time_ps=S,
        baseline_uj=1000,
        total_blocking_uw=100,
    )


def answer(fleet: Fleet, request: PlanningRequest, *, is_first: bool) -> PlanResult:
    result = PlanResult(
        request_id=request.request_id,
        revision=request.revision,
        summary=first_summary() if is_first else summary(),
        tables=(b"table 0 of %d" % request.revision, b"table 1 of %d" % request.revision),
        frontier_npz=b"npz",
        profile_csv=b"csv",
        is_first=is_first,
    )
    fleet.tell(PlanReady(result=result))
    return result


def under_first_plan(*, dp: int = 1) -> Fleet:
    fleet = Fleet(dp=dp).to_planning()
    answer(fleet, fleet.requests[-1], is_first=True)
    assert fleet.phase() is Phase.ENFORCING
    assert fleet.job.is_refining
    return fleet


def test_the_status_tells_when_the_whole_frontier_may_be_there() -> None:
    fleet = under_first_plan()
    assert "frontier" not in job_status(fleet.job).progress
    fleet.tell(PlanExpected(request_id=fleet.requests[-1].request_id, expected_s=240.0))
    status = job_status(fleet.job)
    assert status.progress.endswith(", the whole frontier in about 4 min")
    assert status.phase_left_s == 0.0  # the phase goes on
    fleet.now_s += 241.0
    fleet.tell(Tick())
    assert "frontier" not in job_status(fleet.job).progress


def test_a_first_plan_is_put_in_force_and_the_whole_frontier_replaces_it() -> None:
    fleet = Fleet().to_planning()
    asked = fleet.requests[-1]
    assert (asked.is_first, asked.whole_up_to) == (True, Policy().whole_up_to)
    answer(fleet, asked, is_first=True)
    assert b"table 0 of 1" in fleet.sent(0)
    assert fleet.job.reason.endswith("; the whole frontier follows")
    fleet.iterate(6)
    switch = fleet.switch(0)
    assert switch is not None
    assert (switch.table_revision, switch.point) == (1, 0)
    whole = fleet.requests[-1]
    assert whole == replace(asked, request_id=whole.request_id, revision=2, is_first=False, whole_up_to=0)
    assert len(fleet.requests) == 2
    answer(fleet, whole, is_first=False)
    switch = fleet.switch(0)
    assert switch is not None
    assert switch.table_revision == 2
    assert b"table 0 of 2" in fleet.sent(0)
    assert job_status(fleet.job).table_revision == 2
    assert "whole" not in fleet.job.reason
    fleet.iterate(6)
    assert len(fleet.requests) == 2
    assert fleet.job.planning.pending is None


def test_a_pipeline_that_is_planned_whole_at_once_has_one_table() -> None:
    fleet = Fleet().to_enforcing()
    fleet.iterate(6)
    assert len(fleet.requests) == 1
    assert not fleet.job.awaits_frontier


def test_the_guard_and_the_target_act_upon_a_first_plan() -> None:
    fleet = under_first_plan()
    fleet.tell(TargetSet(target=Target(slowdown=1.3)))
    switch = fleet.switch(0)
    assert fleet.answers[-1].accepted
    assert switch is not None
    assert switch.point == 1
    fleet.iterate(40)
    assert job_status(fleet.job).guard.probes
    answer(fleet, fleet.requests[-1], is_first=False)
    switch = fleet.switch(0)
    assert switch is not None
    assert switch.point == 2, "the plan of least energy within 1.3 s"


def test_a_first_plan_that_is_slow_is_given_up_and_the_frontier_of_the_same_samples_with_it() -> None:
    fleet = under_first_plan()
    asked = fleet.requests[-1]
    fleet.planned_s = 1.2
    for _ in range(200):
        fleet.iterate()
        if fleet.phase() is not Phase.ENFORCING:
            break
    assert fleet.phase() is Phase.RELEASED
    assert fleet.job.planning.pending is None
    answer(fleet, asked, is_first=False)
    assert fleet.phase() is Phase.RELEASED
    switch = fleet.switch(0)
    assert switch is not None
    assert switch.point == NO_POINT


def test_a_sweep_gives_the_frontier_up_and_a_first_plan_of_what_it_measured_follows() -> None:
    fleet = under_first_plan()
    asked = fleet.requests[-1]
    for rank in (0, 1):
        fleet.say(fleet.stream_of[rank], replace(DRIFT, measured_time_s=0.103))
    fleet.iterate(POLICY.drift_settle_s.__ceil__() + 1)
    assert fleet.phase() is Phase.REPROFILING
    answer(fleet, asked, is_first=False)
    assert fleet.phase() is Phase.REPROFILING, "an answer that is not awaited any more"
    while fleet.phase() is not Phase.PLANNING:
        fleet.iterate()
    assert fleet.requests[-1].is_first
    answer(fleet, fleet.requests[-1], is_first=True)
    assert fleet.job.is_refining


def test_what_is_followed_as_a_whole_frontier_is_replaced_by_another_one_at_once() -> None:
    fleet = under_first_plan()
    answer(fleet, fleet.requests[-1], is_first=False)
    for rank in (0, 1):
        fleet.say(fleet.stream_of[rank], replace(DRIFT, measured_time_s=0.103))
    while fleet.phase() is not Phase.PLANNING:
        fleet.iterate()
    assert not fleet.requests[-1].is_first


def test_a_restarted_planner_keeps_the_first_plan_and_asks_for_the_frontier_again() -> None:
    fleet = under_first_plan()
    made = fleet.facts["table"]
    assert isinstance(made, TableMade)
    assert made.is_first
    fleet.restart()
    num_asked = len(fleet.requests)
    fleet.tell(Tick())
    assert len(fleet.requests) == num_asked, "no rank has come back yet"
    for rank in (0, 1):
        fleet.attach(rank, table_revision=1)
    fleet.iterate()
    assert fleet.phase() is Phase.ENFORCING
    assert len(fleet.requests) == num_asked + 1
    assert not fleet.requests[-1].is_first
    answer(fleet, fleet.requests[-1], is_first=False)
    assert not fleet.job.awaits_frontier


def test_another_run_asks_for_the_frontier_that_the_run_before_did_not_get() -> None:
    fleet = under_first_plan()
    for rank in (0, 1):
        fleet.detach(rank)
    fleet.run_id = "run 2"
    for rank in (0, 1):
        fleet.attach(rank, incarnation=2000 + rank)
    assert fleet.job.planning.pending is None
    fleet.iterate(12)
    assert fleet.phase() is Phase.ENFORCING
    assert fleet.job.is_refining


def test_a_frontier_that_cannot_be_made_leaves_the_first_plan_in_force() -> None:
    fleet = under_first_plan()
    for _ in range(POLICY.max_planning_attempts):
        assert fleet.job.is_refining
        failed = PlanFailed(request_id=fleet.requests[-1].request_id, reason="the worker died", transient=True)
        fleet.tell(failed)
        assert fleet.phase() is Phase.ENFORCING
        assert fleet.job.planning.pending is None
        fleet.iterate(12)
    num_asked = len(fleet.requests)
    assert fleet.job.reason.startswith("the first plan stays, because the whole frontier cannot be made")
    fleet.iterate(30)
    assert len(fleet.requests) == num_asked == 1 + POLICY.max_planning_attempts
    switch = fleet.switch(0)
    assert switch is not None
    assert switch.table_revision == 1


def test_an_agent_that_holds_a_later_table_gets_one_at_once() -> None:
    fleet = under_first_plan()
    fleet.detach(1)
    fleet.attach(1, table_revision=7)
    fleet.iterate()
    assert fleet.phase() is Phase.PLANNING
    asked = fleet.requests[-1]
    assert (asked.is_first, asked.revision) == (True, 8)
    answer(fleet, asked, is_first=True)
    assert fleet.job.is_refining


def test_the_first_table_is_durable_before_it_is_sent_and_the_frontier_is_asked_for_behind_it() -> None:
    fleet = Fleet().to_planning()
    request = fleet.requests[-1]
    made = PlanResult(
        request_id=request.request_id,
        revision=request.revision,
        summary=first_summary(),
        tables=(b"a", b"b"),
        frontier_npz=b"",
        profile_csv=b"",
        is_first=True,
    )
    kinds = [type(effect).__name__ for effect in fleet.tell(PlanReady(result=made))]
    assert kinds.count("Persist") == 1
    assert kinds.index("Persist") < kinds.index("SendTable") < kinds.index("StartPlanning")


SIMULATED = SimulatedJob(schedule=one_f_one_b(pp=2, microbatches=4), num_pipelines=2, num_iterations=150, imbalance=0.1)


def test_a_job_in_virtual_time_runs_under_the_first_plan_long_before_the_frontier() -> None:
    began: dict[int, int] = {}
    with virtual_job(SIMULATED, "a100", policy=Policy(whole_up_to=0), quick_plans=True) as job:
        for number in range(SIMULATED.num_iterations):
            assert job.run_iteration() is not None
            for pipeline in job.status.pipelines:
                if pipeline.point != NO_POINT:
                    began.setdefault(pipeline.table_revision, number)
        status = job.status
        assert job.planner.job.plan is not None
        assert not job.planner.job.plan.is_first
    assert sorted(began) == [1, 2]
    assert began[2] - began[1] > 10
    assert status.phase == "enforcing"
    assert status.guard.falls == 0


@pytest.mark.parametrize("seed", [61, *(pytest.param(seed, marks=pytest.mark.stress) for seed in (45, 70))])
def test_histories_of_faults_hold_with_first_plans(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = Policy.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "whole_up_to", 0)
    trial = try_seed(seed)
    assert [f"{one.name}: {one.sentence}" for one in trial.broken] == []
    assert trial.reached_plan
