"""The profiler against a GPU that is known: boundaries and counter readings synthesised, truth compared."""

import random
from bisect import bisect_right
from dataclasses import dataclass

import pytest

from perseus_dist.agent.counter import Edge, EdgeTracker
from perseus_dist.agent.profiler import OUTSIDE, Activity, Estimate, Span, estimate

FORWARD, BACKWARD = (0, "F"), (0, "B")
BLOCKING_W = 83.6
MS = 1_000_000


@dataclass
class Gpu:
    """Truth: pieces of constant power."""

    begins_ns: list[int]
    powers_w: list[float]
    energies_j: list[float]  # at each begin

    def energy_mj(self, time_ns: int) -> int:
        k = bisect_right(self.begins_ns, time_ns) - 1
        return int((self.energies_j[k] + self.powers_w[k] * (time_ns - self.begins_ns[k]) / 1e9) * 1e3)


def synthesise(
    rng: random.Random,
    *,
    period_ns: int,
    forward_ms: float,
    backward_ms: float,
    warm_ups: int,
    seconds: float,
    read_late: float,
    host_late_ms: float,
    forward_w: float = 310.0,
    backward_w: float = 345.0,
    microbatches: int = 8,
    wait_ms: float = 4.0,
) -> tuple[list[Activity], list[Edge], Span]:
    """1F1B on one rank; ``read_late`` is the share of readings that come late by up to 15 ms."""
    gpu = Gpu([0], [BLOCKING_W], [0.0])
    activities: list[Activity] = []
    now = 0

    def spend(duration_ns: int, power_w: float) -> None:
        nonlocal now
        gpu.begins_ns.append(now)
        gpu.powers_w.append(power_w)
        if len(gpu.begins_ns) > 1:
            passed = (now - gpu.begins_ns[-2]) / 1e9
            gpu.energies_j.append(gpu.energies_j[-1] + gpu.powers_w[-2] * passed)
        now += duration_ns

    def late_ns() -> int:
        late = rng.expovariate(1 / max(host_late_ms, 1e-9))
        return int((late + (rng.uniform(2, 30) if host_late_ms and rng.random() < 0.02 else 0)) * MS)

    def run(key: tuple[int, str], duration_ms: float, power_w: float) -> None:
        begin = now
        spend(round(duration_ms * MS), power_w)
        seen = late_ns()
        activities.append(Activity(begin, now + seen, key))
        if seen:
            spend(seen, BLOCKING_W)
        spend(round(rng.uniform(0, 2 * wait_ms) * MS) + 1, BLOCKING_W)

    steady = microbatches - warm_ups
    order = ["F"] * warm_ups + ["F", "B"] * steady + ["B"] * warm_ups
    while now < (seconds + 1) * 1e9:
        for kind in order:
            run((0, kind), *((forward_ms, forward_w) if kind == "F" else (backward_ms, backward_w)))
        begin = now
        spend(60 * MS, 120.0)
        activities.append(Activity(begin, now, OUTSIDE))
    tracker = EdgeTracker(round(period_ns * rng.uniform(0.97, 1.03)))
    edges = []
    phase = rng.randrange(period_ns)
    at = 0
    readings = 0
    while at < seconds * 1e9:
        at += int(rng.expovariate(1 / 0.08) * MS) + (int(rng.uniform(1, 15) * MS) if rng.random() < read_late else 0)
        after = at + 40_000
        published = (at + 20_000 - phase) // period_ns * period_ns + phase
        edge = tracker.add(at, gpu.energy_mj(max(0, published)), after)
        readings += 1
        if edge is not None:
            edges.append(edge)
        at = tracker.next_reading_ns(after)
    assert readings < 8 * seconds * 1e9 / period_ns  # dense only where an edge is expected
    return activities, edges, Span(0, int(seconds * 1e9))


def check(result: Estimate, truth: dict[str, tuple[float, float]]) -> tuple[float, float]:
    """The worst errors of time and of energy."""
    assert result.trouble == ""
    assert {sample.kind for sample in result.samples} == truth.keys()
    times = [abs(s.time_s / truth[s.kind][0] - 1) for s in result.samples]
    energies = [abs(s.energy_j / (truth[s.kind][0] * truth[s.kind][1]) - 1) for s in result.samples]
    return max(times), max(energies)


CASES = [
    pytest.param(
        period_ms, forward_ms, backward_ms, warm_ups, id=f"{period_ms}ms-F{forward_ms}-B{backward_ms}-w{warm_ups}"
    )
    for period_ms in (20, 100)
    for forward_ms, backward_ms, warm_ups in ((30, 60, 3), (50.3, 93.1, 0), (70, 150, 2), (33.3, 66.6, 0))
]


@pytest.mark.parametrize(("period_ms", "forward_ms", "backward_ms", "warm_ups"), CASES)
@pytest.mark.parametrize("host_late_ms", [0.0, 0.2])
def test_errors_stay_below_two_percent_in_time_and_three_in_energy(
    period_ms: int, forward_ms: float, backward_ms: float, warm_ups: int, host_late_ms: float
) -> None:
    for seed in range(3):
        activities, edges, span = synthesise(
            random.Random(seed),
            period_ns=period_ms * MS,
            forward_ms=forward_ms,
            backward_ms=backward_ms,
            warm_ups=warm_ups,
            seconds=100 * period_ms / 1e3,
            read_late=0.05,
            host_late_ms=host_late_ms,
        )
        result = estimate(clock_mhz=1410, period_ns=period_ms * MS, spans=[span], activities=activities, edges=edges)
        errors = check(result, {"F": (forward_ms / 1e3, 310.0), "B": (backward_ms / 1e3, 345.0)})
        assert errors[0] < 0.02
        assert errors[1] < 0.03
