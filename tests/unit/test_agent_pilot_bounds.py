"""What a rank's order is known to take, at the limits: how many runs, plans and places, and which clock is in time."""

import pytest
from test_agent_pilot import MS, ORDER, Drive

from perseus_dist.agent.core.pilot import Pilot
from perseus_dist.agent.following.exact_runs import ExactRun, RanAt
from perseus_dist.agent.following.position import ProgramPoint
from perseus_dist.boundaries.record import Event

BEGINS, ENDS = [0.0, 100, 200, 300, 400], [80.0, 170, 290, 395, 410]


def run(place: int, duration_ms: float, idle_ms: float = 0.0, clocks_mhz: tuple[int, ...] | None = None) -> ExactRun:
    return ExactRun(place, 0, round(idle_ms * MS), round(duration_ms * MS), RanAt(clocks_mhz, None))


def wanted(
    pilot: Pilot, index: int, clocks_mhz: tuple[int, ...], *, latency_ms: float, current_mhz: int = 0
) -> int | None:
    return pilot.wanted_mhz(
        ProgramPoint(index=index),
        clocks_mhz=clocks_mhz,
        next_clocks_mhz=(700,) * 5,
        current_mhz=current_mhz,
        latency_ns=round(latency_ms * MS),
    )


@pytest.mark.parametrize(("latency_ms", "asked_mhz"), [(10, 1200), (15, 1200), (15.001, 1100), (14.999, 1200)])
def test_a_clock_is_asked_for_where_the_instruction_outlasts_the_latency_with_the_wait_before_it(
    latency_ms: float, asked_mhz: int
) -> None:
    pilot = Pilot(ORDER)
    pilot.remember(run(1, 10, idle_ms=5))
    pilot.remember(run(2, 40))
    asked = wanted(pilot, 1, (1400, 1200, 1100, 900, 0), latency_ms=latency_ms)
    assert asked == (asked_mhz if latency_ms != 15 else 1100), "not at the very end of it"


def test_what_is_ahead_adds_up_until_a_clock_is_in_time() -> None:
    pilot = Pilot(ORDER)
    for place in range(4):
        pilot.remember(run(place, 10))
    found = [wanted(pilot, 0, (1400, 1300, 1200, 1100, 0), latency_ms=ms) for ms in (9, 19, 29, 39)]
    assert found == [1400, 1300, 1200, 1100]
    assert wanted(pilot, 0, (1400, 1300, 1200, 1100, 0), latency_ms=41) == 700, "none of this iteration's is"
    assert wanted(pilot, 0, (1400, 1300, 1200, 1100, 0), latency_ms=29, current_mhz=1300) == 1300


def test_behind_the_last_clocked_instruction_the_next_iterations_first_clock_is_asked_for() -> None:
    pilot = Pilot(ORDER)
    clocks_mhz = (1400, 1300, 1200, 1100, 0)
    assert [wanted(pilot, index, clocks_mhz, latency_ms=1) for index in range(5)] == [1400, 1300, 1200, 1100, 700]
    assert (
        pilot.wanted_mhz(
            ProgramPoint(index=4),
            clocks_mhz=clocks_mhz,
            next_clocks_mhz=(0, 0, 0, 0, 500),
            current_mhz=1234,
            latency_ns=0,
        )
        == 1234
    ), "a constant has no clock"


@pytest.mark.parametrize(("runs_ms", "latency_ms"), [((10, 30), 20), ((10, 30, 14), 14), ((10, 12, 30, 18), 15)])
def test_an_instruction_is_as_long_as_the_median_of_its_runs(runs_ms: tuple[float, ...], latency_ms: float) -> None:
    for more_ms, asked_mhz in ((-0.01, 1300), (0.01, 1200)):
        pilot = Pilot(ORDER)
        for duration_ms in runs_ms:
            pilot.remember(run(1, duration_ms))
        pilot.remember(run(2, 100))
        assert wanted(pilot, 1, (1400, 1300, 1200, 1100, 0), latency_ms=latency_ms + more_ms) == asked_mhz


def test_the_latest_four_runs_count() -> None:
    pilot = Pilot(ORDER)
    least = []
    for duration_ms in (5, 9, 8, 7, 6, 10):
        pilot.remember(run(0, duration_ms))
        known_ns = pilot.least_duration_ns(0)
        assert known_ns is not None
        least.append(known_ns // MS)
    assert least == [5, 5, 5, 5, 6, 6]


def test_the_least_wait_and_the_least_duration_need_not_be_of_the_same_run() -> None:
    drive = Drive()
    drive.iteration(BEGINS, ENDS)
    drive.iteration([0.0, 110, 200, 300, 400], [80.0, 170, 290, 395, 410], iteration=1)
    drive.step(Event.ITERATION_BEGIN, at_ms=500, iteration=2)
    drive.step(Event.BEGIN, 0, 500)
    drive.step(Event.END, 0, 580)
    assert drive.pilot.least_of_next(drive.position) == (20 * MS, 60 * MS)


def test_what_three_plans_took_is_known_when_they_come_back() -> None:
    drive = Drive()
    plans = [(clock,) * 5 for clock in (1400, 1300, 1200, 1100)]
    for iteration, clocks in enumerate(plans):
        drive.clocks = clocks
        drive.iteration(BEGINS, [end + iteration for end in ENDS], iteration=iteration)
    for number in (1, 2, 3):
        drive.pilot.begin_iteration(plans[number])
        assert drive.pilot.least_duration_ns(0) == (80 + number) * MS
    drive.pilot.begin_iteration(plans[0])
    assert drive.pilot.least_duration_ns(0) != 80 * MS, "one of four is not"


@pytest.mark.parametrize(
    ("clocks_mhz", "next_mhz", "least_ms"),
    [
        ((1200,) * 5, (1000,) * 5, 80),
        ((1000,) * 5, (1200,) * 5, 80 / 1.2),
        ((1000,) * 5, None, None),
        (None, (1200,) * 5, 80),
        ((0,) * 5, (1200,) * 5, None),
        ((1000,) * 5, (0,) * 5, None),
    ],
    ids=["lower", "higher", "released", "from full clocks", "not clocked", "no more clocked"],
)
def test_at_other_clocks_an_instruction_gains_no_more_than_its_clock(
    clocks_mhz: tuple[int, ...] | None, next_mhz: tuple[int, ...] | None, least_ms: float | None
) -> None:
    pilot = Pilot(ORDER)
    pilot.begin_iteration(clocks_mhz)
    pilot.remember(run(0, 90, clocks_mhz=clocks_mhz))
    pilot.remember(run(0, 80, clocks_mhz=clocks_mhz))
    pilot.begin_iteration(next_mhz)
    assert pilot.least_duration_ns(0) == (None if least_ms is None else round(least_ms * MS))
    assert pilot.least_duration_ns(1) is None


def test_runs_of_the_clocks_before_are_not_those_of_these() -> None:
    pilot = Pilot(ORDER)
    pilot.begin_iteration((1200,) * 5)
    pilot.remember(run(0, 80, clocks_mhz=(1100,) * 5))
    assert pilot.least_duration_ns(0) is None
    pilot.remember(run(0, 80, clocks_mhz=(1200,) * 5))
    assert pilot.least_duration_ns(0) == 80 * MS
