"""The profiler against a GPU that is known: boundaries and counter readings synthesised, truth compared."""

import math
import random
from bisect import bisect_right
from dataclasses import dataclass

import pytest

from perseus_dist.agent.measuring.counter import Edge, EdgeTracker
from perseus_dist.agent.measuring.profiler import OUTSIDE, Activity, Estimate, Span, estimate

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
    outside_ms: float = 60.0,
    outside_w: float = 120.0,
    constants_ms: dict[str, float] | None = None,
    constants_w: float = BLOCKING_W,
    slow_from_s: float = math.inf,
    noise: float = 0.0,
) -> tuple[list[Activity], list[Edge], Span]:
    """1F1B on one rank; ``read_late`` is the share of readings that come late by up to 15 ms.

    From ``slow_from_s`` on everything takes 4 % longer. ``noise`` is the standard deviation of each time, as a share.

    ``LOAD`` of ``constants_ms`` comes before every forward, the others come once, after the last backward.
    """
    constants_ms = dict(constants_ms or {})
    load_ms = constants_ms.pop("LOAD", None)
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
        duration_ms *= (1.04 if begin >= slow_from_s * 1e9 else 1) * (rng.gauss(1, noise) if noise else 1)
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
            if kind == "F" and load_ms is not None:
                run((0, "LOAD"), load_ms, constants_w)
            run((0, kind), *((forward_ms, forward_w) if kind == "F" else (backward_ms, backward_w)))
        for constant, duration_ms in constants_ms.items():
            run((0, constant), duration_ms, constants_w)
        begin = now
        spend(round(outside_ms * MS), outside_w)
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


@pytest.mark.parametrize(
    ("period_ms", "forward_ms", "backward_ms"), [(20, 7, 13), (20, 3.5, 6.5), (20, 7, 13.02), (100, 35, 65)]
)
def test_computations_in_step_with_the_counter_are_not_told_apart_by_its_edges_errors(
    period_ms: int, forward_ms: float, backward_ms: float
) -> None:
    """Each edge comes at the same computation: one of them was said to draw 2 to 3 times as much as it does."""
    for seed in range(6):
        activities, edges, span = synthesise(
            random.Random(seed),
            period_ns=period_ms * MS,
            forward_ms=forward_ms,
            backward_ms=backward_ms,
            warm_ups=0,
            seconds=50 * period_ms / 1e3,
            read_late=0.0,
            host_late_ms=0.0,
            microbatches=16,
            wait_ms=0.02,
            outside_ms=0.01,
        )
        result = estimate(clock_mhz=1410, period_ns=period_ms * MS, spans=[span], activities=activities, edges=edges)
        _, energy_error = check(result, {"F": (forward_ms / 1e3, 310.0), "B": (backward_ms / 1e3, 345.0)})
        assert energy_error < 0.15


@pytest.mark.parametrize("constants_w", [BLOCKING_W, 200.0], ids=["waiting", "working"])
@pytest.mark.parametrize("load_ms", [0.1, 1.0, 5.0])
def test_constants_however_short_have_a_time_and_a_sane_energy(load_ms: float, constants_w: float) -> None:
    truth_ms = {"LOAD": load_ms, "TIED": 0.01, "REDUCE": 0.5, "STEP": 3.0}
    for seed in range(3):
        activities, edges, span = synthesise(
            random.Random(seed),
            period_ns=20 * MS,
            forward_ms=35,
            backward_ms=65,
            warm_ups=2,
            seconds=2.0,
            read_late=0.05,
            host_late_ms=0.0,
            constants_ms=truth_ms,
            constants_w=constants_w,
        )
        result = estimate(clock_mhz=1410, period_ns=20 * MS, spans=[span], activities=activities, edges=edges)
        assert result.trouble == ""
        samples = {sample.kind: sample for sample in result.samples}
        assert samples.keys() == {"F", "B", *truth_ms}
        for kind, duration_ms in truth_ms.items():
            assert samples[kind].time_s == pytest.approx(duration_ms / 1e3)
            # Too short to be told apart, it counts as waiting; never less, and never above the hottest computation.
            power_w = samples[kind].energy_j / samples[kind].time_s
            assert 0.7 * BLOCKING_W <= power_w <= 1.05 * 345.0
        for kind, truth_j in (("F", 0.035 * 310.0), ("B", 0.065 * 345.0)):
            assert samples[kind].energy_j == pytest.approx(truth_j, rel=0.03)


@pytest.mark.parametrize("outside_ms", [0.01, 2.0, 20.0])
def test_a_short_wait_between_iterations_is_no_computation(outside_ms: float) -> None:
    """It takes less than 1 % of the window, at a quarter of the computations' power."""
    activities, edges, span = synthesise(
        random.Random(7),
        period_ns=100 * MS,
        forward_ms=30.0,
        backward_ms=60.0,
        warm_ups=3,
        seconds=6.0,
        read_late=0.0,
        host_late_ms=0.0,
        microbatches=24,
        wait_ms=0.0,
        outside_ms=outside_ms,
        outside_w=BLOCKING_W,
    )
    result = estimate(clock_mhz=1410, period_ns=100 * MS, spans=[span], activities=activities, edges=edges)
    _, energy_error = check(result, {"F": (0.030, 310.0), "B": (0.060, 345.0)})
    assert energy_error < 0.005


def test_a_gpu_that_becomes_slow_within_the_window_does_not_seem_to_wait_at_high_power() -> None:
    """What instructions took longer counted as waiting, at the computations' power: 304 W instead of 84."""
    activities, edges, span = synthesise(
        random.Random(3),
        period_ns=100 * MS,
        forward_ms=3.9,
        backward_ms=7.3,
        warm_ups=3,
        seconds=10.0,
        read_late=0.0,
        host_late_ms=0.0,
        microbatches=16,
        wait_ms=0.2,
        outside_ms=5.0,
        outside_w=BLOCKING_W,
        slow_from_s=9.3,
    )
    result = estimate(clock_mhz=1410, period_ns=100 * MS, spans=[span], activities=activities, edges=edges)
    errors = check(result, {"F": (0.0039, 310.0), "B": (0.0073, 345.0)})
    assert errors[0] < 0.01
    assert errors[1] < 0.02
    assert result.blocking_power_w == pytest.approx(BLOCKING_W, rel=0.2)


@pytest.mark.parametrize("noise", [0.02, 0.03, 0.05])
def test_the_ends_of_long_computations_are_no_waiting(noise: float) -> None:
    """A lone stage does not wait: what noise makes longer than usual drew as much as the rest of the computation."""
    for seed in range(3):
        activities, edges, span = synthesise(
            random.Random(seed),
            period_ns=100 * MS,
            forward_ms=70,
            backward_ms=150,
            warm_ups=0,
            seconds=12,
            read_late=0.0,
            host_late_ms=0.0,
            wait_ms=0.0,
            noise=noise,
        )
        result = estimate(clock_mhz=1410, period_ns=100 * MS, spans=[span], activities=activities, edges=edges)
        assert result.trouble == ""
        assert result.blocking_power_w == 0.0


@pytest.mark.parametrize("host_late_ms", [0.0, 0.3])
def test_where_half_of_the_iterations_are_disturbed_the_others_count(host_late_ms: float) -> None:
    activities, edges, span = synthesise(
        random.Random(4),
        period_ns=20 * MS,
        forward_ms=35,
        backward_ms=65,
        warm_ups=1,
        seconds=3.3,
        read_late=0.0,
        host_late_ms=host_late_ms,
        slow_from_s=1.7,
    )
    result = estimate(clock_mhz=1410, period_ns=20 * MS, spans=[span], activities=activities, edges=edges)
    time_error, energy_error = check(result, {"F": (0.035, 310.0), "B": (0.065, 345.0)})
    assert time_error < 0.01
    assert energy_error < 0.02


def test_constants_are_timed_beyond_the_spans_of_the_clock() -> None:
    """Where one iteration fills a step, the next clock is asked for before the optimizer steps."""
    activities, edges, _ = synthesise(
        random.Random(1),
        period_ns=20 * MS,
        forward_ms=35,
        backward_ms=65,
        warm_ups=0,
        seconds=2.0,
        read_late=0.0,
        host_late_ms=0.0,
        constants_ms={"STEP": 3.0},
        microbatches=16,
    )
    step = next(activity for activity in activities if activity.key == (0, "STEP"))
    span = Span(0, step.begin_ns - 1)
    before = [activity for activity in activities if activity.end_ns <= step.end_ns]
    result = estimate(clock_mhz=1410, period_ns=20 * MS, spans=[span], activities=before, edges=edges)
    (sample,) = [sample for sample in result.samples if sample.kind == "STEP"]
    assert sample.time_s == pytest.approx(0.003)
    assert sample.energy_j == pytest.approx(0.003 * BLOCKING_W, rel=0.1)
