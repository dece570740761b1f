"""A job's end at its limits: when it is over, what is stored and said of it, and when it is forgotten."""

import pytest
from fleets import fleet_enforcing, fleet_planning
from test_planner_lifecycle import POLICY, Fleet

from perseus_dist.planner.job.facts.runs import JobEnded
from perseus_dist.planner.job.job import Phase
from perseus_dist.planner.lifecycle.advance import end_of_job
from perseus_dist.planner.lifecycle.events import CancelPlanning, Forget, Persist, PlannerEnds, Tick
from perseus_dist.planner.lifecycle.restart import restore

NOW_S = 1000.0


@pytest.mark.parametrize(
    ("ago_s", "is_over"), [(POLICY.gone_s, False), (POLICY.gone_s + 0.01, True), (0.0, False), (None, False)]
)
def test_a_job_is_over_once_no_rank_has_been_attached_for_long(ago_s: float | None, *, is_over: bool) -> None:
    fleet = fleet_planning()
    fleet.detach(0)
    fleet.detach(1)
    fleet.job.members.gone_since_s = None if ago_s is None else NOW_S - ago_s
    effects = end_of_job(fleet.job, NOW_S)
    assert (fleet.phase() is Phase.DONE) == is_over
    if is_over:
        assert fleet.job.reason == "no rank has been attached for 60 s"
        assert {type(effect) for effect in effects} == {CancelPlanning, Persist}
        assert effects[-1] == Persist(facts=(JobEnded(reason=fleet.job.reason),))
        assert fleet.job.members.gone_since_s == NOW_S
    else:
        assert effects == []
        assert fleet.job.members.gone_since_s == NOW_S - (ago_s or 0.0)


def test_a_job_is_over_once_every_rank_has_said_goodbye_attached_or_not() -> None:
    fleet = Fleet()
    fleet.attach(0)
    job = fleet.job
    job.members.ranks[0].said_goodbye = True
    assert end_of_job(job, NOW_S) == [], "the other one has never attached"
    fleet.attach(1)
    assert end_of_job(job, NOW_S) == []
    job.members.ranks[1].said_goodbye = True
    assert end_of_job(job, NOW_S) != []
    assert (job.phase, job.reason) == (Phase.DONE, "every rank's trainer has ended")


@pytest.mark.parametrize(
    ("phase", "end"),
    [
        (Phase.OBSERVING, "; it was observing because it is so"),
        (Phase.STALE, "; it was stale because it is so"),
        (Phase.ENFORCING, ""),
    ],
)
def test_a_job_that_ends_without_a_plan_says_why(phase: Phase, end: str) -> None:
    fleet = fleet_enforcing()
    fleet.job.phase, fleet.job.reason = phase, "it is so"
    for state in fleet.job.members.ranks.values():
        state.said_goodbye = True
    end_of_job(fleet.job, NOW_S)
    assert fleet.job.reason == f"every rank's trainer has ended{end}"


def test_what_a_job_has_saved_is_stored_at_its_end_however_lately_it_was() -> None:
    fleet = fleet_enforcing()
    job = fleet.job
    job.measured.saving.counted_j, job.measured.stored_saved_at_s = 7.0, NOW_S
    for state in job.members.ranks.values():
        state.said_goodbye = True
    stored = [one.facts for one in end_of_job(job, NOW_S) if isinstance(one, Persist)]
    assert len(stored) == 2
    assert stored[1] == (JobEnded(reason=job.reason),)


@pytest.mark.parametrize(
    ("ago_s", "is_forgotten"), [(POLICY.keep_done_s, False), (POLICY.keep_done_s + 0.01, True), (None, False)]
)
def test_a_job_that_is_over_is_forgotten_after_a_time(ago_s: float | None, *, is_forgotten: bool) -> None:
    job = fleet_planning().job
    job.phase = Phase.DONE
    job.members.gone_since_s = None if ago_s is None else NOW_S - ago_s
    job.members.stored_over_s = ago_s or 0.0
    assert end_of_job(job, NOW_S) == ([Forget()] if is_forgotten else [])
    assert job.members.gone_since_s == (NOW_S if ago_s is None else NOW_S - ago_s)


@pytest.mark.parametrize(("ticks", "is_orderly"), [(6, True), (30, True), (30, False)])
def test_a_job_that_is_over_is_forgotten_by_planners_that_are_restarted_before(ticks: int, *, is_orderly: bool) -> None:
    """Each counts on from what is stored; 30 ticks of 2 s are less than the 100 s that jobs are kept for."""
    fleet = fleet_planning()
    for state in fleet.job.members.ranks.values():
        state.said_goodbye = True
    fleet.tell(Tick())
    assert fleet.facts["over"] == JobEnded(reason="every rank's trainer has ended")
    for rank in (0, 1):
        fleet.detach(rank)
    num_ticks = num_stored = 0
    while not fleet.forgotten:
        fleet.job, fleet.now_s = restore("job", fleet.facts.values(), POLICY), 7.0  # of another start of the machine
        for _ in range(ticks):
            fleet.now_s += 2.0
            before = fleet.facts["over"]
            fleet.tell(Tick())
            num_ticks, num_stored = num_ticks + 1, num_stored + (fleet.facts["over"] is not before)
            assert fleet.job.phase is Phase.DONE
        if is_orderly:
            fleet.tell(PlannerEnds())
            assert fleet.tell(PlannerEnds()) == [], "it is stored already"
        assert num_ticks < 100
    assert num_ticks * 2.0 > POLICY.keep_done_s
    assert num_stored <= 24


def test_no_end_is_stored_of_a_job_whose_ranks_are_away_for_a_while() -> None:
    """A planner that comes back while the trainers are still gone goes on with the job."""
    fleet = fleet_enforcing()
    fleet.detach(0)
    fleet.detach(1)
    fleet.now_s += POLICY.gone_s / 2
    assert fleet.job.members.gone_since_s is not None
    fleet.tell(PlannerEnds())
    assert "over" not in fleet.facts


def test_a_job_that_comes_back_and_ends_again_is_kept_for_as_long_as_any() -> None:
    fleet = fleet_planning()
    fleet.job.members.stored_over_s = 90.0
    for state in fleet.job.members.ranks.values():
        state.said_goodbye = True
    fleet.tell(Tick())
    assert fleet.facts["over"] == JobEnded(reason="every rank's trainer has ended")
    assert fleet.job.members.stored_over_s == 0.0
