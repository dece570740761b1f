from dataclasses import replace

import pytest

from perseus_dist.simulation.chaos.scenario.events import (
    DiskFull,
    Event,
    HeatCap,
    Loss,
    MessageDelay,
    NextJob,
    Partition,
    PowerCap,
    Process,
    ProcessAction,
    ProcessEvent,
    SlowDown,
    StragglerOrder,
    TargetOrder,
)
from perseus_dist.simulation.chaos.scenario.scenario import Scenario, ScenarioJob
from perseus_dist.simulation.chaos.standing import GpuFaults, History


def history(*events: Event, target: str = "t_min") -> History:
    job = ScenarioJob(schedule="1f1b", pp=2, dp=5, microbatches=4, target=target)
    return History(Scenario(job=job, iterations=100, events=events))


def test_gpus_are_unwell_from_an_event_to_the_next() -> None:
    seen = history(
        SlowDown(iteration=3, rank=1, slowdown=1.2),
        HeatCap(iteration=5, rank=1, thermal_cap_mhz=900),
        SlowDown(iteration=7, rank=1, slowdown=1.0),
        HeatCap(iteration=9, rank=1, thermal_cap_mhz=None),
    )
    assert [seen.at(i).gpus.get(1) for i in (2, 3, 6, 8, 9)] == [
        None,
        GpuFaults(slowdown=1.2),
        GpuFaults(slowdown=1.2, thermal_cap_mhz=900),
        GpuFaults(thermal_cap_mhz=900),
        None,
    ]
    assert seen.last_event == 9


def test_a_node_is_eight_ranks_or_what_is_left() -> None:
    seen = history(SlowDown(iteration=0, node=0, slowdown=1.2), PowerCap(iteration=0, node=1, power_limit_w=200.0))
    assert sorted(rank for rank, gpu in seen.at(0).gpus.items() if gpu.slowdown > 1) == list(range(8))
    assert sorted(rank for rank, gpu in seen.at(0).gpus.items() if gpu.power_limit_w) == [8, 9]


def test_what_operators_order_of_a_dead_planner_changes_nothing() -> None:
    """They are told that it has failed; a planner that is only stopped hears of it later."""
    seen = history(
        StragglerOrder(iteration=1, pipeline=3, degree=1.5),
        ProcessEvent(iteration=2, action=ProcessAction.STOP, process=Process.PLANNER),
        TargetOrder(iteration=3, target="slowdown=1.1"),
        ProcessEvent(iteration=4, action=ProcessAction.KILL, process=Process.PLANNER),
        StragglerOrder(iteration=5, pipeline=3, degree=None),
        TargetOrder(iteration=6, target="t_min"),
        ProcessEvent(iteration=7, action=ProcessAction.RESTART, process=Process.PLANNER),
        StragglerOrder(iteration=9, pipeline=3, degree=None),
    )
    assert [seen.at(i).reports for i in (4, 8, 9)] == [{3: 1.5}, {3: 1.5}, {}]
    assert [seen.at(i).target.slowdown for i in (2, 3, 8)] == [None, 1.1, 1.1]


def test_an_order_that_the_planner_refuses_changes_nothing() -> None:
    refused = TargetOrder(iteration=3, target="slowdown=1.1")
    events = (refused, StragglerOrder(iteration=3, pipeline=3, degree=1.5), replace(refused, iteration=5))
    job = ScenarioJob(schedule="1f1b", pp=2, dp=5, microbatches=4)
    seen = History(Scenario(job=job, iterations=100, events=events), unheeded=[refused])
    assert [(seen.at(i).target.slowdown, dict(seen.at(i).reports)) for i in (2, 3, 5)] == [
        (None, {}),
        (None, {3: 1.5}),
        (1.1, {3: 1.5}),
    ]


def test_disturbances_are_counted_where_they_begin() -> None:
    seen = history(
        SlowDown(iteration=3, rank=1, slowdown=1.2),
        SlowDown(iteration=3, rank=2, slowdown=1.3),
        HeatCap(iteration=3, rank=2, thermal_cap_mhz=900),
        SlowDown(iteration=8, rank=1, slowdown=1.0),
        SlowDown(iteration=9, rank=1, slowdown=1.1),
        ProcessEvent(iteration=10, action=ProcessAction.KILL, process=Process.PLANNER),
        ProcessEvent(iteration=12, action=ProcessAction.RESTART, process=Process.PLANNER),
        TargetOrder(iteration=14, target="slowdown=1.1"),
    )
    assert seen.disturbances == (3, 3, 9, 10, 14)


@pytest.mark.parametrize(
    ("event", "over"),
    [
        (
            ProcessEvent(iteration=1, action=ProcessAction.STOP, process=Process.AGENT, rank=3),
            ProcessEvent(iteration=2, action=ProcessAction.CONTINUE, process=Process.AGENT, rank=3),
        ),
        (Partition(iteration=1, is_partitioned=True, rank=3), Partition(iteration=2, is_partitioned=False)),
        (DiskFull(iteration=1, is_full=True), DiskFull(iteration=2, is_full=False)),
    ],
)
def test_what_plans_need_may_not_be_there(event: Event, over: Event) -> None:
    seen = history(event, over)
    assert [seen.at(i).can_be_planned for i in range(3)] == [True, False, True]


def test_what_may_be_waited_for() -> None:
    seen = history(
        StragglerOrder(iteration=1, pipeline=0, degree=1.0),
        StragglerOrder(iteration=2, pipeline=0, degree=1.1),
        StragglerOrder(iteration=3),
        SlowDown(iteration=4, rank=0, slowdown=1.1),
    )
    assert [seen.at(i).somebody_may_wait for i in range(5)] == [False, False, True, False, True]


def test_what_was_killed_is_not_brought_back_by_being_continued() -> None:
    kill, stop, go_on, restart = (
        ProcessEvent(iteration=i, action=action, process=Process.PLANNER)
        for i, action in enumerate(
            (ProcessAction.KILL, ProcessAction.STOP, ProcessAction.CONTINUE, ProcessAction.RESTART), start=1
        )
    )
    seen = history(kill, stop, go_on, restart)
    assert [bool(seen.at(i).down) for i in range(5)] == [False, True, True, True, False]


def process(iteration: int, action: str, process: Process, rank: int | None) -> ProcessEvent:
    return ProcessEvent(iteration=iteration, action=ProcessAction(action), process=process, rank=rank)


@pytest.mark.parametrize(("one", "rank"), [(Process.PLANNER, None), (Process.AGENT, 1), (Process.LEASE, 1)], ids=str)
def test_what_is_stopped_is_not_brought_back_by_being_started(one: Process, rank: int | None) -> None:
    seen = history(process(1, "stop", one, rank), process(2, "restart", one, rank), process(3, "continue", one, rank))
    assert [seen.at(i).can_be_planned for i in range(4)] == [True, False, False, True]


def test_what_is_dead_is_not_stopped() -> None:
    """A lease's holder is gone with its agent, too."""
    planner = [process(i, action, Process.PLANNER, None) for i, action in enumerate(("kill", "stop", "restart"))]
    seen = history(
        *planner,
        process(3, "stop", Process.LEASE, 1),
        process(4, "kill", Process.AGENT, 1),
        process(5, "stop", Process.LEASE, 1),
        process(5, "stop", Process.AGENT, 1),
        process(6, "restart", Process.AGENT, 1),
    )
    assert [seen.at(i).can_be_planned for i in range(7)] == [False, False, True, False, False, False, True]


def test_delays_of_one_rank_end_with_its_own() -> None:
    late = MessageDelay(iteration=1, rank=1, delay_s=10.0)
    others = MessageDelay(iteration=2, rank=0, delay_s=0.1), MessageDelay(iteration=3, rank=0, delay_s=None)
    seen = history(late, *others, replace(late, iteration=4, delay_s=2.0), MessageDelay(iteration=5, delay_s=None))
    assert [seen.at(i).delay_s for i in range(6)] == [0.0, 10.0, 10.0, 10.0, 2.0, 0.0]


@pytest.mark.parametrize(
    "begins",
    [Partition(iteration=1, is_partitioned=True), MessageDelay(iteration=1, delay_s=10.0), Loss(iteration=1, lose=0.5)],
    ids=lambda event: type(event).__name__,
)
def test_faults_of_links_end_with_the_job_that_has_the_links(begins: Event) -> None:
    seen = history(begins, NextJob(iteration=2, changes={"microbatches": 3}))
    assert [seen.at(i).can_be_planned for i in range(3)] == [True, False, True]


@pytest.mark.parametrize("is_loss", [True, False])
def test_links_that_fail_together_may_be_mended_one_by_one(*, is_loss: bool) -> None:
    def event(iteration: int, rank: int | None, *, begins: bool) -> Event:
        if is_loss:
            return Loss(iteration=iteration, rank=rank, lose=0.5 if begins else None)
        return Partition(iteration=iteration, rank=rank, is_partitioned=begins)

    seen = history(event(0, None, begins=True), *(event(1 + rank, rank, begins=False) for rank in range(10)))
    assert [seen.at(i).can_be_planned for i in (0, 9, 10)] == [False, False, True]


def test_what_comes_back_by_itself_is_not_down() -> None:
    """An agent starts another lease holder, and trainers that are started again have agents of their own."""
    kill, restart = ProcessAction.KILL, ProcessAction.RESTART
    lease = ProcessEvent(iteration=1, action=kill, process=Process.LEASE, rank=1)
    assert history(lease).at(1).can_be_planned
    agents = (ProcessEvent(iteration=1, action=kill, process=Process.AGENT, rank=rank) for rank in (0, 3))
    trainers = (
        ProcessEvent(iteration=i, action=action, process=Process.TRAINER, rank=rank)
        for i, action, rank in ((2, kill, 1), (3, restart, 2))
    )
    seen = history(*agents, *trainers)
    assert [seen.at(i).can_be_planned for i in range(4)] == [True, False, False, True]
    unharmed = history(
        ProcessEvent(iteration=1, action=kill, process=Process.AGENT, rank=0),
        ProcessEvent(iteration=2, action=restart, process=Process.TRAINER, rank=0),
    )
    assert not unharmed.at(2).can_be_planned, "no trainer had died"


def test_how_long_an_iteration_may_take() -> None:
    events = (
        TargetOrder(iteration=1, target="slowdown=1.1"),
        StragglerOrder(iteration=2, pipeline=1, degree=1.3),
        StragglerOrder(iteration=3, pipeline=1),
        TargetOrder(iteration=4, target="deadline=2.5"),
        TargetOrder(iteration=5, target="t_min"),
    )
    seen = history(*events)
    assert [seen.at(i).allowed_s(2.0) for i in range(6)] == pytest.approx([2.0, 2.2, 2.6, 2.2, 2.5, 2.0])
    assert seen.at(4).allowed_s(3.0) == 3.0  # no deadline makes a machine faster


def test_another_job_has_its_own_processes_and_with_another_gpu_its_own_machines() -> None:
    before = (
        SlowDown(iteration=1, rank=1, slowdown=1.2),
        ProcessEvent(iteration=1, action=ProcessAction.KILL, process=Process.AGENT, rank=1),
        ProcessEvent(iteration=1, action=ProcessAction.KILL, process=Process.PLANNER),
    )
    same, other = (history(*before, NextJob(iteration=5, changes=changes)).at(5) for changes in ({}, {"gpu": "h100"}))
    assert set(same.gpus) == {1}
    assert not other.gpus
    assert same.down == other.down == {(Process.PLANNER, None, ProcessAction.KILL)}
    assert history(NextJob(iteration=5, changes={"target": "slowdown=1.5"})).at(5).allowed_s(1.0) == 1.5
