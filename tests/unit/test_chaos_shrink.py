from dataclasses import replace

import pytest

from perseus_dist.simulation.chaos import trial
from perseus_dist.simulation.chaos.errors import ScenarioError
from perseus_dist.simulation.chaos.record import PlayedRun
from perseus_dist.simulation.chaos.scenario.events import (
    Event,
    MessageDelay,
    NextJob,
    Process,
    ProcessAction,
    ProcessEvent,
    SlowDown,
    StragglerOrder,
)
from perseus_dist.simulation.chaos.scenario.fewer_ranks import (
    with_fewer_pipelines,
    with_shorter_pipelines,
    with_smaller_groups,
)
from perseus_dist.simulation.chaos.scenario.scenario import Scenario, ScenarioJob
from perseus_dist.simulation.chaos.scenario.scenario_file import format_scenario, parse_scenario
from perseus_dist.simulation.chaos.shrink import shrink

JOB = ScenarioJob(schedule="1f1b", pp=4, dp=8, microbatches=8, noise_percent=0.5)
EVENTS = tuple(SlowDown(iteration=10 * i, rank=i, slowdown=round(1.1 + i / 100, 2)) for i in range(10))
SCENARIO = Scenario(job=JOB, iterations=200, events=EVENTS)


def test_what_does_not_matter_goes() -> None:
    def still_breaks(scenario: Scenario) -> bool:
        return any(isinstance(event, SlowDown) and event.slowdown == 1.16 for event in scenario.events)

    small = shrink(SCENARIO, still_breaks)
    (event,) = small.events
    assert isinstance(event, SlowDown)
    assert (event.iteration, event.slowdown) == (60, 1.16)
    assert (small.job.pp, small.job.dp, small.job.noise_percent) == (1, 1, 0.0)
    assert small.iterations < 80


def test_what_matters_stays() -> None:
    def still_breaks(scenario: Scenario) -> bool:
        return scenario.job.dp >= 3 and scenario.iterations >= 150 and len(scenario.events) >= 4

    small = shrink(SCENARIO, still_breaks)
    assert (small.job.dp, len(small.events)) == (3, 4)
    assert small.iterations >= 150
    assert shrink(SCENARIO, lambda _: False) == SCENARIO


def test_a_crash_is_shrunk_to_the_same_crash_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the late messages nothing divides; without the restart the trainers stay dead, which is another error."""

    def play(scenario: Scenario, _: object) -> PlayedRun:
        events = scenario.events
        if any(isinstance(event, MessageDelay) and event.delay_s for event in events):
            _ = 1 / 0
        actions = [event.action for event in events if isinstance(event, ProcessEvent)]
        if actions == [ProcessAction.KILL]:
            raise ScenarioError("the trainers are dead; restart one before the next iteration")
        return PlayedRun(scenario=scenario, iterations=[], without=[], jobs=[])

    monkeypatch.setattr(trial, "play", play)
    monkeypatch.setattr(trial, "broken_invariants", lambda _: ())
    killed, restarted = (
        ProcessEvent(iteration=i, action=action, process=Process.TRAINER, rank=1)
        for i, action in ((9, ProcessAction.KILL), (11, ProcessAction.RESTART))
    )
    late = MessageDelay(iteration=5, rank=0, delay_s=0.1)
    scenario = replace(SCENARIO, events=(late, killed, restarted, replace(late, iteration=15, delay_s=None)))
    (crash,) = trial.judge(scenario)[1]
    assert (crash.name, crash.sentence) == (trial.CRASH, "ZeroDivisionError: division by zero")
    assert trial.shrunk(scenario, [crash], max_runs=80).events == (late,)


def test_runs_are_bounded() -> None:
    tried: list[Scenario] = []

    def still_breaks(scenario: Scenario) -> bool:
        tried.append(scenario)
        return len(scenario.events) >= 3

    shrink(SCENARIO, still_breaks, max_runs=5)
    assert len(tried) == 5


@pytest.mark.parametrize("last", ["a100", "a40"])
def test_whatever_is_tried_is_a_scenario(last: str) -> None:
    gpu = ",".join(["a100"] * (JOB.pp - 1) + [last])
    job = replace(JOB, schedule="interleaved", chunks=2, gpu=gpu)
    events: tuple[Event, ...] = (
        *EVENTS,
        SlowDown(iteration=95, node=3, slowdown=1.2),
        StragglerOrder(iteration=96, pipeline=7, degree=1.2),
        NextJob(iteration=100, changes={"gpu": "h100"}),
    )
    scenario = Scenario(job=job, iterations=200, events=events)

    def still_breaks(tried: Scenario) -> bool:
        assert parse_scenario(format_scenario(tried)) == tried
        return True

    small = shrink(scenario, still_breaks)
    assert small.events == ()
    assert (small.job.pp, small.job.dp) == (2, 1)
    for smaller in (*with_fewer_pipelines(scenario), *with_shorter_pipelines(scenario)):
        assert parse_scenario(format_scenario(smaller)) == smaller
        assert smaller.job.num_ranks < scenario.job.num_ranks


def test_events_do_not_pass_to_another_job() -> None:
    events = (NextJob(iteration=50, changes={"dp": 9}), SlowDown(iteration=60, rank=35, slowdown=1.2))
    tried: list[Scenario] = []

    def still_breaks(scenario: Scenario) -> bool:
        tried.append(scenario)
        assert parse_scenario(format_scenario(scenario)) == scenario
        return False

    shrink(replace(SCENARIO, events=events), still_breaks)
    assert any(scenario.events == events[:1] for scenario in tried)


def test_what_happened_to_a_rank_of_a_group_happens_in_the_smaller_group() -> None:
    """Rank 27 is pipeline 1, pp_rank 2, tp_rank 3."""
    job = replace(JOB, pp=4, dp=2, tp=4)
    scenario = Scenario(job=job, iterations=90, events=(SlowDown(iteration=9, rank=27, slowdown=1.2),))
    (halved,) = with_smaller_groups(scenario)
    moved = [*with_fewer_pipelines(scenario), *with_shorter_pipelines(scenario), halved]
    assert [(one.job.dp, one.job.pp, one.job.tp) for one in moved] == [(1, 4, 4), (2, 2, 4), (2, 3, 4), (2, 4, 2)]
    assert [event.rank for one in moved for event in one.events if isinstance(event, SlowDown)] == [11, 15, 19, 13]
    assert list(with_smaller_groups(Scenario(job=JOB, iterations=9))) == []
    small = shrink(scenario, lambda tried: parse_scenario(format_scenario(tried)) == tried)
    assert (small.job.num_ranks, small.events) == (1, ())
