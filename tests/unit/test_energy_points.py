"""Energy of iterations from a counter that ticks, against the power that was drawn."""

import random
from collections.abc import Callable

import pytest

from perseus_dist.agent.core.energy_points import EnergyPoints
from perseus_dist.agent.core.ledger import Ledger
from perseus_dist.agent.measuring.counter import EdgeTracker
from perseus_dist.device.nvml.meter import MeterSample

MS = 1_000_000
FULL_W, PLAN_W = 600.0, 450.0


def sample(now_ns: int, energy_mj: int | None) -> MeterSample:
    return MeterSample(
        time_before_ns=now_ns,
        time_after_ns=now_ns,
        energy_mj=energy_mj,
        power_mw=None,
        clock_mhz=None,
        event_reasons=None,
        temperature_c=None,
    )


class Meter:
    """A counter that ticks, read as the agent does."""

    def __init__(self, period_ns: int, phase_ns: int, energy_j: Callable[[int], float]) -> None:
        self.period_ns, self.phase_ns, self.energy_j = period_ns, phase_ns, energy_j
        self.ledger = Ledger()
        self.points = EnergyPoints(self.ledger, period_ns)
        self.num_readings = 0

    def read_mj(self, now_ns: int) -> int:
        """What was published last."""
        self.num_readings += 1
        published_ns = (now_ns - self.phase_ns) // self.period_ns * self.period_ns + self.phase_ns
        return round(1e3 * self.energy_j(max(0, published_ns)))

    def begin_iteration(self, number: int, now_ns: int, *, late_ns: int, is_stuck: bool = False) -> None:
        """An iteration begins; the agent sees it late, takes a reading, and watches for as long as that is wanted."""
        self.ledger.begin_iteration(number, now_ns)
        self.points.begin_iteration(now_ns)
        looked_ns = now_ns + late_ns
        is_watched = self.points.wants_edges(looked_ns)
        stuck_mj = self.read_mj(looked_ns)
        self.points.add_sample(sample(looked_ns, stuck_mj), is_watched=is_watched)
        tracker = EdgeTracker(self.period_ns)
        while self.points.wants_edges(looked_ns):
            edge = tracker.add(looked_ns, stuck_mj if is_stuck else self.read_mj(looked_ns), looked_ns)
            if edge is not None:
                self.points.add_edge(edge)
            looked_ns = tracker.next_reading_ns(looked_ns)


@pytest.mark.parametrize("period_ns", [60 * MS, 100 * MS])
@pytest.mark.parametrize("iteration_ms", [121, 286, 450, 501, 911.9, 1000, 1002.7, 2900])
def test_each_iteration_has_the_energy_that_was_drawn(period_ns: int, iteration_ms: float) -> None:
    iteration_ns = round(iteration_ms * MS)
    rng = random.Random(f"{period_ns} {iteration_ms}")
    step_ns = 1_000 * MS + 12 * iteration_ns  # clocks change as iteration 12 begins

    def energy_j(ns: int) -> float:
        return (FULL_W * min(ns, step_ns) + PLAN_W * max(0, ns - step_ns)) / 1e9

    for _ in range(8):
        meter = Meter(period_ns, rng.randrange(period_ns), energy_j)
        begins_ns = [1_000 * MS + k * iteration_ns for k in range(25)]
        for k, begin_ns in enumerate(begins_ns):
            meter.begin_iteration(k, begin_ns, late_ns=rng.randrange(16 * MS))
        reports = meter.ledger.take(begins_ns[-1] + 10**10, is_last=True)
        assert len(reports) == 24
        for report in reports[2:]:
            truth_j = energy_j(begins_ns[report.iteration + 1]) - energy_j(begins_ns[report.iteration])
            # Up to 1/16 of a period at either end; and where clocks change, up to 1/4, or until what was seen so late.
            changed_s = max(period_ns / 4, 36 * MS) / 1e9 if report.iteration in {11, 12} else 0.0
            allowed_j = 2 / 16 * period_ns / 1e9 * FULL_W + changed_s * (FULL_W - PLAN_W) + 0.01
            assert report.energy_j == pytest.approx(truth_j, abs=allowed_j)
        assert meter.num_readings <= 14 * len(begins_ns)


def test_what_a_rank_does_when_its_begin_is_seen_is_not_what_it_did_at_the_begin() -> None:
    """The last rank of a pipeline waits for 65 ms; its begins are seen 100 to 150 ms late, and 60 ms are a period."""
    rng = random.Random(0)
    begins_ns = [1_000 * MS]
    for _ in range(30):
        begins_ns.append(begins_ns[-1] + round(773 * MS * rng.uniform(0.997, 1.003)))

    def energy_j(ns: int) -> float:
        waited_ns = sum(max(0, min(65 * MS, ns - begin_ns)) for begin_ns in begins_ns)
        return (300.0 * ns - 220.0 * waited_ns) / 1e9

    meter = Meter(60 * MS, 7 * MS, energy_j)
    for k, begin_ns in enumerate(begins_ns):
        meter.begin_iteration(k, begin_ns, late_ns=rng.randrange(100, 150) * MS)
    for report in meter.ledger.take(begins_ns[-1] + 10**10, is_last=True)[2:]:
        truth_j = energy_j(begins_ns[report.iteration + 1]) - energy_j(begins_ns[report.iteration])
        assert report.energy_j == pytest.approx(truth_j, rel=0.05)


def test_a_counter_that_stands_still_is_watched_no_longer_than_two_periods_and_its_reading_counts() -> None:
    meter = Meter(100 * MS, 0, lambda ns: 300.0 * ns / 1e9)
    for k in range(6):
        meter.begin_iteration(k, k * 1000 * MS, late_ns=0, is_stuck=True)
    reports = meter.ledger.take(10**11, is_last=True)
    assert [report.energy_j for report in reports[2:-1]] == pytest.approx([300.0] * 2)
    assert meter.num_readings < 6 * 20


def test_where_no_energy_is_read_none_is_told() -> None:
    meter = Meter(100 * MS, 0, float)
    for k in range(4):
        meter.points.begin_iteration(k * 1000 * MS)
        meter.points.add_sample(sample(k * 1000 * MS, None), is_watched=meter.points.wants_edges(k * 1000 * MS))
    meter.points.give_up()
    meter.ledger.begin_iteration(0, 0)
    meter.ledger.begin_iteration(1, 1000 * MS)
    assert [report.energy_j for report in meter.ledger.take(10**11, is_last=True)] == [None]


@pytest.mark.parametrize(("iteration_ms", "period_ms"), [(60, 100), (30_000, 100), (1000, 20)])
def test_short_periods_and_very_short_and_very_long_iterations_are_not_watched(
    iteration_ms: int, period_ms: int
) -> None:
    points = EnergyPoints(Ledger(), period_ms * MS)
    for k in range(1, 5):
        points.begin_iteration(k * iteration_ms * MS)
        assert not points.wants_edges(k * iteration_ms * MS)
