"""The agent's core in a small world of its own: one rank, one GPU, invented instants, a planner that is the test."""

import random
import statistics
from array import array
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pytest
from builders import make_rank

from perseus_dist.agent.core.actions import (
    Action,
    KeepReports,
    KeepTimeline,
    LeavePlanner,
    LogDebug,
    LogWarning,
    ReadMeter,
    RequestClock,
    Send,
    WatchEnergy,
)
from perseus_dist.agent.core.core import AgentCore
from perseus_dist.agent.core.settings import SavedProfile, Settings
from perseus_dist.agent.core.timeline import NUM_BASELINE, NUM_PLANNED
from perseus_dist.agent.following.rank_program import schedule_digest
from perseus_dist.agent.measuring.counter import Edge, EdgeTracker
from perseus_dist.boundaries.reader import TimedBoundary
from perseus_dist.boundaries.record import Boundary, Event
from perseus_dist.device.control import ClockReport
from perseus_dist.device.nvml.meter import MeterSample
from perseus_dist.messages.from_agent import (
    AgentMessage,
    Attach,
    Drift,
    Goodbye,
    IterationReport,
    ProfileSamples,
    RunTimes,
    Sample,
    ScheduleText,
    SwitchSeen,
    Telemetry,
)
from perseus_dist.messages.from_planner import (
    Attached,
    Expected,
    PlanTable,
    Probe,
    ProfileAck,
    Refused,
    Release,
    ScheduleWanted,
    StopSweep,
    Sweep,
    Switch,
)
from perseus_dist.messages.terms import NO_POINT, Gpu
from perseus_dist.planning.schedule.instruction import CLOCK_CHANGE
from perseus_dist.runlog.timed_iteration import TimedIteration, TimedRun

T = TypeVar("T")

MS = 1_000_000
S = 1_000_000_000
PERIOD_NS = 20 * MS
LATENCY_NS = 12 * MS
CLOCKS = (1410, 1200, 1005)
SCHEDULE = "0F0 0F1 0B0 0F2 0B1 0B2\n"
BLOCKING_W = 80.0
AT_MAX_NS = {"F": 50 * MS, "B": 90 * MS}


def duration_ns(kind: str, clock_mhz: int) -> int:
    return AT_MAX_NS[kind] * 1410 // clock_mhz


def power_w(kind: str, clock_mhz: int) -> float:
    return (300.0 if kind == "F" else 340.0) * (clock_mhz / 1410) ** 2


def table(revision: int = 1, rows: tuple[tuple[int, ...], ...] = ((1410, 1200, 1200, 1410, 1005, 1005),)) -> PlanTable:
    return PlanTable(
        revision=revision,
        num_points=len(rows),
        num_instructions=6,
        clocks_mhz=b"".join(array("H", row).tobytes() for row in rows),
        times_s=tuple(1.0 + k for k in range(len(rows))),
        energies_j=tuple(9.0 - k for k in range(len(rows))),
        expected=tuple(
            Expected(
                chunk=0,
                kind=kind,
                clocks_mhz=CLOCKS,
                times_s=tuple(duration_ns(kind, clock) / 1e9 for clock in CLOCKS),
                energies_j=(1.0, 1.0, 1.0),
            )
            for kind in "FB"
        ),
        switch_latency_s=LATENCY_NS / 1e9,
        schedule_digest=schedule_digest(SCHEDULE),
    )


def switch(point: int = 0, effective: int = 0, revision: int = 1, table_revision: int = 1) -> Switch:
    return Switch(table_revision=table_revision, point=point, effective_iteration=effective, switch_revision=revision)


@dataclass
class World:
    """One rank's GPU and trainer around the core. A clock takes effect ``LATENCY_NS`` after it was asked for.

    With ``late_ns``, boundaries are in device order: seen that much late, in turn, and timed by the device afterwards.
    """

    core: AgentCore
    now: int = S
    slowdown: float = 1.0  # of everything, beyond what the profile says
    throttled_mhz: int | None = None
    late_ns: tuple[int, ...] = ()
    is_timed: bool = True
    is_control_hung: bool = False
    work: tuple[int, int] | None = None  # tokens of every iteration, and the wait for its input in ns
    clock: int = 1410
    pending: list[tuple[int, int | None]] = field(default_factory=list)  # (from then on, clock)
    requests: list[tuple[int, int | None]] = field(default_factory=list)
    sent: list[AgentMessage] = field(default_factory=list)
    sent_ns: list[int] = field(default_factory=list)
    kept: list[IterationReport] = field(default_factory=list)
    timelines: list[tuple[TimedIteration, ...]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)
    left: bool = False
    watching: bool = False
    energy_j: float = 0.0
    published_mj: int = 0
    clocks_run: list[list[int]] = field(default_factory=list)
    sequence: int = 0
    iteration: int = -1
    tracker: EdgeTracker = field(default_factory=lambda: EdgeTracker(PERIOD_NS))
    read_ns: int = S
    sample_ns: int = S
    passed: list[tuple[Boundary, int]] = field(default_factory=list)  # in this iteration, when
    seen_ns: int = 0

    def do(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case RequestClock(clock):
                    self.requests.append((self.now, clock))
                    self.pending = [] if self.is_control_hung else [(self.now + LATENCY_NS, clock)]
                case Send(message):
                    self.sent.append(message)
                    self.sent_ns.append(self.now)
                case LogDebug(sentence):
                    self.said.append(sentence)
                case LogWarning(sentence):
                    self.said.append(sentence)
                    self.warned.append(sentence)
                case KeepTimeline(iterations):
                    self.timelines.append(iterations)
                case WatchEnergy(is_on):
                    self.watching = is_on
                    self.tracker = EdgeTracker(PERIOD_NS)
                    self.read_ns = self.now
                case ReadMeter():
                    self.sample_ns = self.now
                case LeavePlanner():
                    self.left = True
                case KeepReports(reports):
                    self.kept += reports

    def sample(self) -> MeterSample:
        clock = self.throttled_mhz or self.clock
        reasons = 0x20 if self.throttled_mhz else 0x2
        return MeterSample(
            time_before_ns=self.now,
            time_after_ns=self.now,
            energy_mj=self.published_mj,
            power_mw=1000,
            clock_mhz=clock,
            event_reasons=reasons,
            temperature_c=50,
        )

    def advance(self, until: int, watts: float) -> None:
        """Draw power until then; whatever happens on the way, happens."""
        while self.now < until:
            timer = self.core.next_timer_ns()
            stops = [until, (self.now // PERIOD_NS + 1) * PERIOD_NS, max(self.sample_ns, self.now + 1)]
            stops += [at for at, _ in self.pending]
            stops += [max(self.now + 1, timer)] if timer is not None else []
            stops += [max(self.now + 1, self.read_ns)] if self.watching else []
            stop = min(stops)
            self.energy_j += watts * (stop - self.now) / 1e9
            self.now = stop
            if self.now % PERIOD_NS == 0:
                self.published_mj = int(self.energy_j * 1e3)
            for at, clock in self.pending:
                if at <= self.now:
                    self.clock = clock or 1410
                    self.pending = []
                    report = ClockReport(
                        requested_mhz=clock,
                        observed_mhz=self.clock,
                        event_reasons=0x2,
                        request_ns=at - LATENCY_NS,
                        set_ns=at - LATENCY_NS // 2,
                        reached_ns=None if clock is None else at,
                        error="",
                    )
                    self.do(self.core.on_clock_report(report, self.now))
            if self.watching and self.now >= self.read_ns:
                edge = self.tracker.add(self.now, self.published_mj, self.now)
                self.read_ns = self.tracker.next_reading_ns(self.now)
                self.do(self.core.on_energy_edges([edge] if edge else [], self.now))
            if self.now >= self.sample_ns:
                self.sample_ns = self.now + S
                self.do(self.core.on_meter(self.sample(), self.now))
            if timer is not None and self.now >= timer:
                self.do(self.core.on_timer(self.now))

    def pass_boundary(self, event: Event, kind: str = "", microbatch: int = -1, iteration: int | None = None) -> None:
        self.sequence += 1
        self.iteration = self.iteration if iteration is None else iteration
        boundary = Boundary(self.sequence, event, kind, 0, microbatch, self.iteration, self.now)
        if not self.late_ns:
            self.do(self.core.on_boundaries([TimedBoundary(boundary, self.now)], self.now))
            return
        self.seen_ns = max(self.seen_ns, self.now + self.late_ns[self.sequence % len(self.late_ns)])
        looked_ns = self.now - MS
        seen = [TimedBoundary(boundary, self.seen_ns)]
        if event is Event.ITERATION_BEGIN:
            seen += self.device_times()
        self.passed.append((boundary, self.now))
        self.do(self.core.on_boundaries(seen, self.seen_ns, looked_ns=looked_ns))

    def say_work(self, tokens: int, wait_ns: int) -> None:
        self.sequence += 1
        said = Boundary(self.sequence, Event.WORK, "", 0, -1, self.iteration, self.now, wait_ns, tokens)
        self.do(self.core.on_boundaries([TimedBoundary(said, self.now)], self.now))

    def device_times(self) -> list[TimedBoundary]:
        """Of the last iteration."""
        passed, self.passed = self.passed, []
        return [
            TimedBoundary(
                done._replace(event=Event.TIMING, timed_sequence=done.sequence, device_ns=at - passed[0][1]), self.now
            )
            for done, at in passed
            if self.is_timed
        ]

    def run(self, kind: str, microbatch: int) -> int:
        """An instruction at the clocks that the GPU has meanwhile; returns the clock at its end."""
        self.pass_boundary(Event.BEGIN, kind, microbatch)
        left = 1.0
        while left > 1e-9:
            clock = self.throttled_mhz or self.clock
            whole_ns = duration_ns(kind, clock) * self.slowdown
            changes = [at for at, _ in self.pending if at > self.now]
            step_ns = min([max(1, round(left * whole_ns)), *(at - self.now for at in changes)])
            left -= step_ns / whole_ns
            self.advance(self.now + step_ns, power_w(kind, clock))
        self.pass_boundary(Event.END, kind, microbatch)
        return self.clock

    def iterate(self, first: int, count: int, gap_ms: float = 5) -> None:
        for iteration in range(first, first + count):
            self.pass_boundary(Event.ITERATION_BEGIN, iteration=iteration)
            clocks = []
            for k, token in enumerate(SCHEDULE.split()):
                # Waits of ever other lengths, as peers that are not in step with the counter make them.
                self.advance(self.now + round((gap_ms + (iteration * 7 + k * 3) % 11) * MS), BLOCKING_W)
                clocks.append(self.run(token[1], int(token[2])))
            self.pass_boundary(Event.MARK, "grad_sync")
            self.advance(self.now + 30 * MS, 120.0)
            if self.work is not None:
                self.say_work(*self.work)
            self.pass_boundary(Event.ITERATION_END, iteration=iteration)
            self.clocks_run.append(clocks)

    @property
    def reports(self) -> list[IterationReport]:
        """That the planner was told."""
        return [report for telemetry in self.of_type(Telemetry) for report in telemetry.iterations]

    def of_type(self, kind: type[T]) -> list[T]:
        return [message for message in self.sent if isinstance(message, kind)]


def make_world(
    *,
    clocks_mhz: tuple[int, ...] = CLOCKS,
    saved_profile: SavedProfile | None = None,
    settings: Settings | None = None,
    pp_size: int = 1,
) -> World:
    rank = make_rank(schedule_digest=schedule_digest(SCHEDULE), pp_size=pp_size)
    gpu = Gpu(
        uuid="GPU-1",
        name="simulated GPU",
        driver_version="0",
        clocks_mhz=clocks_mhz,
        control="direct" if clocks_mhz else "observe",
        refusal="" if clocks_mhz else "no right to set clocks",
        energy_period_s=PERIOD_NS / 1e9,
    )
    core = AgentCore(
        rank=rank, schedule=SCHEDULE, gpu=gpu, incarnation=5, saved_profile=saved_profile, settings=settings
    )
    return World(core)


def connect(world: World, *messages: object, phase: str = "registering") -> None:
    world.do(world.core.on_connected(world.now))
    world.do(world.core.on_message(Attached(phase=phase, table_revision=0, acked_samples=0), world.now))
    tell(world, *messages)


def tell(world: World, *messages: object) -> None:
    for message in messages:
        world.do(world.core.on_message(message, world.now))  # type: ignore[arg-type]


def test_without_a_planner_nothing_is_asked_for_and_nothing_sent() -> None:
    world = make_world()
    world.iterate(0, 5)
    assert world.requests == []
    assert world.sent == []


def test_attach_comes_first_on_every_stream_and_the_text_when_wanted() -> None:
    world = make_world()
    world.iterate(0, 2)
    connect(world, ScheduleWanted(), table(3))
    assert [type(message) for message in world.sent] == [Attach, ScheduleText]
    assert world.of_type(Attach)[0].iteration == 1
    assert world.of_type(ScheduleText)[0].text == SCHEDULE
    world.do(world.core.on_disconnected(world.now))
    world.sent.clear()
    world.iterate(2, 3)
    assert world.sent == []
    connect(world)
    assert world.of_type(Attach)[0].table_revision == 3
    assert world.of_type(Attach)[0].incarnation == 5


def test_a_plan_is_followed_from_its_effective_iteration_ahead_of_every_instruction() -> None:
    world = make_world()
    connect(world, table(), switch(effective=2))
    assert world.of_type(SwitchSeen) == [SwitchSeen(table_revision=1, switch_revision=1)]
    world.iterate(0, 4, gap_ms=13)  # the gaps hide the latency
    assert world.clocks_run[:2] == [[1410] * 6] * 2
    assert world.clocks_run[2:] == [[1410, 1200, 1200, 1410, 1005, 1005]] * 2
    world.advance(world.now + 2 * S, BLOCKING_W)
    reports = [report for telemetry in world.of_type(Telemetry) for report in telemetry.iterations]
    assert [(r.iteration, r.table_revision, r.point) for r in reports[:3]] == [(0, 0, -1), (1, 0, -1), (2, 1, 0)]


def test_the_first_clock_of_the_next_iteration_is_asked_for_at_the_end_of_the_last_instruction() -> None:
    world = make_world()
    connect(world, table(), switch(effective=1))
    world.iterate(0, 1)
    grad_sync_ns = 30 * MS
    assert world.requests == [(world.now - grad_sync_ns, 1410)]


def test_a_late_switch_counts_from_the_next_iteration_and_an_old_one_not_at_all() -> None:
    world = make_world()
    connect(world, table(1, ((1200,) * 6, (1005,) * 6)), switch(0, effective=0, revision=4))
    world.iterate(0, 2, gap_ms=13)
    tell(world, switch(1, effective=1, revision=3))
    world.iterate(2, 1, gap_ms=13)
    tell(world, switch(1, effective=1, revision=5))
    world.iterate(3, 1, gap_ms=13)
    tell(world, switch(NO_POINT, effective=0, revision=6))
    world.iterate(4, 1, gap_ms=13)
    assert world.clocks_run == [[1200] * 6, [1200] * 6, [1200] * 6, [1005] * 6, [1410] * 6]
    # A planner that has forgotten the newer one learns of it.
    assert [seen.switch_revision for seen in world.of_type(SwitchSeen)] == [4, 4, 5, 6]


def test_a_switch_waits_for_its_table_and_is_seen_only_then() -> None:
    world = make_world()
    connect(world, table(1, ((1200,) * 6,)), switch(revision=1))
    world.iterate(0, 1, gap_ms=13)
    tell(world, switch(table_revision=2, revision=2))
    world.iterate(1, 1, gap_ms=13)
    assert [seen.table_revision for seen in world.of_type(SwitchSeen)] == [1]
    tell(world, table(2, ((1005,) * 6,)))
    assert [seen.table_revision for seen in world.of_type(SwitchSeen)] == [1, 2]
    world.iterate(2, 1, gap_ms=13)
    assert world.clocks_run == [[1200] * 6, [1200] * 6, [1005] * 6]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"schedule_digest": "0" * 64}, "is for schedule 000000000000"),
        ({"num_instructions": 7}, "has 7 instructions, this rank has 6"),
        ({"clocks_mhz": b"\0\0"}, "has 2 bytes of clocks"),
        ({"clocks_mhz": array("H", (1,) * 6).tobytes()}, "wants 1 MHz"),
    ],
)
def test_a_table_that_does_not_fit_is_not_followed_and_told(changes: dict[str, object], said: str) -> None:
    world = make_world()
    connect(world, replace(table(), **changes), switch())  # type: ignore[arg-type]
    world.iterate(0, 3)
    assert world.requests == []
    assert said in world.of_type(Telemetry)[-1].trouble


def test_losing_the_planner_changes_nothing() -> None:
    world = make_world()
    connect(world, table(1, ((1200,) * 6,)), switch())
    world.iterate(0, 2, gap_ms=13)
    world.do(world.core.on_disconnected(world.now))
    world.iterate(2, 20, gap_ms=13)
    assert world.clocks_run == [[1200] * 6] * 22
    connect(world)
    world.iterate(22, 3)
    reports = [report.iteration for telemetry in world.of_type(Telemetry) for report in telemetry.iterations]
    assert reports == sorted(set(reports))
    assert set(range(20)) <= set(reports)


def test_a_plan_that_is_late_without_its_planner_is_given_up_until_it_is_back() -> None:
    world = make_world()
    connect(world, table(1, ((1200,) * 6,)), switch())
    world.iterate(0, 20, gap_ms=13)
    world.do(world.core.on_disconnected(world.now))
    world.iterate(20, 10, gap_ms=13)
    assert world.warned == []
    world.iterate(30, 20, gap_ms=30)
    assert world.clocks_run[29] == [1200] * 6
    assert world.clocks_run[-5:] == [[1410] * 6] * 5
    assert len(world.warned) == 1
    assert world.warned[0].endswith("longer while the job's planner is away: clocks released until it is back")
    connect(world, switch())
    world.iterate(50, 20, gap_ms=30)
    assert world.clocks_run[-1] == [1200] * 6
    assert len(world.warned) == 1


def test_release_and_refusal_unlock_at_once() -> None:
    for message in (Release(reason="stale"), Refused(reason="duplicate", retry=False)):
        world = make_world()
        connect(world, table(1, ((1200,) * 6,)), switch())
        world.iterate(0, 2)
        assert world.requests[-1][1] == 1200
        tell(world, message)
        assert world.requests[-1] == (world.now, None)
        world.iterate(2, 2)
        assert world.requests[-1][1] is None
        assert world.left == isinstance(message, Refused)


def test_a_stalled_trainer_loses_its_clock_until_it_comes_back() -> None:
    world = make_world()
    connect(world, table(1, ((1200,) * 6,)), switch())
    world.iterate(0, 2)
    stopped = world.now
    world.advance(world.now + 5 * S, BLOCKING_W)
    at, clock = world.requests[-1]
    assert clock is None
    assert 2 * S < at - stopped < 2.2 * S
    world.iterate(2, 1)
    assert world.requests[-1][1] == 1200


def test_a_rank_that_waits_as_long_as_the_iteration_before_has_not_stalled() -> None:
    """Several seconds for the first gradient, where instructions take long and microbatches are few."""
    world = make_world()
    connect(world, table(1, ((1200,) * 6,)), switch())
    world.iterate(0, 1, gap_ms=4000)
    num_requests = len(world.requests)
    world.iterate(1, 3, gap_ms=4000)
    assert world.requests[num_requests:] == []
    assert all(report.kind_times for report in world.reports[1:])
    stopped = world.now
    world.advance(world.now + 10 * S, BLOCKING_W)
    at, clock = world.requests[-1]
    assert clock is None
    assert 6 * S < at - stopped < 6.3 * S


def test_evaluation_and_what_does_not_fit_run_released() -> None:
    world = make_world()
    connect(world, table(1, ((1200,) * 6,)), switch())
    world.iterate(0, 2)
    world.pass_boundary(Event.MARK, "eval_begin")
    assert world.requests[-1] == (world.now, None)
    for _ in range(3):
        world.run("F", 0)
    world.pass_boundary(Event.MARK, "eval_end")
    assert world.requests[-1][1] is None
    world.iterate(2, 1)
    assert world.requests[-1][1] == 1200
    for iteration in range(3, 7):
        world.pass_boundary(Event.ITERATION_BEGIN, iteration=iteration)
        world.run("F", 0)
        world.run("B", 0)
        assert world.requests[-1][1] is None
        world.pass_boundary(Event.ITERATION_END, iteration=iteration)
    world.advance(world.now + 2 * S, BLOCKING_W)
    assert "the schedule does not fit: iteration 6: saw the begin of B" in world.of_type(Telemetry)[-1].trouble
    (warning,) = world.warned  # once, not in each of four iterations
    assert "out of step: iteration 3: saw the begin of B" in warning


def test_a_checkpoint_is_saved_at_full_clocks_and_counts_to_no_iteration() -> None:
    world = make_world()
    connect(world, table(1, ((1200,) * 6,)), switch())
    world.iterate(0, 3)
    end = world.now
    world.pass_boundary(Event.MARK, "checkpoint")
    assert world.requests[-1] == (end, None)
    world.advance(world.now + 3 * S, BLOCKING_W)
    world.iterate(3, 2)
    assert world.requests[-1][1] == 1200
    world.do(world.core.on_trainer_end("finished", world.now))
    times_s = {report.iteration: report.time_s for report in world.reports}
    assert times_s[2] <= times_s[1]


def test_lost_boundaries_are_told_and_wait_for_the_next_iteration() -> None:
    world = make_world()
    connect(world, table(1, ((1200,) * 6,)), switch())
    world.iterate(0, 2)
    world.do(world.core.on_lost_boundaries(3, world.now))
    assert world.requests[-1][1] is None
    world.iterate(2, 3)
    assert world.requests[-1][1] == 1200
    assert world.of_type(Telemetry)[-1].lost_boundaries == 3


@pytest.mark.parametrize("is_begun", [False, True])
def test_an_iteration_whose_successors_begins_were_lost_ends_where_it_said_so(is_begun: bool) -> None:  # noqa: FBT001
    world = make_world()
    world.iterate(0, 2)
    world.advance(world.now + 2 * S, BLOCKING_W)
    world.do(world.core.on_lost_boundaries(50, world.now))
    if is_begun:  # the begin of the iteration that runs now is lost as well
        world.pass_boundary(Event.END, "B", iteration=8)
        world.pass_boundary(Event.ITERATION_END, iteration=8)
    world.iterate(9, 2)
    world.pass_boundary(Event.CLOSE)
    times_s = {report.iteration: report.time_s for report in world.kept}
    assert list(times_s) == [0, 1, 9, 10]
    assert max(times_s.values()) < 1


def test_an_iteration_of_which_only_instructions_were_lost_is_reported() -> None:
    world = make_world()
    world.iterate(0, 1)
    world.pass_boundary(Event.ITERATION_BEGIN, iteration=1)
    world.do(world.core.on_lost_boundaries(5, world.now))
    world.advance(world.now + 100 * MS, BLOCKING_W)
    world.pass_boundary(Event.ITERATION_END, iteration=1)
    world.iterate(2, 1)
    world.pass_boundary(Event.CLOSE)
    assert [report.iteration for report in world.kept] == [0, 1, 2]


def test_the_end_releases_tells_the_rest_and_says_goodbye() -> None:
    world = make_world()
    connect(world, table(1, ((1200,) * 6,)), switch())
    world.iterate(0, 3)
    world.pass_boundary(Event.CLOSE)
    assert world.core.is_over
    assert world.requests[-1] == (world.now, None)
    assert world.sent[-1] == Goodbye(reason="finished")
    reports = [report.iteration for telemetry in world.of_type(Telemetry) for report in telemetry.iterations]
    assert reports == [0, 1, 2]
    assert world.core.next_timer_ns() is None
    before = len(world.requests)
    world.do(world.core.on_trainer_end("killed", world.now))
    assert len(world.requests) == before


def test_iterations_are_reported_with_their_energy() -> None:
    world = make_world()
    connect(world)
    energies = []
    for iteration in range(12):
        before = world.energy_j
        world.iterate(iteration, 1)
        energies.append(world.energy_j - before)
    world.advance(world.now + 2 * S, BLOCKING_W)
    reports = [report for telemetry in world.of_type(Telemetry) for report in telemetry.iterations]
    known = [(r.energy_j, energies[r.iteration]) for r in reports if r.energy_j is not None]
    assert len(known) >= 9
    assert sum(seen for seen, _ in known) == pytest.approx(sum(truth for _, truth in known), rel=0.01)
    assert all(seen == pytest.approx(truth, rel=0.04) for seen, truth in known)
    assert all(0.4 < r.pipeline_time_s < r.time_s - 0.02 for r in reports)


SWEEP = Sweep(sweep_id=7, first_iteration=2, iterations_per_clock=6, clocks_mhz=CLOCKS)


def check_samples(samples: ProfileSamples) -> None:
    clock = CLOCKS[samples.step]
    assert samples.sweep_id == 7
    assert samples.last
    assert {(s.chunk, s.kind, s.clock_mhz) for s in samples.samples if s.kind != CLOCK_CHANGE} == {
        (0, "F", clock),
        (0, "B", clock),
    }
    changes = [s for s in samples.samples if s.kind == CLOCK_CHANGE]
    assert [s.clock_mhz for s in changes] == [clock] * bool(samples.step)  # the highest was asked for from no other
    assert all(s.time_s == s.time_p90_s == pytest.approx(LATENCY_NS / 1e9) and s.num_runs for s in changes)
    for sample in (s for s in samples.samples if s.kind != CLOCK_CHANGE):
        assert sample.time_s == pytest.approx(duration_ns(sample.kind, clock) / 1e9, rel=0.002)
        assert sample.energy_j == pytest.approx(sample.time_s * power_w(sample.kind, clock), rel=0.01)
        assert sample.num_runs >= 15
        assert sample.window_s > 2
    assert samples.blocking_power_w == pytest.approx(BLOCKING_W, rel=0.1)


def test_a_sweep_holds_each_clock_and_tells_what_it_cost() -> None:
    world = make_world()
    connect(world, SWEEP)
    world.iterate(0, 24, gap_ms=13)
    assert world.clocks_run == [[1410] * 6] * 2 + [[clock] * 6 for clock in CLOCKS for _ in range(6)] + [[1410] * 6] * 4
    told = world.of_type(ProfileSamples)
    assert [(samples.sequence, samples.step) for samples in told] == [(1, 0), (2, 1), (3, 2)]
    for samples in told:
        check_samples(samples)
        assert samples.switch_latency_s == pytest.approx(LATENCY_NS / 1e9)
    assert not world.watching
    assert all(r.point == NO_POINT for t in world.of_type(Telemetry) for r in t.iterations)


def test_samples_are_sent_again_until_they_are_durable() -> None:
    world = make_world()
    connect(world, SWEEP)
    world.iterate(0, 12, gap_ms=13)
    world.do(world.core.on_disconnected(world.now))
    world.iterate(12, 12, gap_ms=13)  # the clock in hand is measured, and no other: nobody could say where to stop
    tell(world, ProfileAck(sequence=1))
    world.sent.clear()
    world.do(world.core.on_connected(world.now))
    world.iterate(24, 4, gap_ms=13)
    assert world.of_type(Telemetry) == [], "a planner that hears it believes to have all samples of before"
    tell(world, Attached(phase="profiling", table_revision=0, acked_samples=0))
    world.iterate(28, 12, gap_ms=13)
    kinds = [type(message) for message in world.sent]
    assert [samples.sequence for samples in world.of_type(ProfileSamples)] == [2]
    assert kinds.index(ProfileSamples) < kinds.index(Telemetry)
    world.do(world.core.on_disconnected(world.now))
    world.sent.clear()
    world.do(world.core.on_connected(world.now))
    tell(world, Attached(phase="profiling", table_revision=0, acked_samples=2))
    assert world.of_type(ProfileSamples) == []


def test_a_sweep_without_its_planner_ends_with_the_clock_it_holds_and_goes_on_with_it() -> None:
    world = make_world()
    connect(world, SWEEP)
    first = SWEEP.first_iteration
    world.iterate(0, first + 1, gap_ms=13)
    world.do(world.core.on_disconnected(world.now))
    world.iterate(first + 1, 6, gap_ms=13)
    held = [clocks[-1] for clocks in world.clocks_run[first:]]
    assert set(held) == {SWEEP.clocks_mhz[0]}  # released is the maximum, too
    connect(world, SWEEP)
    world.iterate(first + 7, 6, gap_ms=13)
    assert {clocks[-1] for clocks in world.clocks_run[first + 8 :]} & set(SWEEP.clocks_mhz[1:])


def test_a_sweep_can_be_stopped_and_told_again_and_joined_late() -> None:
    world = make_world()
    world.iterate(0, 3)
    connect(world, SWEEP, SWEEP)
    world.iterate(3, 6, gap_ms=13)
    tell(world, SWEEP, StopSweep(sweep_id=7, first_iteration=11))
    world.iterate(9, 5, gap_ms=13)
    assert world.clocks_run[3:] == [[1410] * 6] * 5 + [[1200] * 6] * 3 + [[1410] * 6] * 3
    assert [samples.step for samples in world.of_type(ProfileSamples)] == [0, 1]


def test_throttled_runs_are_left_out_of_a_step() -> None:
    world = make_world()
    connect(world, replace(SWEEP, clocks_mhz=(1410,), iterations_per_clock=16))
    world.iterate(0, 9, gap_ms=13)
    world.throttled_mhz = 1005
    world.iterate(9, 2, gap_ms=13)
    world.throttled_mhz = None
    world.iterate(11, 9, gap_ms=13)
    (samples,) = world.of_type(ProfileSamples)
    check_samples(samples)
    assert all(sample.num_runs < 3 * 14 for sample in samples.samples)


def test_device_times_replace_times_seen_late() -> None:
    world = make_world()
    connect(world, replace(SWEEP, clocks_mhz=(1410,)))
    world.late_ns = (0, 3 * MS, 8 * MS, 1 * MS, 6 * MS)
    world.iterate(0, 12, gap_ms=13)
    world.advance(world.now + 4 * S, BLOCKING_W)
    (samples,) = world.of_type(ProfileSamples)
    check_samples(replace(samples, step=0))


def test_whoever_cannot_set_clocks_only_reports() -> None:
    world = make_world(clocks_mhz=())
    connect(world, replace(SWEEP, clocks_mhz=(1200,)), table(), switch())
    world.iterate(0, 24)
    assert world.requests == []
    assert world.of_type(ProfileSamples) == []
    assert len([r for t in world.of_type(Telemetry) for r in t.iterations]) > 20
    assert world.of_type(Telemetry)[-1].control == "observe"


def test_whoever_cannot_set_clocks_is_measured_where_it_runs_at_the_sweeps_clock() -> None:
    world = make_world(clocks_mhz=())
    connect(world, replace(SWEEP, iterations_per_clock=16))
    world.iterate(0, 9)
    world.throttled_mhz = 1005  # by itself it comes to no other clock
    world.iterate(9, 2)
    world.throttled_mhz = None
    world.iterate(11, 45)
    (samples,) = world.of_type(ProfileSamples)
    assert samples.step == 0
    check_samples(samples)
    assert all(sample.num_runs < 3 * 14 for sample in samples.samples)
    assert world.requests == []


def test_control_that_is_lost_is_told() -> None:
    world = make_world()
    connect(world)
    world.do(world.core.on_control("clockd went away", world.now))
    world.iterate(0, 3)
    assert world.of_type(Telemetry)[-1].control == "observe"
    assert world.of_type(Telemetry)[-1].trouble == "clockd went away"
    world.do(world.core.on_control("", world.now))
    world.iterate(3, 3)
    assert world.of_type(Telemetry)[-1].control == "direct"


def test_drift_is_told_once_and_again_after_a_new_table() -> None:
    world = make_world()
    connect(world, table(1, ((1410,) * 6,)), switch())
    world.iterate(0, 12)
    assert world.of_type(Drift) == []
    world.slowdown = 1.2
    world.iterate(12, 20)
    drifts = world.of_type(Drift)
    assert sorted(drift.kind for drift in drifts) == ["B", "F"]
    assert [drift.sequence for drift in drifts] == [1, 2]
    for drift in drifts:
        assert drift.measured_time_s == pytest.approx(1.2 * drift.profile_time_s, rel=0.01)
    tell(world, table(2, ((1410,) * 6,)), switch(table_revision=2, revision=2))
    world.iterate(32, 20)
    assert len(world.of_type(Drift)) == 4


def test_a_drift_that_lasts_is_told_again_and_less_and_less_often() -> None:
    world = make_world()
    connect(world, table(1, ((1410,) * 6,)), switch())
    world.slowdown = 1.2
    world.iterate(0, 110)
    assert [drift.num_iterations for drift in world.of_type(Drift) if drift.kind == "F"] == [5, 24, 48, 96]


def test_a_drift_that_comes_and_goes_is_told_once() -> None:
    world = make_world()
    connect(world, table(1, ((1410,) * 6,)), switch())
    for episode in range(8):
        world.slowdown = 1.0 if episode % 2 else 1.2
        world.iterate(20 * episode, 20)
    assert [drift.num_iterations for drift in world.of_type(Drift) if drift.kind == "F"] == [5]


def test_a_drift_before_clocks_were_released_does_not_last_beyond() -> None:
    world = make_world()
    connect(world, table(1, ((1410,) * 6,)), switch())
    world.slowdown = 1.2
    world.iterate(0, 20)
    tell(world, switch(NO_POINT, effective=20, revision=2))
    world.iterate(20, 20)
    tell(world, switch(effective=40, revision=3))
    world.iterate(40, 15)
    assert [drift.num_iterations for drift in world.of_type(Drift) if drift.kind == "F"] == [5]
    world.iterate(55, 15)
    assert [drift.num_iterations for drift in world.of_type(Drift) if drift.kind == "F"] == [5, 24]


LATE_NS = (40 * MS, 0, 25 * MS, 60 * MS, 2 * MS)  # a busy host


def test_a_drift_that_no_table_has_answered_is_told_on_every_stream() -> None:
    world = make_world()
    connect(world, table(1, ((1410,) * 6,)), switch())
    world.slowdown = 1.2
    world.do(world.core.on_disconnected(world.now))
    world.iterate(0, 12)
    assert world.of_type(Drift) == []
    connect(world, table(1, ((1410,) * 6,)))  # told again, it answers nothing
    world.do(world.core.on_disconnected(world.now))
    connect(world)
    assert [drift.sequence for drift in world.of_type(Drift)] == [1, 2, 1, 2]
    tell(world, table(2, ((1410,) * 6,)))
    world.do(world.core.on_disconnected(world.now))
    connect(world)
    assert len(world.of_type(Drift)) == 4


@pytest.mark.parametrize("is_timed", [True, False], ids=["timed by the device", "not timed"])
def test_a_busy_host_is_no_drift(is_timed: bool) -> None:  # noqa: FBT001
    world = make_world()
    world.late_ns, world.is_timed = LATE_NS, is_timed
    connect(world, table(1, ((1410,) * 6,)), switch())
    world.iterate(0, 40)
    assert world.of_type(Drift) == []
    world.slowdown = 1.2
    world.iterate(40, 20)
    drifts = world.of_type(Drift)
    assert sorted(drift.kind for drift in drifts) == (["B", "F"] if is_timed else [])
    for drift in drifts:
        assert drift.measured_time_s == pytest.approx(1.2 * drift.profile_time_s, rel=0.01)


def test_ends_are_never_expected_late() -> None:
    world = make_world()
    world.late_ns = LATE_NS
    connect(world, table(1, ((1410,) * 6, (1005,) * 6)), switch())
    world.iterate(0, 6)
    tell(world, switch(1, effective=8, revision=2))
    left_ms = []
    for iteration in range(6, 16):
        world.pass_boundary(Event.ITERATION_BEGIN, iteration=iteration)
        for token in SCHEDULE.split():
            world.pass_boundary(Event.BEGIN, token[1], int(token[2]))
            running = world.core.running()
            end_ns = world.now + duration_ns(token[1], world.clock)
            if running is not None:
                expected_ns = running.since_ns + running.duration_ns
                assert expected_ns <= end_ns
                left_ms.append((end_ns - expected_ns) / MS)
            world.advance(end_ns, BLOCKING_W)
            world.pass_boundary(Event.END, token[1], int(token[2]))
            assert world.core.running() is None
        world.pass_boundary(Event.ITERATION_END, iteration=iteration)
    assert len(left_ms) >= 6 * 6
    assert statistics.median(left_ms) == pytest.approx(1)  # the look before, that saw no begin
    assert max(left_ms) < duration_ns("B", 1005) / 2 / MS  # the first at a lower clock: by the higher one's time


def test_a_clock_is_requested_only_where_a_change_was_due() -> None:
    world = make_world()
    connect(world, table(1, ((1410, 1410, 1005, 1005, 1005, 1410), (1005,) * 6)), switch(effective=2))
    dues = []
    for iteration in range(24):
        if iteration == 12:
            tell(world, switch(1, effective=14, revision=2))
        world.pass_boundary(Event.ITERATION_BEGIN, iteration=iteration)
        for token in SCHEDULE.split():
            for event in (Event.BEGIN, Event.END):
                if event is Event.END:
                    world.advance(world.now + duration_ns(token[1], world.clock), BLOCKING_W)
                is_due, num_requests = world.core.is_change_due(is_device_ordered=False), len(world.requests)
                world.pass_boundary(event, token[1], int(token[2]))
                assert is_due or len(world.requests) == num_requests
            dues.append(is_due)
        world.pass_boundary(Event.ITERATION_END, iteration=iteration)
        world.advance(world.now + S // 10, BLOCKING_W)
    assert all(dues[:12]), "before the plan every time counts"
    assert dues[6 * 8 : 6 * 12] == [False, True, False, False, True, True] * 4
    assert dues[6 * 16 :] == [False, False, False, False, False, True] * 8, "the end of an iteration is always due"


def test_where_no_clock_can_be_set_only_ends_of_iterations_are_looked_for_closely() -> None:
    world = make_world(clocks_mhz=())
    connect(world)
    dues = []
    for iteration in range(4):
        world.pass_boundary(Event.ITERATION_BEGIN, iteration=iteration)
        for token in SCHEDULE.split():
            world.pass_boundary(Event.BEGIN, token[1], int(token[2]))
            dues.append(tuple(world.core.is_change_due(is_device_ordered=ordered) for ordered in (False, True)))
            world.advance(world.now + duration_ns(token[1], 1410), BLOCKING_W)
            world.pass_boundary(Event.END, token[1], int(token[2]))
        world.pass_boundary(Event.ITERATION_END, iteration=iteration)
    assert dues == [*[(False, True)] * 5, (True, True)] * 4


def test_throttling_is_no_drift() -> None:
    world = make_world()
    connect(world, table(1, ((1410,) * 6,)), switch())
    world.iterate(0, 8)
    world.throttled_mhz = 1005
    world.advance(world.now + 2 * S, BLOCKING_W)
    world.iterate(8, 12)
    assert world.of_type(Drift) == []


def test_every_iteration_is_kept_once_with_or_without_a_planner() -> None:
    world = make_world()
    world.iterate(0, 10)
    connect(world)
    world.iterate(10, 10)
    world.do(world.core.on_disconnected(world.now))
    world.iterate(20, 10)
    world.pass_boundary(Event.CLOSE)
    assert [report.iteration for report in world.kept] == list(range(30))


def test_iterations_that_no_planner_takes_are_kept_and_counted_as_lost() -> None:
    world = make_world()
    for iteration in range(300):
        world.pass_boundary(Event.ITERATION_BEGIN, iteration=iteration)
        world.advance(world.now + 100 * MS, BLOCKING_W)
    connect(world)
    world.advance(world.now + 2 * S, BLOCKING_W)
    told = [report.iteration for telemetry in world.of_type(Telemetry) for report in telemetry.iterations]
    assert world.of_type(Telemetry)[-1].lost_reports == 299 - len(told) > 0
    assert [report.iteration for report in world.kept] == list(range(299))


def test_a_saved_profile_is_sent_instead_of_a_sweep() -> None:
    row = Sample(
        chunk=0,
        kind="F",
        clock_mhz=1410,
        time_s=0.05,
        energy_j=15.0,
        time_std_s=0.0,
        energy_std_j=0.0,
        num_runs=1,
        window_s=0.0,
        stage=0,
    )
    world = make_world(saved_profile=SavedProfile(samples=(row,) * 5000, blocking_power_w=80.0))
    connect(world)
    assert world.of_type(Attach)[0].has_profile
    told = world.of_type(ProfileSamples)
    assert [(t.sequence, t.sweep_id, len(t.samples), t.last) for t in told] == [(1, 0, 4096, False), (2, 0, 904, True)]


def test_many_boundaries_at_once_ask_for_one_clock() -> None:
    world = make_world()
    connect(world, table(), switch())
    now = world.now
    batch = [TimedBoundary(Boundary(1, Event.ITERATION_BEGIN, "", 0, -1, 0, now), now)]
    batch += [
        TimedBoundary(Boundary(2 + k, event, token[1], 0, int(token[2]), 0, now), now)
        for k, token in enumerate(SCHEDULE.split()[:3])
        for event in (Event.BEGIN, Event.END)
    ]
    actions = world.core.on_boundaries(batch, now)
    assert [action for action in actions if isinstance(action, RequestClock)] == [RequestClock(1410)]
    assert isinstance(actions[0], RequestClock)  # nothing is as urgent


def test_a_clock_is_asked_for_again_once_the_meter_can_read_again() -> None:
    world = make_world()
    connect(world, table(rows=((1200,) * 6,)), switch())
    world.now += S
    world.do(
        world.core.on_boundaries([TimedBoundary(Boundary(1, Event.ITERATION_BEGIN, "", 0, -1, 0, 1), 1)], world.now)
    )
    for trouble, asked in (("", []), ("the driver is gone", []), ("", [RequestClock(1200)]), ("", [])):
        actions = world.core.on_meter(world.sample(), world.now, trouble=trouble)
        assert [action for action in actions if isinstance(action, RequestClock)] == asked


@pytest.mark.parametrize("clock_mhz", [1200, 1410])
def test_a_clock_that_could_not_be_set_is_asked_for_again_a_second_later(clock_mhz: int) -> None:
    """Of a plan with one clock for all instructions, which asks for no other one. An older failure is over."""
    world = make_world()
    connect(world, table(rows=((1200,) * 6,)), switch())
    world.now += S
    world.do(
        world.core.on_boundaries([TimedBoundary(Boundary(1, Event.ITERATION_BEGIN, "", 0, -1, 0, 1), 1)], world.now)
    )
    report = ClockReport(
        requested_mhz=clock_mhz, observed_mhz=None, event_reasons=0, request_ns=world.now, set_ns=0, reached_ns=None,
        error="the driver is busy",
    )  # fmt: skip
    assert not [one for one in world.core.on_clock_report(report, world.now) if isinstance(one, RequestClock)]
    for asked in ([RequestClock(1200)] if clock_mhz == 1200 else [], []):
        actions = world.core.on_meter(world.sample(), world.now)
        assert [action for action in actions if isinstance(action, RequestClock)] == asked


@pytest.mark.parametrize("seed", range(20))
def test_nothing_that_is_said_to_the_core_makes_it_raise_or_keep_a_clock_at_the_end(seed: int) -> None:
    rng = random.Random(seed)
    world = make_world()
    iteration = 0
    for _ in range(400):
        world.now += rng.choice((1, MS, 20 * MS, 300 * MS, 5 * S))
        iteration += rng.random() < 0.2
        kind, microbatch = rng.choice((("F", 0), ("F", 1), ("B", 0), ("B", 2), ("W", 7), ("STEP", -1), ("", -1)))
        said: list[object] = [
            table(rng.randrange(4), ((1200,) * 6,) * rng.randrange(1, 3)),
            switch(rng.randrange(-1, 3), iteration + rng.randrange(-2, 4), rng.randrange(9), rng.randrange(4)),
            replace(SWEEP, sweep_id=rng.randrange(3), first_iteration=iteration + rng.randrange(-9, 3)),
            StopSweep(sweep_id=rng.randrange(3), first_iteration=iteration + rng.randrange(-2, 3)),
            ProfileAck(sequence=rng.randrange(5)),
            Release(reason="x"),
            Refused(reason="y", retry=True),
            ScheduleWanted(),
        ]
        match rng.randrange(10):
            case 0:
                tell(world, rng.choice(said))
            case 1:
                world.do(world.core.on_connected(world.now))
            case 2:
                world.do(world.core.on_disconnected(world.now))
            case 3:
                world.do(world.core.on_meter(replace(world.sample(), energy_mj=rng.randrange(9)), world.now))
            case 4:
                edge = Edge(world.now - MS, world.now, rng.randrange(99), rng.randrange(9))
                world.do(world.core.on_energy_edges([edge], world.now))
            case 5:
                world.do(world.core.on_timer(world.now))
            case 6:
                world.do(world.core.on_lost_boundaries(1, world.now))
            case _:
                event = rng.choice([e for e in Event if e is not Event.CLOSE])
                mark = rng.choice(("grad_sync", "eval_begin", "checkpoint", "release"))
                world.pass_boundary(event, kind or mark, microbatch, iteration)
    world.pass_boundary(Event.CLOSE)
    assert not world.requests or world.requests[-1][1] is None


def test_a_planner_that_ends_with_its_job_takes_the_clocks_along_and_brings_them_back() -> None:
    world = make_world(settings=Settings(holds_without_planner=False))
    connect(world, table(), switch())
    world.iterate(0, 3)
    assert world.requests[-1][1] is not None
    world.do(world.core.on_disconnected(world.now))
    assert world.requests[-1] == (world.now, None)
    for _ in range(3):  # it is tried again, and again in vain
        world.do(world.core.on_disconnected(world.now))
    assert world.warned == []
    world.iterate(3, 2)
    assert world.warned == ["the job's planner is gone: clocks released until it is back"]
    assert world.clocks_run[-1] == [1410] * 6
    connect(world, switch())  # the one that it remembers, started again; the table is here
    world.iterate(5, 2, gap_ms=13)
    assert world.clocks_run[-1] == [1410, 1200, 1200, 1410, 1005, 1005]
    assert len(world.warned) == 1


def test_a_planner_that_ends_after_the_last_iteration_or_is_back_before_the_next_raises_no_alarm() -> None:
    world = make_world(settings=Settings(holds_without_planner=False))
    connect(world, table(), switch())
    world.iterate(0, 3)
    world.do(world.core.on_disconnected(world.now))
    connect(world, switch())
    world.iterate(3, 2)
    world.do(world.core.on_disconnected(world.now))
    assert world.requests[-1] == (world.now, None)
    world.do(world.core.on_trainer_end("finished", world.now))
    assert world.warned == []


def test_a_refusal_is_told_once_however_often_it_comes() -> None:
    world = make_world()
    for reason in ("rank 0 is attached", "rank 0 is attached", "another schedule"):
        world.do(world.core.on_connected(world.now))
        tell(world, Refused(reason=reason, retry=True))
        world.do(world.core.on_disconnected(world.now))
    assert world.warned == [
        f"refused by the planner: {reason}" for reason in ("rank 0 is attached", "another schedule")
    ]


@pytest.mark.parametrize("late_ns", [(), (300_000, 1_200_000, 40_000)], ids=["host order", "device order"])
def test_the_timeline_keeps_the_last_iterations_before_any_clock_and_under_the_plan(late_ns: tuple[int, ...]) -> None:
    world = make_world()
    world.late_ns = late_ns
    begins: list[int] = []
    for iteration in range(5):
        begins.append(world.now)
        world.iterate(iteration, 1)
    connect(world, table(), switch(effective=7))
    for iteration in range(5, 14):
        begins.append(world.now)
        world.iterate(iteration, 1, gap_ms=13)
    world.do(world.core.on_trainer_end("finished", world.now))
    kept = world.timelines[-1]
    # At the end of iteration 6 the clock of the next one is asked for.
    assert [one.iteration for one in kept] == [3, 4, 5, 9, 10, 11, 12, 13]
    assert len(kept) == NUM_BASELINE + NUM_PLANNED
    for one in kept:
        is_planned = one.iteration >= 7
        assert (one.table_revision, one.point) == ((1, 0) if is_planned else (0, -1))
        assert one.planned_clocks_mhz == ((1410, 1200, 1200, 1410, 1005, 1005) if is_planned else None)
        assert [f"0{run.kind}{run.microbatch}" for run in one.runs] == SCHEDULE.split()
        # Exact to what the earliest boundary was seen late by, once the device has told its times.
        if one.iteration < 13:
            assert one.begin_ns - begins[one.iteration] == min(late_ns, default=0)
        for run, clock in zip(one.runs, world.clocks_run[one.iteration], strict=True):
            assert one.begin_ns <= run.begin_ns <= run.end_ns <= one.end_ns
            assert run.observed_mhz in (clock, 0)
            if one.iteration < 13:
                assert run.end_ns - run.begin_ns == pytest.approx(duration_ns(run.kind, clock), abs=2)
            assert run.requested_mhz == (clock if is_planned else 0)


def test_no_timeline_is_kept_where_no_report_is_written() -> None:
    world = make_world(settings=Settings(keeps_timeline=False))
    world.iterate(0, 12)
    assert world.timelines == []


def test_the_timeline_is_told_when_a_plan_is_there_every_ten_seconds_and_never_without_news() -> None:
    world = make_world()
    world.iterate(0, 3)
    assert [[i.iteration for i in told] for told in world.timelines] == [[0]]
    connect(world, table(), switch(effective=3))
    world.iterate(3, 4)
    assert [i.iteration for i in world.timelines[1]][:4] == [0, 1, 2, 3]
    assert isinstance(world.timelines[1][0].runs[0], TimedRun)
    assert len(world.timelines) == 2
    world.advance(world.now + 60 * S, BLOCKING_W)
    assert [i.iteration for i in world.timelines[2]] == [0, 1, 2, 3, 4, 5, 6]
    assert len(world.timelines) == 3


def test_iterations_out_of_step_are_not_kept_for_the_timeline() -> None:
    world = make_world()
    world.iterate(0, 1)
    world.pass_boundary(Event.ITERATION_BEGIN, iteration=1)
    world.run("B", 0)
    world.pass_boundary(Event.ITERATION_END, iteration=1)
    world.iterate(2, 1)
    world.do(world.core.on_trainer_end("finished", world.now))
    assert [iteration.iteration for iteration in world.timelines[-1]] == [0, 2]


REQUESTED_MHZ = {"F": (1410 + 1200 + 1410) // 3, "B": (1200 + 1005 + 1005) // 3}


def ratios(report: IterationReport) -> dict[str, float]:
    assert {one.kind: one.requested_mhz for one in report.kind_times} in ({}, {"F": 1410, "B": 1410}, REQUESTED_MHZ)
    return {one.kind: one.time_ratio for one in report.kind_times}


def test_kinds_are_told_in_probes_from_their_second_iteration_on() -> None:
    """A GPU that is slow is heard of while the guard looks, and not only under the plan."""
    world = make_world()
    connect(world, table(), switch())
    world.iterate(0, 4, gap_ms=13)
    world.slowdown = 1.2
    tell(world, Probe(first_iteration=5, num_iterations=3))
    world.iterate(4, 6, gap_ms=13)
    world.do(world.core.on_trainer_end("finished", world.now))
    told = {report.iteration: ratios(report) for report in world.reports}
    slow = {"F": pytest.approx(1.2, rel=1e-3), "B": pytest.approx(1.2, rel=1e-3)}
    assert [told[iteration] for iteration in (4, 5, 6, 7, 8)] == [slow, {}, slow, slow, slow]
    probed = next(report for report in world.reports if report.iteration == 6)
    assert (probed.point, {one.requested_mhz for one in probed.kind_times}) == (NO_POINT, {1410})


@pytest.mark.parametrize("late_ns", [(), (0, 25 * MS, 2 * MS)], ids=["host order", "device order"])
def test_what_kinds_took_is_told_against_the_profile_at_the_clocks_requested(late_ns: tuple[int, ...]) -> None:
    world = make_world()
    world.late_ns = late_ns
    connect(world, table(), switch(effective=3))
    world.iterate(0, 9, gap_ms=13)  # the gaps hide the latency
    world.slowdown = 1.2
    world.iterate(9, 6, gap_ms=13)
    world.do(world.core.on_trainer_end("finished", world.now))
    told = {report.iteration: ratios(report) for report in world.reports}
    assert sorted(told) == list(range(15))
    assert [told[iteration] for iteration in range(3)] == [{}, {}, {}]  # no plan yet
    known = range(3, 15 if not late_ns else 14)  # nobody tells the device's times of the last one
    for iteration in known:
        expected = 1.0 if iteration < 9 else 1.2
        assert told[iteration] == {"F": pytest.approx(expected, rel=1e-3), "B": pytest.approx(expected, rel=1e-3)}
    if late_ns:
        assert told[14] == {}


def test_a_throttled_gpu_is_slow_at_the_clocks_requested_of_it() -> None:
    world = make_world()
    connect(world, table(1, ((1410,) * 6,)), switch())
    world.iterate(0, 3)
    world.throttled_mhz = 1005
    world.iterate(3, 6)
    world.advance(world.now + 3 * S, BLOCKING_W)
    told = {report.iteration: report for report in world.reports}
    assert ratios(told[5]) == pytest.approx({"F": 1410 / 1005, "B": 1410 / 1005}, rel=1e-3)
    assert [one.requested_mhz for one in told[5].kind_times] == [1410, 1410]


def test_reports_wait_for_the_device_no_longer_than_it_may_still_tell() -> None:
    world = make_world()
    connect(world, table(), switch(effective=3))
    world.late_ns, world.is_timed = (MS,), False  # the device tells no times at all
    world.iterate(0, 9, gap_ms=13)
    assert world.reports[-1].iteration >= 6
    world.is_timed = True
    world.iterate(9, 6, gap_ms=13)
    assert all(ratios(report) for report in world.reports if report.iteration > 9)
    newest = world.reports[-1].iteration
    assert newest >= 11
    world.is_timed = False  # it tells no more
    world.iterate(15, 9, gap_ms=13)
    assert 18 <= world.reports[-1].iteration < 23
    assert not any(ratios(report) for report in world.reports if report.iteration > 15)


def test_iterations_that_did_not_follow_the_plan_all_the_time_say_nothing_of_kinds() -> None:
    world = make_world()
    connect(world, table(1, ((1410,) * 6,)), switch())
    world.iterate(0, 2)
    world.do(world.core.on_lost_boundaries(1, world.now))  # between two iterations nothing is lost of them
    world.pass_boundary(Event.ITERATION_BEGIN, iteration=2)
    world.run("F", 0)
    tell(world, Release(reason="x"))
    for token in SCHEDULE.split()[1:]:
        world.run(token[1], int(token[2]))
    world.pass_boundary(Event.ITERATION_END, iteration=2)
    world.iterate(3, 1)
    tell(world, switch(revision=2))
    world.iterate(4, 2)
    world.do(world.core.on_control("clockd went away", world.now))
    world.iterate(6, 1)
    world.pass_boundary(Event.ITERATION_BEGIN, iteration=7)
    world.do(world.core.on_control("", world.now))
    for token in SCHEDULE.split():
        world.run(token[1], int(token[2]))
    world.pass_boundary(Event.ITERATION_END, iteration=7)
    world.iterate(8, 1)
    world.pass_boundary(Event.ITERATION_BEGIN, iteration=9)
    world.run("F", 0)
    world.advance(world.now + 5 * S, BLOCKING_W)  # its peer does not come: the clock is released meanwhile
    for token in SCHEDULE.split()[1:]:
        world.run(token[1], int(token[2]))
    world.pass_boundary(Event.ITERATION_END, iteration=9)
    world.pass_boundary(Event.MARK, "eval_begin")  # what follows an iteration does not spoil it
    world.do(world.core.on_trainer_end("finished", world.now))
    assert [report.iteration for report in world.reports if report.kind_times] == [0, 1, 4, 5, 8]


def test_while_clock_control_hangs_nothing_is_told_of_kinds() -> None:
    """The GPU runs at another clock than the one requested; taken for the rank's usual, it is slow ever after."""
    world = make_world()
    connect(world, table(), switch())
    world.iterate(0, 3)
    world.is_control_hung = True
    world.iterate(3, 5)
    world.is_control_hung = False
    world.pending = [(world.now + LATENCY_NS, world.requests[-1][1])]
    world.iterate(8, 4)
    world.do(world.core.on_trainer_end("finished", world.now))
    told = [report.iteration for report in world.reports if report.kind_times]
    assert set(told) >= {1, 2, 9, 10, 11}
    assert not set(told) & {4, 5, 6, 7}


def test_a_sweep_and_whoever_cannot_set_clocks_say_nothing_of_kinds() -> None:
    world = make_world()
    connect(world, table(), switch(), replace(SWEEP, first_iteration=0))
    other = make_world(clocks_mhz=())
    connect(other, table(), switch())
    for each in (world, other):
        each.iterate(0, 9)
        each.do(each.core.on_trainer_end("finished", each.now))
        assert len(each.reports) == 9
        assert not any(report.kind_times for report in each.reports)


def test_the_trainers_own_word_on_its_work_is_passed_on() -> None:
    world = make_world()
    connect(world)
    for iteration, work in enumerate((None, (4096, -1), (0, 250 * MS), (10**18, 10**18), (10**15, -1))):
        world.work = work
        world.iterate(iteration, 1)
    world.do(world.core.on_trainer_end("finished", world.now))
    told = [(report.tokens, report.input_wait_s) for report in world.reports]
    assert told == [(0.0, None), (4096.0, None), (0.0, 0.25), (0.0, None), (1e15, None)]  # 10**18 are wrong numbers


def test_telemetry_says_where_the_rank_is_and_each_reading_once() -> None:
    world = make_world()
    connect(world, table(1, ((1200,) * 6,)), switch())
    assert world.of_type(Telemetry) == []
    world.advance(world.now + S, BLOCKING_W)
    world.iterate(0, 9)
    told = world.of_type(Telemetry)
    assert [one.iteration for one in told] == sorted(one.iteration for one in told)
    assert (told[0].iteration, told[-1].iteration) == (-1, 8)
    assert {(one.gpu.requested_mhz, one.gpu.clock_mhz) for one in told[2:]} == {(1200, 1200)}
    before = len(told)
    world.sample_ns = world.now + 60 * S  # the meter hangs
    world.advance(world.now + 3 * S, BLOCKING_W)
    assert [one.gpu.clock_mhz for one in world.of_type(Telemetry)[before + 1 :]] == [0, 0]
    assert world.of_type(Telemetry)[-1].gpu.power_w == 1.0


def test_the_planner_hears_of_throttling_at_once_and_of_its_end() -> None:
    world = make_world()
    connect(world, table(1, ((1410,) * 6,)), switch())
    world.iterate(0, 6)
    for first, throttled_mhz in ((6, 1005), (12, None)):
        world.throttled_mhz = throttled_mhz
        world.sent.clear()
        world.sent_ns.clear()
        since_ns = world.now
        world.iterate(first, 6)
        told_ns = [
            at_ns
            for at_ns, message in zip(world.sent_ns, world.sent, strict=True)
            if isinstance(message, Telemetry) and message.gpu.clock_mhz == (throttled_mhz or 1410)
        ]
        assert told_ns[0] - since_ns < 100 * MS  # every iteration begins with a reading
        assert told_ns[2] - told_ns[0] <= 301 * MS
        assert len(told_ns) <= 3 + (world.now - since_ns) / S
    world.pass_boundary(Event.CLOSE)
    world.throttled_mhz = 1005
    world.do(world.core.on_meter(world.sample(), world.now))
    assert isinstance(world.sent[-1], Goodbye)


def own_table(revision: int, base_revision: int, clock_mhz: int = 1005) -> PlanTable:
    return replace(table(revision, ((clock_mhz,) * 6,)), base_revision=base_revision)


@pytest.mark.parametrize("late_ns", [(), (0, 3 * MS, 8 * MS, 1 * MS, 6 * MS)])
def test_times_at_full_clocks_are_told_now_and_then_and_after_every_probe(late_ns: tuple[int, ...]) -> None:
    world = make_world(pp_size=2, settings=Settings(host_clock="of one host"))
    world.late_ns = late_ns
    connect(world)
    world.iterate(0, 20)
    told = world.of_type(RunTimes)
    assert [times.iteration for times in told] == [4, 8, 12, 16]
    assert {times.host_clock for times in told} == {"of one host"}
    for times in told:
        durations_ns = [end - begin for begin, end in zip(times.begins_ns, times.ends_ns, strict=True)]
        assert durations_ns == [AT_MAX_NS[token[1]] for token in SCHEDULE.split()]
        # The waits of ``iterate``.
        pauses_ns = [begin - end for end, begin in zip(times.ends_ns[:-1], times.begins_ns[1:], strict=True)]
        assert pauses_ns == [(5 + (times.iteration * 7 + k * 3) % 11) * MS for k in range(1, 6)]
    tell(world, table(), switch())
    world.iterate(20, 20)
    assert world.of_type(RunTimes) == told
    tell(world, Probe(first_iteration=42, num_iterations=3))
    world.iterate(40, 10)
    assert [times.iteration for times in world.of_type(RunTimes)[len(told) :]] == [44]


def test_a_rank_without_others_tells_no_times() -> None:
    world = make_world()
    connect(world)
    world.iterate(0, 20)
    assert world.of_type(RunTimes) == []


def test_a_table_of_ones_own_is_followed_beside_the_shared_one_and_attach_names_the_shared_one() -> None:
    world = make_world()
    connect(world, table(4, ((1410,) * 6,)), switch(table_revision=4))
    world.iterate(0, 2, gap_ms=13)
    tell(world, own_table(5, 4), switch(table_revision=5, revision=2))
    assert world.of_type(SwitchSeen)[-1].table_revision == 5
    world.iterate(2, 2, gap_ms=13)
    world.do(world.core.on_disconnected(world.now))
    connect(world, switch(table_revision=4, revision=3))
    assert world.of_type(Attach)[-1].table_revision == 4
    world.iterate(4, 2, gap_ms=13)
    assert world.clocks_run == [[1410] * 6] * 2 + [[1005] * 6] * 2 + [[1410] * 6] * 2
    world.do(world.core.on_trainer_end("finished", world.now))
    # The shared table's profile stays the one to compare with.
    assert [report.table_revision for report in world.reports] == [4, 4, 5, 5, 4, 4]
    assert [report.kind_times[0].requested_mhz for report in world.reports] == [1410, 1410, 1005, 1005, 1410, 1410]
    assert all(one.time_ratio == pytest.approx(1, rel=1e-3) for report in world.reports for one in report.kind_times)


def test_drifts_stay_unanswered_by_a_table_of_ones_own() -> None:
    world = make_world()
    connect(world, table(1, ((1410,) * 6,)), switch())
    world.slowdown = 1.2
    world.iterate(0, 12)
    assert len(world.of_type(Drift)) == 2
    tell(world, own_table(2, 1), switch(table_revision=2, revision=2))
    world.iterate(12, 12)
    assert len(world.of_type(Drift)) == 2
    world.do(world.core.on_disconnected(world.now))
    connect(world)
    assert len(world.of_type(Drift)) == 4
