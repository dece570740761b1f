"""One step of a job at its limits: what a message says, what is logged, and what becomes durable at once."""

from dataclasses import replace

import pytest
from fleets import fleet_enforcing
from test_planner_lifecycle import DRIFT, POLICY, Fleet, _gpu, _rank, of_type

from perseus_dist.messages.from_agent import Attach, Drift, Goodbye, SwitchSeen, Telemetry
from perseus_dist.messages.from_planner import Attached, Switch
from perseus_dist.messages.terms import NO_POINT, Target
from perseus_dist.planner.job.facts.runs import FingerprintKnown, JobRegistered
from perseus_dist.planner.job.job import Phase
from perseus_dist.planner.lifecycle.events import (
    Answer,
    Forget,
    Log,
    Persist,
    PlannerEnds,
    RankAttached,
    RankMessage,
    Send,
    StragglerCleared,
    TargetSet,
    Tick,
    without_acknowledgement,
)
from perseus_dist.planner.lifecycle.lifecycle import new_job, step

LASTING = POLICY.lasting_drift_iterations


# ---- messages of ranks -----------------------------------------------------------------------------------------------


def test_messages_are_counted_also_those_of_streams_that_are_not_listened_to() -> None:
    fleet = fleet_enforcing()
    before = fleet.job.num_messages
    for stream, message in ((fleet.stream_of[0], Telemetry(sequence=1)), (99, Telemetry(sequence=1)), (99, DRIFT)):
        step(fleet.job, RankMessage(stream=stream, message=message), 1.0)
    assert fleet.job.num_messages == before + 3
    assert not fleet.job.enforcement.drifts


def test_a_stream_that_was_refused_says_nothing_and_one_that_was_not_does() -> None:
    fleet = fleet_enforcing()
    assert step(fleet.job, RankMessage(stream=99, message=Goodbye(reason="finished")), 1.0) == []
    fleet.say(fleet.stream_of[0], Goodbye(reason="finished"))
    assert [fleet.job.members.ranks[rank].said_goodbye for rank in (0, 1)] == [True, False]


@pytest.mark.parametrize(
    ("measured_s", "profile_s", "share"), [(0.3, 0.2, 0.5), (0.15, 0.2, -0.25), (2.0, 1.0, 1.0), (0.2, 0.2, 0.0)]
)
def test_a_drift_is_the_share_by_which_a_time_has_left_the_profile(
    measured_s: float, profile_s: float, share: float
) -> None:
    fleet = fleet_enforcing(dp=2)
    fleet.say(fleet.stream_of[1], replace(DRIFT, measured_time_s=measured_s, profile_time_s=profile_s))
    assert fleet.job.enforcement.drifts == {1: pytest.approx(share)}
    assert fleet.job.enforcement.drift_since_s == fleet.now_s
    assert fleet.log[-1] == (f"rank 1: F of chunk 0 takes {measured_s:.6f} s at 1000 MHz, expected {profile_s:.6f} s")


def test_the_largest_drift_of_a_rank_counts_and_the_time_since_when_there_are_any() -> None:
    fleet = fleet_enforcing(dp=2)
    since_s = fleet.now_s
    for measured_s, share in ((0.11, 0.1), (0.08, -0.2), (0.11, -0.2)):
        fleet.say(fleet.stream_of[1], replace(DRIFT, measured_time_s=measured_s))
        fleet.now_s += 1.0
        assert fleet.job.enforcement.drifts[1] == pytest.approx(share)
        assert fleet.job.enforcement.drift_since_s == since_s


@pytest.mark.parametrize(
    ("num_iterations", "is_lasting"), [(0, True), (1, False), (LASTING - 1, False), (LASTING, True)]
)
def test_a_drift_lasts_from_a_number_of_iterations_on_or_where_the_agent_does_not_say(
    num_iterations: int, *, is_lasting: bool
) -> None:
    fleet = fleet_enforcing(dp=2)
    drift: Drift = replace(DRIFT, num_iterations=num_iterations)
    fleet.say(fleet.stream_of[1], drift)
    assert fleet.job.enforcement.lasting_drifts == ({1} if is_lasting else set())


def test_a_switch_is_confirmed_once_by_each_rank() -> None:
    fleet = fleet_enforcing()
    switch = fleet.job.switch
    assert switch is not None
    seen = SwitchSeen(table_revision=1, switch_revision=switch.switch_revision)
    for rank, num in ((0, 1), (0, 1), (1, 2), (1, 2)):
        assert fleet.say(fleet.stream_of[rank], seen) == []
        assert fleet.job.history.switch_confirmations.num == num
        assert fleet.job.members.ranks[rank].switch_seen == switch.switch_revision
    assert fleet.job.switch is switch


def test_a_switch_that_the_planner_does_not_know_is_overruled_for_all() -> None:
    fleet = fleet_enforcing()
    before = fleet.job.switch
    assert before is not None
    effects = fleet.say(fleet.stream_of[0], SwitchSeen(table_revision=1, switch_revision=before.switch_revision + 1))
    switches = of_type([one.message for one in effects if isinstance(one, Send)], Switch)
    assert [one.switch_revision for one in switches if isinstance(one, Switch)] == [before.switch_revision + 2] * 2
    assert fleet.job.revisions.held_switch == before.switch_revision + 1
    assert fleet.job.switch is not None
    assert fleet.job.switch.points == before.points


# ---- operators -------------------------------------------------------------------------------------------------------


def test_an_operator_is_told_that_no_rank_of_a_job_has_attached_yet() -> None:
    job = new_job("llama", POLICY)
    for event in (TargetSet(target=Target(slowdown=1.2)), StragglerCleared(straggler_id="hot")):
        assert step(job, event, 1.0) == [
            Answer(accepted=False, reason="no rank of job llama has attached yet"),
            Forget(),
        ]
    assert step(job, Tick(), 1.0) == []
    fleet = Fleet()
    fleet.attach(0)
    fleet.tell(TargetSet(target=Target(slowdown=1.2)))
    assert fleet.answers[-1].accepted
    assert not fleet.forgotten


# ---- what is said and stored -----------------------------------------------------------------------------------------


def test_a_step_says_what_it_has_led_to_and_one_that_leads_to_nothing_is_silent() -> None:
    fleet = Fleet()
    fleet.attach(0)
    assert fleet.log[-1] == "registering: waiting for the schedule's text"
    num = len(fleet.log)
    fleet.tell(Tick())
    assert len(fleet.log) == num
    fleet.job.schedule_text = "text"
    fleet.tell(Tick())
    assert fleet.log[num:] == ["registering: 1 of 2 ranks are attached"]
    assert fleet.tell(Tick()) == []


def test_all_that_a_step_makes_durable_becomes_so_at_once_before_anybody_is_told() -> None:
    job = new_job("job", POLICY)
    told = Attach(rank=_rank(0), gpu=_gpu(), incarnation=1)
    effects = step(job, RankAttached(stream=1, attach=told), 1.0)
    (stored,) = of_type(effects, Persist)
    assert stored is effects[0]
    assert isinstance(stored, Persist)
    assert [type(fact) for fact in stored.facts] == [JobRegistered, FingerprintKnown]
    assert isinstance(effects[1], Send)
    assert isinstance(effects[1].message, Attached)


def test_what_is_said_before_something_is_stored_waits_for_nothing() -> None:
    fleet = fleet_enforcing()
    for rank in (0, 1):
        fleet.detach(rank)
    fleet.num_streams += 1
    fleet.inbox[fleet.num_streams] = []
    told = Attach(rank=replace(_rank(0), schedule_digest="f" * 64), gpu=_gpu(), incarnation=5, run_id="run 2")
    effects = fleet.tell(RankAttached(stream=fleet.num_streams, attach=told))
    (stored,) = of_type(effects, Persist)
    assert isinstance(stored, Persist)
    at = effects.index(stored)
    assert isinstance(effects[0], Log)
    assert "plan and baseline begin anew" in effects[0].sentence
    assert at > 0
    assert not any(isinstance(effect, Send) for effect in effects[:at])
    *_, newest = (fact for fact in stored.facts if isinstance(fact, JobRegistered))
    assert newest == fleet.job.spec
    assert {"table", "schedule", "baseline"} < set(stored.drop)


def test_a_planner_that_ends_decides_nothing_more() -> None:
    fleet = fleet_enforcing()
    job = fleet.job
    job.enforcement.switch = None
    job.measured.saving.counted_j, job.measured.stored_saved_at_s = 7.0, fleet.now_s
    (stored,) = step(job, PlannerEnds(), fleet.now_s)
    assert isinstance(stored, Persist)
    assert job.switch is None
    assert step(job, PlannerEnds(), fleet.now_s) == []
    assert step(job, Tick(), fleet.now_s) != []
    assert job.phase is Phase.ENFORCING
    assert job.point(0) != NO_POINT


def test_without_a_store_no_sample_is_acknowledged_and_an_operator_is_told_how_long_it_holds() -> None:
    attached = Attached(phase="planning", table_revision=1, acked_samples=4)
    left = without_acknowledgement(
        [Send(stream=1, message=attached), Answer(accepted=True, reason="done"), Answer(accepted=False, reason="no")],
        "disk full",
    )
    assert left == [
        Send(stream=1, message=replace(attached, acked_samples=0)),
        Answer(accepted=False, reason="in force until the planner restarts, not stored: disk full"),
        Answer(accepted=False, reason="no"),
    ]
