"""The agent's core at the limits: when the meter is read, what is told of clock control, how late is live."""

import pytest
from builders import make_rank
from test_agent_core import MS, SCHEDULE, S

from perseus_dist.agent.core.actions import Action, KeepReports, LogWarning, ReadMeter
from perseus_dist.agent.core.core import AgentCore
from perseus_dist.agent.following.rank_program import schedule_digest
from perseus_dist.boundaries.reader import TimedBoundary
from perseus_dist.boundaries.record import Boundary, Event
from perseus_dist.device.nvml.meter import MeterSample
from perseus_dist.messages.terms import Gpu


def core(period_ms: float = 100) -> AgentCore:
    gpu = Gpu(
        uuid="GPU-0",
        name="A100",
        driver_version="550",
        clocks_mhz=(1410, 1200),
        control="clockd",
        energy_period_s=period_ms / 1e3,
    )
    rank = make_rank(schedule_digest=schedule_digest(SCHEDULE))
    return AgentCore(rank=rank, schedule=SCHEDULE, gpu=gpu, incarnation=1)


def begin(made: AgentCore, iteration: int, time_ns: int, now_ns: int) -> list[Action]:
    boundary = Boundary(iteration, Event.ITERATION_BEGIN, "", 0, -1, iteration, 0, 0)
    return made.on_boundaries([TimedBoundary(boundary, time_ns)], now_ns)


@pytest.mark.parametrize(("period_ms", "gap_ns"), [(100, 25 * MS), (20, 5 * MS), (0, 5 * MS)])
@pytest.mark.parametrize("later_ns", [0, 1])
def test_the_meter_is_read_as_an_iteration_begins_unless_it_just_was(
    period_ms: float, gap_ns: int, later_ns: int
) -> None:
    made = core(period_ms)
    sample = MeterSample(
        time_before_ns=9 * S,
        time_after_ns=10 * S,
        energy_mj=1000,
        power_mw=None,
        clock_mhz=1410,
        event_reasons=0,
        temperature_c=None,
    )
    made.on_meter(sample, 10 * S)
    time_ns = 10 * S + gap_ns + later_ns
    assert (ReadMeter() in begin(made, 0, time_ns, time_ns)) == bool(later_ns)


def test_the_meter_is_read_where_it_never_was() -> None:
    assert ReadMeter() in begin(core(), 0, S, S)


def test_clock_control_that_is_lost_or_back_is_told_once() -> None:
    made = core()
    told = [made.on_control(refusal, S) for refusal in ("", "no rights", "no rights", "gone", "", "")]
    lost = [LogWarning("clock control lost: no rights")], [LogWarning("clock control lost: gone")]
    assert told == [[], lost[0], [], lost[1], [LogWarning("clock control is back")], []]


@pytest.mark.parametrize(
    ("late_ns", "lasts_ns", "is_live"),
    [(S, S, True), (S + 1, S, False), (2 * S, 100 * S, True), (11 * S, 100 * S, False)],
)
def test_exact_times_that_are_read_long_afterwards_say_nothing_of_now(
    late_ns: int, lasts_ns: int, *, is_live: bool
) -> None:
    made = core()
    begin(made, 0, 10 * S, 10 * S + late_ns)
    begin(made, 1, 10 * S + lasts_ns, 10 * S + lasts_ns)
    actions = made.on_timer(10 * S + lasts_ns + 60 * S)
    reports = [report for action in actions if isinstance(action, KeepReports) for report in action.reports]
    assert [(report.iteration, report.is_live) for report in reports] == [(0, is_live)]
