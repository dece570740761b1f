"""Playing a scenario in a world made by hand."""

from collections.abc import Iterator
from contextlib import contextmanager

from perseus_dist.messages.job_status import MeasuredIterations
from perseus_dist.simulation.chaos.answer import answer_document, answer_text
from perseus_dist.simulation.chaos.play import play
from perseus_dist.simulation.chaos.record import Broken
from perseus_dist.simulation.chaos.scenario.events import Event, NextJob, SlowDown
from perseus_dist.simulation.chaos.scenario.scenario import Scenario, ScenarioJob
from perseus_dist.simulation.chaos.world.world import Iteration, JobEnd, OpenWorld

JOB = ScenarioJob(schedule="1f1b", pp=2, dp=2, microbatches=4)


class HandMade:
    """A world in which iterations take 1 s for each microbatch, times what ranks are slowed down by."""

    def __init__(self, scenario: Scenario, *, with_perseus: bool) -> None:
        self.job = scenario.job
        self.slowdown = 1.0
        self.with_perseus = with_perseus
        self.log: list[Event | int] = []
        self.num = 0

    def apply(self, event: Event) -> JobEnd | None:
        self.log.append(event)
        if isinstance(event, NextJob):
            self.job = Scenario(job=self.job, iterations=event.iteration + 1, events=(event,)).job_at(event.iteration)
            return self.end()
        assert isinstance(event, SlowDown)
        self.slowdown = event.slowdown
        return None

    def run_iteration(self) -> Iteration:
        self.log.append(len(self.log))
        self.num += 1
        return Iteration(
            time_s=self.slowdown * self.job.microbatches,
            energy_j=90.0 if self.with_perseus else 100.0,
            phase="enforcing" if self.with_perseus else "",
        )

    def end(self) -> JobEnd:
        num, self.num = self.num, 0
        return JobEnd(followed=(self.with_perseus,) * num, baseline=MeasuredIterations(), enforced=MeasuredIterations())


def open_world(worlds: list[HandMade]) -> OpenWorld:
    @contextmanager
    def opened(scenario: Scenario, *, with_perseus: bool) -> Iterator[HandMade]:
        worlds.append(HandMade(scenario, with_perseus=with_perseus))
        yield worlds[-1]

    return opened


EVENTS = (
    SlowDown(iteration=0, rank=3, slowdown=1.5),
    NextJob(iteration=3, changes={"microbatches": 8}),
    SlowDown(iteration=4, rank=3, slowdown=1.0),
)
SCENARIO = Scenario(job=JOB, iterations=12, events=EVENTS)


def test_events_apply_before_their_iteration_with_perseus_and_without() -> None:
    worlds: list[HandMade] = []
    run = play(SCENARIO, open_world(worlds))
    assert [one.time_s for one in run.iterations] == [6, 6, 6, 12, *[8] * 8]
    assert [one.time_s for one in run.without] == [one.time_s for one in run.iterations]
    assert [world.with_perseus for world in worlds[:2]] == [True, False]
    assert worlds[0].log == worlds[1].log


def test_jobs_of_the_name_are_told_apart() -> None:
    run = play(SCENARIO, open_world([]))
    assert [(span.first, span.last, span.job.microbatches) for span in run.jobs] == [(0, 2, 4), (3, 11, 8)]
    assert [len(span.end.followed) for span in run.jobs] == [3, 9]
    assert all(run.followed)
    assert run.job_at(2) is run.jobs[0]
    assert run.job_at(3) is run.jobs[1]


def test_the_undisturbed_time_is_that_without_faults() -> None:
    worlds: list[HandMade] = []
    run = play(SCENARIO, open_world(worlds))
    # The first job is slow throughout, so it is played once more without its faults.
    assert [span.undisturbed_time_s for span in run.jobs] == [4, 8]
    assert [(world.with_perseus, world.job.microbatches) for world in worlds[2:]] == [(False, 4)]


def test_the_answer() -> None:
    run = play(SCENARIO, open_world([]))
    document = answer_document(run, [Broken(name="waiting", sentence="somebody waits")])
    assert document["iterations"][3] == {"time_s": 12.0, "energy_j": 90.0, "phase": "enforcing"}
    assert document["without"][3] == {"time_s": 12.0, "energy_j": 100.0, "phase": ""}
    assert document["undisturbed_time_s"] == 4
    assert document["saving_percent"] == 10
    assert document["time_lost_percent"] == 0
    assert document["clocks_left_locked"] == 0
    assert document["events"][1] == {"iteration": 3, "job": {"microbatches": 8}}
    assert document["broken_invariants"] == [{"name": "waiting", "sentence": "somebody waits"}]
    assert "broken: waiting: somebody waits" in answer_text(run, [Broken(name="waiting", sentence="somebody waits")])
    assert "no invariant is broken" in answer_text(run, [])
