"""When the instruction that runs began at the earliest, and how long a rank may be silent."""

import pytest
from test_agent_pilot import MS, ORDER

from perseus_dist.agent.core.pilot import Pilot
from perseus_dist.agent.core.run_durations import Awaited, RunDurations, Running
from perseus_dist.agent.following.exact_runs import ExactRun, RanAt
from perseus_dist.agent.following.position import Position, Run, Stamp
from perseus_dist.agent.measuring.drift import DriftWatch
from perseus_dist.agent.measuring.held_clock import HeldClock
from perseus_dist.agent.measuring.kind_times import KindTimes
from perseus_dist.boundaries.record import Boundary, Event

S = 1000 * MS


class Durations:
    """Of a rank that follows its order at released clocks."""

    def __init__(self) -> None:
        self.pilot, self.position = Pilot(ORDER), Position(ORDER)
        self.durations = RunDurations(
            ORDER, pilot=self.pilot, clock=HeldClock(), drift=DriftWatch(0.1), kind_times=KindTimes(ORDER)
        )

    def pass_boundary(self, event: Event, index: int, time_ms: float) -> None:
        work = ORDER[index]
        fields = ("", 0, -1) if event is Event.ITERATION_BEGIN else (work.kind, work.chunk, work.microbatch)
        self.position.step(Boundary(0, event, *fields, 0, 0, 0), round(time_ms * MS))
        if event is Event.END:
            assert self.position.last_run is not None
            self.durations.end_run(self.position.last_run, None)
        self.durations.move(round(time_ms * MS))

    def know(self, place: int, duration_ms: float, idle_ms: float = 0) -> None:
        self.pilot.remember(ExactRun(place, 0, round(idle_ms * MS), round(duration_ms * MS), RanAt(None, None)))

    def silence_ms(self) -> float:
        return self.durations.longest_silence_ns / MS

    def end(self, duration_ms: float, idle_ms: float) -> None:
        begin_ns = round(idle_ms * MS)
        stamps = (Stamp(0, 0, 0), Stamp(begin_ns, 1, 0), Stamp(begin_ns + round(duration_ms * MS), 2, 0))
        self.durations.end_run(Run(0, 0, *stamps), None)


def test_an_instruction_whose_length_is_known_runs_since_its_begin_was_seen() -> None:
    made = Durations()
    made.pass_boundary(Event.ITERATION_BEGIN, 0, 1000)
    assert made.durations.running(made.position) is None
    made.pass_boundary(Event.BEGIN, 0, 1005)
    assert made.durations.running(made.position) is None
    made.know(0, 70)
    assert made.durations.running(made.position) == Running(1005 * MS, 70 * MS)


def test_a_begin_that_was_seen_late_was_no_earlier_than_the_look_before() -> None:
    made = Durations()
    made.know(0, 70)
    made.pass_boundary(Event.ITERATION_BEGIN, 0, 1000)
    made.durations.look(1005 * MS, 1001 * MS)
    made.pass_boundary(Event.BEGIN, 0, 1005)
    assert made.durations.running(made.position) == Running(1001 * MS, 70 * MS)
    made.durations.look(1006 * MS, None)
    made.durations.move(1006 * MS)
    assert made.durations.running(made.position) == Running(1006 * MS, 70 * MS)


@pytest.mark.parametrize(
    ("end_ms", "looked_ms", "since_ms"),
    [(1100, 1060, 1070), (1100, 1080, 1080), (1060, 1050, 1060)],
    ids=["its length", "the look", "no later than seen"],
)
def test_the_next_one_began_no_earlier_than_the_one_before_it_can_have_ended(
    end_ms: int, looked_ms: int, since_ms: int
) -> None:
    made = Durations()
    made.know(0, 70)
    made.know(1, 50, idle_ms=3)
    made.pass_boundary(Event.ITERATION_BEGIN, 0, 1000)
    made.pass_boundary(Event.BEGIN, 0, 1000)
    made.durations.look(end_ms * MS, looked_ms * MS)
    made.pass_boundary(Event.END, 0, end_ms)
    assert made.durations.awaited(made.position) == Awaited(since_ms * MS, 3 * MS, 50 * MS)
    made.pass_boundary(Event.BEGIN, 1, end_ms)
    assert made.durations.running(made.position) == Running(looked_ms * MS, 50 * MS), "that counts once"


def test_a_rank_is_silent_for_its_longest_run_and_the_longest_wait_of_two_iterations() -> None:
    made = Durations()
    assert made.silence_ms() == 0
    made.end(40, 5)
    assert made.silence_ms() == 45
    made.end(30, 20)
    made.end(50, 1)
    assert made.silence_ms() == 70
    made.durations.end_iteration(30 * MS)
    assert made.silence_ms() == 80, "the wait for its end counts, too"
    made.end(10, 7)
    assert made.silence_ms() == 80
    made.durations.end_iteration(2 * MS)
    assert made.silence_ms() == 57
    made.durations.end_iteration(0)
    assert made.silence_ms() == 50


@pytest.mark.parametrize(("wait_s", "silence_s"), [(59, 59.5), (59.5, 60), (90, 60)])
def test_a_rank_is_silent_for_a_minute_at_most(wait_s: float, silence_s: float) -> None:
    made = Durations()
    made.end(500, wait_s * 1000)
    assert made.durations.longest_silence_ns == silence_s * S
