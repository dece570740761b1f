"""The pilot asks ahead of instructions, as ``planning.frontier.replay`` assumes."""

from perseus_dist.agent.core.pilot import Pilot
from perseus_dist.agent.following.exact_runs import ExactRun, RanAt
from perseus_dist.agent.following.position import BoundaryEffect, Position
from perseus_dist.agent.following.rank_program import Work, rank_order
from perseus_dist.boundaries.record import Boundary, Event

MS = 1_000_000
ORDER = rank_order("0F0 0F1 0B0 0B1 0STEP\n", 0)
CLOCKS = (1410, 1200, 1200, 900, 0)


def boundary(event: Event, work: Work | None = None, iteration: int = 0) -> Boundary:
    kind, chunk, microbatch = (work.kind, work.chunk, work.microbatch) if work is not None else ("", 0, -1)
    return Boundary(0, event, kind, chunk, microbatch, iteration, 0, 0)


class Drive:
    """Feeds boundaries and asks the pilot after each."""

    def __init__(self, clocks: tuple[int, ...] | None = CLOCKS, latency_ms: int = 10, **to_ms: int) -> None:
        self.position = Position(ORDER)
        self.pilot = Pilot(ORDER)
        self.clocks = clocks
        self.next_clocks = clocks
        self.latency_ns = latency_ms * MS
        self.latencies_ns = {int(target.removeprefix("to_")): ms * MS for target, ms in to_ms.items()}
        self.current: int | None = None

    def step(self, event: Event, index: int = 0, at_ms: float = 0, iteration: int = 0) -> int | None:
        work = ORDER[index] if event in (Event.BEGIN, Event.END) else None
        if event is Event.ITERATION_BEGIN:
            self.pilot.begin_iteration(self.clocks)
        happened = self.position.step(boundary(event, work, iteration), round(at_ms * MS))
        assert happened is not BoundaryEffect.OUT_OF_STEP, self.position.mismatch
        if happened is BoundaryEffect.ENDED:
            run = self.position.last_run
            assert run is not None
            at = RanAt(self.clocks, None)
            self.pilot.remember(ExactRun(run.place, run.iteration, run.idle_ns, run.duration_ns, at))
        self.current = self.pilot.wanted_mhz(
            self.position,
            clocks_mhz=self.clocks,
            next_clocks_mhz=self.next_clocks,
            current_mhz=self.current,
            latency_ns=self.latency_ns,
            latencies_ns=self.latencies_ns,
        )
        return self.current

    def iteration(self, begins_ms: list[float], ends_ms: list[float], iteration: int = 0) -> list[int | None]:
        """The clock asked for after every end."""
        asked = [self.step(Event.ITERATION_BEGIN, at_ms=begins_ms[0], iteration=iteration)]
        for index, (begin, end) in enumerate(zip(begins_ms, ends_ms, strict=True)):
            before = self.current
            assert self.step(Event.BEGIN, index, begin) == before  # nothing is left to ask for
            asked.append(self.step(Event.END, index, end))
        self.step(Event.ITERATION_END, at_ms=ends_ms[-1])
        return asked


def test_each_clock_is_asked_for_when_the_clocked_instruction_before_ends() -> None:
    drive = Drive()
    asked = drive.iteration([0, 50, 110, 200, 300], [50, 100, 200, 300, 310])
    # begin, then after F0, F1, B0, B1 (already the next iteration's first) and the constant, which changes nothing
    assert asked == [1410, 1200, 1200, 900, 1410, 1410]


def test_the_next_iterations_row_counts_after_the_last_clocked_instruction() -> None:
    drive = Drive()
    drive.next_clocks = (750, 750, 750, 750, 0)
    assert drive.iteration([0, 50, 110, 200, 300], [50, 100, 200, 300, 310])[-2] == 750
    drive = Drive()
    drive.next_clocks = None
    assert drive.iteration([0, 50, 110, 200, 300], [50, 100, 200, 300, 310])[-2] is None


def test_released_row_asks_for_the_next_iterations_first_clock_only_behind_its_last_instruction() -> None:
    drive = Drive(clocks=None)
    drive.next_clocks = CLOCKS
    assert drive.iteration([0, 50, 110, 200, 300], [50, 100, 200, 300, 310]) == [None, None, None, None, 1410, 1410]


def test_a_change_that_would_come_too_late_serves_the_instruction_after() -> None:
    drive = Drive(clocks=(1410, 1200, 1410, 900, 0), latency_ms=10)
    times = ([0.0, 50, 55, 150, 250], [50.0, 55, 150, 250, 260])  # F1 takes 5 ms, without a gap
    assert drive.iteration(*times) == [1410, 1200, 1410, 900, 1410, 1410]  # its length is not known yet
    assert drive.iteration(*times, iteration=1) == [1410, 1410, 1410, 900, 1410, 1410]
    drive.clocks = drive.next_clocks = (1410, 1200, 1000, 900, 0)
    assert drive.iteration(*times, iteration=2) == [1410, 1000, 1000, 900, 1410, 1410]


def test_a_gap_hides_the_latency_of_a_short_instruction() -> None:
    drive = Drive(clocks=(1410, 1200, 1410, 900, 0), latency_ms=10)
    times = ([0.0, 90, 95, 150, 250], [50.0, 95, 150, 250, 260])
    drive.iteration(*times)
    assert drive.iteration(*times, iteration=1) == [1410, 1200, 1410, 900, 1410, 1410]


def test_a_clock_is_asked_for_where_it_arrives_in_time_by_its_own_latency() -> None:
    """The second instruction takes 50 ms: that is enough to 1200 MHz by the constant, and not by its own latency."""
    times = ([0.0, 50, 100, 200, 300], [50.0, 100, 200, 300, 310])
    clocks = (1410, 1200, 1410, 900, 0)
    for drive, second_mhz in (
        (Drive(clocks), 1200),
        (Drive(clocks, to_1200=60), 1410),
        (Drive(clocks, to_900=60), 1200),
    ):
        drive.iteration(*times)
        asked_mhz = drive.iteration(*times, iteration=1)
        assert (asked_mhz[1], asked_mhz[3]) == (second_mhz, 900)


def test_zero_leaves_the_clock_as_it_is() -> None:
    drive = Drive(clocks=(1410, 0, 0, 900, 0))
    assert drive.iteration([0, 50, 110, 200, 300], [50, 100, 200, 300, 310]) == [1410, 900, 900, 900, 1410, 1410]


def least_ms(drive: Drive) -> float | None:
    """Of the instruction that runs or comes next."""
    least_ns = drive.pilot.least_duration_ns(drive.position.index)
    return None if least_ns is None else least_ns / MS


def test_an_instruction_takes_no_less_than_in_its_last_four_runs_at_these_clocks() -> None:
    drive = Drive()
    for iteration, first_ms in enumerate((50, 90, 55, 54, 60, 58)):  # 90 ms: once, the device was disturbed
        begin_ms = 1000 * iteration
        drive.step(Event.ITERATION_BEGIN, at_ms=begin_ms, iteration=iteration)
        drive.step(Event.BEGIN, 0, begin_ms)
        assert least_ms(drive) == (None, 50, 50, 50, 50, 54)[iteration]
        drive.step(Event.END, 0, begin_ms + first_ms)
    drive.clocks = (1200,) * 5
    drive.step(Event.ITERATION_BEGIN, at_ms=9000, iteration=6)
    drive.step(Event.BEGIN, 0, 9000)
    assert least_ms(drive) == 54, "a lower clock makes it no faster"
    earlier = ExactRun(0, 0, 0, 50 * MS, RanAt(CLOCKS, None))  # the device tells of it only now
    drive.pilot.remember(earlier)
    assert least_ms(drive) == 54
    drive.clocks = (1800,) * 5
    drive.step(Event.ITERATION_BEGIN, at_ms=10_000, iteration=7)
    assert least_ms(drive) == 36, "a higher clock makes it faster by no more than its own ratio"
    drive.clocks = None
    drive.step(Event.ITERATION_BEGIN, at_ms=11_000, iteration=8)
    assert least_ms(drive) is None


def test_one_disturbed_run_does_not_make_a_short_instruction_a_long_one() -> None:
    drive = Drive(clocks=(1410, 1200, 1410, 900, 0), latency_ms=10)
    times = ([0.0, 50, 55, 150, 250], [50.0, 55, 150, 250, 260])
    for iteration in range(3):
        drive.iteration(*times, iteration=iteration)
    drive.iteration([0, 50, 95, 150, 250], [50, 95, 150, 250, 260], iteration=3)
    assert drive.iteration(*times, iteration=4) == [1410, 1410, 1410, 900, 1410, 1410]


def test_the_least_of_what_the_rank_waits_for_is_known_between_instructions_alone() -> None:
    drive = Drive()
    drive.iteration([0, 100, 200, 300, 400], [80, 170, 290, 395, 410])
    assert drive.pilot.least_of_next(drive.position) is None  # between iterations
    drive.step(Event.ITERATION_BEGIN, at_ms=500, iteration=1)
    assert drive.pilot.least_of_next(drive.position) == (0, 80 * MS)
    drive.step(Event.BEGIN, 0, 500)
    assert drive.pilot.least_of_next(drive.position) is None
    drive.step(Event.END, 0, 580)
    assert drive.pilot.least_of_next(drive.position) == (20 * MS, 70 * MS)
    for index in range(1, len(ORDER)):
        drive.step(Event.BEGIN, index, 500 + 100 * index)
        drive.step(Event.END, index, 550 + 100 * index)
    assert drive.pilot.least_of_next(drive.position) is None  # behind the last
    drive.clocks = (1200,) * 5
    drive.step(Event.ITERATION_BEGIN, at_ms=1500, iteration=2)
    assert drive.pilot.least_of_next(drive.position) == (0, 80 * MS)  # no faster at a lower clock, if not known


def test_looks_go_by_what_a_plan_took_before_a_probe_and_clocks_do_not() -> None:
    drive = Drive()
    begins, ends = [0.0, 100, 200, 300, 400], [80.0, 170, 290, 395, 410]
    for iteration, clocks in enumerate((CLOCKS, (1200,) * 5, (1100,) * 5, (1000,) * 5)):
        drive.clocks = clocks
        drive.iteration(begins, [end + iteration for end in ends], iteration=iteration)
        drive.pilot.remember_tail(iteration * MS)
    for iteration, (clocks, taken_ms) in enumerate(
        (((1100,) * 5, 82), ((1000,) * 5, 83), (CLOCKS, 70 / 1.41)), start=4
    ):
        drive.clocks = clocks
        drive.step(Event.ITERATION_BEGIN, at_ms=1000 * iteration, iteration=iteration)
        expected = (0, round(taken_ms * MS))
        assert drive.pilot.least_of_next(drive.position) == expected
        drive.step(Event.BEGIN, 0, 1000 * iteration)
        assert drive.pilot.least_duration_ns(drive.position.index) == expected[1]
        drive.step(Event.END, 0, 1000 * iteration + 70)
        for index in range(1, len(ORDER)):
            drive.step(Event.BEGIN, index, 1000 * iteration + 100 * index)
            drive.step(Event.END, index, 1000 * iteration + 100 * index + 50)
        tail_ns = {4: 2 * MS, 5: 3 * MS}.get(iteration)
        assert drive.pilot.least_of_next(drive.position) == (None if tail_ns is None else (tail_ns, 0))
    drive.pilot.remember_tail(9 * MS)
    drive.pilot.remember_tail(7 * MS)
    assert drive.pilot.least_of_next(drive.position) == (7 * MS, 0)


def test_lengths_at_released_clocks_stand_for_a_plans_first_iteration() -> None:
    drive = Drive(clocks=None)
    begins_ms: list[float] = [0, 50, 55, 200, 300]
    ends_ms: list[float] = [50, 55, 200, 300, 310]  # 0F1 is over before a change reaches it
    assert drive.iteration(begins_ms, ends_ms) == [None] * 6
    drive.clocks = drive.next_clocks = (1410, 1200, 750, 900, 0)
    assert drive.iteration(begins_ms, ends_ms, iteration=1)[:3] == [1410, 750, 750]
