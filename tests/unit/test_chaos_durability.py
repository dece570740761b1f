"""The durability invariant catches what a planner forgets to store, and clocks that stay locked: shown by mutations."""

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from builders import make_rank

from perseus_dist.agent.following.plan_view import PlanView
from perseus_dist.messages.from_agent import Attach, SwitchSeen
from perseus_dist.messages.from_planner import Switch
from perseus_dist.messages.terms import Gpu
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.job.stored_facts import StoredFactError
from perseus_dist.planner.lifecycle import lifecycle
from perseus_dist.planner.lifecycle.events import Effect, JobEvent, Persist
from perseus_dist.simulation.chaos.invariants import durability
from perseus_dist.simulation.chaos.play import play
from perseus_dist.simulation.chaos.scenario.events import (
    DiskFull,
    Event,
    Process,
    ProcessAction,
    ProcessEvent,
    StragglerOrder,
    TargetOrder,
)
from perseus_dist.simulation.chaos.scenario.scenario import Scenario, ScenarioJob
from perseus_dist.simulation.chaos.standing import History
from perseus_dist.simulation.chaos.world.virtual_world import open_virtual_world
from perseus_dist.simulation.virtual.held_revisions import HeldRevisions
from perseus_dist.simulation.virtual.lease import VirtualLease

if TYPE_CHECKING:
    from collections.abc import Callable

JOB = ScenarioJob(schedule="1f1b", pp=2, dp=2, microbatches=4, time_scale=0.5)
SAVED = replace(JOB, profile="saved")


def process(iteration: int, action: str, of: Process, rank: int | None = None) -> ProcessEvent:
    return ProcessEvent(iteration=iteration, action=ProcessAction(action), process=of, rank=rank)


def planner_dies(iteration: int, until: int) -> tuple[Event, Event]:
    return process(iteration, "kill", Process.PLANNER), process(until, "restart", Process.PLANNER)


ORDERS = (
    StragglerOrder(iteration=40, pipeline=1, degree=1.2),
    TargetOrder(iteration=44, target="slowdown=1.1"),
    *planner_dies(50, 53),
)


def broken(job: ScenarioJob, *events: Event, iterations: int = 70) -> list[str]:
    """Sentences of the invariant about a scenario."""
    scenario = Scenario(job=job, iterations=iterations, events=events)
    run = play(scenario, open_virtual_world)
    return [one.sentence for one in durability.check(run, History(scenario))]


def test_nothing_is_lost_as_the_planner_is_started_again() -> None:
    assert broken(SAVED, *ORDERS) == []


@pytest.mark.parametrize(
    ("prefix", "name"),
    [
        ("baseline", "the baseline of"),
        ("table", "table 1"),
        ("switch", "switch"),
        ("target", "the target Target(slowdown=1.1"),
        ("straggler/", "straggler pipeline-1 at 1.2"),
    ],
)
def test_a_fact_that_is_not_stored_is_missed(monkeypatch: pytest.MonkeyPatch, prefix: str, name: str) -> None:
    drop_facts(monkeypatch, prefix)
    sentences = broken(SAVED, *ORDERS)
    assert any(name in sentence and "(as the planner started again)" in sentence for sentence in sentences)


def test_a_job_whose_registration_is_not_stored_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    drop_facts(monkeypatch, "job")
    with pytest.raises(StoredFactError):
        broken(SAVED, *ORDERS)


@pytest.mark.parametrize(("prefix", "name"), [("samples/", "samples 1 of rank 0"), ("sweep/", "sweep 1")])
def test_a_sweep_that_is_not_stored_is_missed(monkeypatch: pytest.MonkeyPatch, prefix: str, name: str) -> None:
    events = planner_dies(22, 24)
    assert broken(JOB, *events, iterations=40) == []
    drop_facts(monkeypatch, prefix)
    assert any(name in sentence for sentence in broken(JOB, *events, iterations=40))


def drop_facts(monkeypatch: pytest.MonkeyPatch, prefix: str) -> None:
    """The life cycle does not ask for some facts to be stored."""
    step: Callable[[Job, JobEvent, float], list[Effect]] = lifecycle.step

    def mutated(job: Job, event: JobEvent, now_s: float) -> list[Effect]:
        return [
            replace(effect, facts=tuple(fact for fact in effect.facts if not fact.key.startswith(prefix)))
            if isinstance(effect, Persist)
            else effect
            for effect in step(job, event, now_s)
        ]

    monkeypatch.setattr(lifecycle, "step", mutated)


def test_a_report_that_was_withdrawn_does_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    withdrawn = (*ORDERS[:1], StragglerOrder(iteration=45), *planner_dies(50, 53))
    assert broken(SAVED, *withdrawn) == []
    step = lifecycle.step

    def mutated(job: Job, event: JobEvent, now_s: float) -> list[Effect]:
        return [
            replace(effect, drop=()) if isinstance(effect, Persist) else effect for effect in step(job, event, now_s)
        ]

    monkeypatch.setattr(lifecycle, "step", mutated)
    assert any("no straggler pipeline-1" in sentence for sentence in broken(SAVED, *withdrawn))


def test_what_a_full_disk_did_not_take_was_not_acknowledged() -> None:
    full = (DiskFull(iteration=42, is_full=True), *ORDERS[1:], DiskFull(iteration=53, is_full=False))
    assert broken(SAVED, *full) == []


def test_an_order_that_a_full_disk_left_without_an_answer_may_take_place() -> None:
    """The straggler that was acknowledged before is cleared in memory, and on the disk once that has room."""
    cleared = (
        DiskFull(iteration=42, is_full=True),
        StragglerOrder(iteration=45),
        DiskFull(iteration=50, is_full=False),
    )
    assert broken(SAVED, *ORDERS[:1], *cleared) == []


def test_an_answer_that_hides_a_full_disk_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    full = (DiskFull(iteration=42, is_full=True), *ORDERS[1:], DiskFull(iteration=53, is_full=False))
    monkeypatch.setattr(
        "perseus_dist.simulation.virtual.planner.without_acknowledgement",
        lambda effects, _: [effect for effect in effects if not isinstance(effect, Persist)],
    )
    assert any("the target" in sentence for sentence in broken(SAVED, *full))


# ---- revisions -------------------------------------------------------------------------------------------------------


def test_an_agent_that_holds_a_lower_revision_is_found() -> None:
    went_back: list[str] = []
    held = HeldRevisions(3, went_back)
    for revision in (1, 2, 2, 4):
        held.hear(SwitchSeen(table_revision=1, switch_revision=revision))
    assert went_back == []
    held.hear(SwitchSeen(table_revision=1, switch_revision=3))
    assert went_back == ["rank 3 held switch 4 and then holds switch 3"]
    rank = make_rank(job_id="j", rank=3, schedule_digest="d")
    gpu = Gpu(uuid="u", name="n", driver_version="1", clocks_mhz=(), control="direct")
    for revision in (0, 5, 5, 4):
        held.hear(Attach(rank=rank, gpu=gpu, incarnation=1, table_revision=revision))
    assert went_back[1:] == ["rank 3 held table 5 and then holds table 4"]


def test_an_agent_that_follows_an_older_switch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planner loses switches with its disk, and tells agents older ones; they must not follow."""
    events = (
        DiskFull(iteration=42, is_full=True),
        TargetOrder(iteration=44, target="slowdown=1.2"),
        TargetOrder(iteration=47, target="t_min"),
        *planner_dies(50, 53),
    )
    apply_switch = PlanView.apply_switch

    def forgetful(view: PlanView, switch: Switch, iteration: int) -> None:
        view.newest_switch = None
        apply_switch(view, switch, iteration)

    monkeypatch.setattr(PlanView, "apply_switch", forgetful)
    assert any("and then holds switch" in sentence for sentence in broken(SAVED, *events))


# ---- clocks ----------------------------------------------------------------------------------------------------------


LEASE_OVER = [
    (process(45, "kill", Process.AGENT, 1),),
    (process(45, "stop", Process.AGENT, 1),),
    (process(69, "stop", Process.AGENT, 1),),  # its lease lasts longer than the job
]


@pytest.mark.parametrize("events", LEASE_OVER)
def test_no_gpu_is_locked_after_its_lease(events: tuple[Event, ...]) -> None:
    assert broken(SAVED, *events) == []


@pytest.mark.parametrize("events", LEASE_OVER)
def test_a_lease_whose_end_does_not_unlock_is_found(monkeypatch: pytest.MonkeyPatch, events: tuple[Event, ...]) -> None:
    monkeypatch.setattr(VirtualLease, "close", lambda _: None)
    assert any("1 GPUs are" in sentence and "locked" in sentence for sentence in broken(SAVED, *events))


def test_an_agent_that_does_not_release_at_the_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perseus_dist.simulation.virtual.agent.VirtualAgent.end", lambda *_: None)
    monkeypatch.setattr("perseus_dist.agent.core.core.AgentCore._stall_ns", 1 << 62)
    assert any("still locked after the job's end" in sentence for sentence in broken(SAVED, iterations=30))


def test_a_stopped_holder_keeps_its_clock_and_is_no_breach() -> None:
    assert broken(SAVED, process(45, "stop", Process.LEASE, 1)) == []
