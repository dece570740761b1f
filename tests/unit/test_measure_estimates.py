"""From readings to figures: against known truths, and against simulated GPUs in virtual time."""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseus_dist.agent.measuring.counter import Edge
from perseus_dist.measure.estimates import Quantiles, busy_spans, change_ns, counter_period_s, mean_power_w, undisturbed
from perseus_dist.simulator.machine import SimulatedMachine

MS = 1_000_000


def edges(period_ns: int, power_w: float, num: int, *, width_ns: int = MS, first_ns: int = 0) -> list[Edge]:
    """Publications of a counter under constant power, each somewhere between its bounds."""
    random = np.random.default_rng(0)
    found = []
    for k in range(num):
        at_ns = first_ns + k * period_ns
        earliest_ns = at_ns - int(random.integers(0, width_ns))
        energies_mj = [round(ns * power_w / 1e6) for ns in (at_ns, at_ns - period_ns)]
        found.append(Edge(earliest_ns, earliest_ns + width_ns, *energies_mj))
    return found


def test_power_is_the_slope_and_its_error_covers_the_truth() -> None:
    power_w, se_w = mean_power_w(edges(20 * MS, 300.0, 30), [(-MS, 10**9)], 20 * MS) or (0.0, 0.0)
    assert power_w == pytest.approx(300.0, abs=3 * se_w)
    assert 0 < se_w < 1.0


def test_what_was_published_outside_counts_for_nothing() -> None:
    before = edges(20 * MS, 900.0, 10, first_ns=-400 * MS)
    within = [e._replace(energy_mj=e.energy_mj + 10**6) for e in edges(20 * MS, 300.0, 20)]
    told = mean_power_w([*before, *within], [(-MS, 10**9)], 20 * MS)
    assert told is not None
    assert told[0] == pytest.approx(300.0, rel=0.01)


def test_badly_located_publications_tell_no_power() -> None:
    assert mean_power_w(edges(20 * MS, 300.0, 30, width_ns=6 * MS), [(-10 * MS, 10**9)], 20 * MS) is None
    assert mean_power_w(edges(20 * MS, 300.0, 3), [(-MS, 10**9)], 20 * MS) is None


RUN_NS, IDLE_W, BUSY_W = 35 * MS, 60.0, 460.0


def runs_with_pauses(pauses_ns: dict[int, int]) -> tuple[list[int], list[int]]:
    """Forty equal runs, before some of which the device waited for its host."""
    begins, ends, now_ns = [], [], 0
    for k in range(40):
        now_ns += pauses_ns.get(k, 0)
        begins.append(now_ns)
        now_ns += RUN_NS
        ends.append(now_ns)
    return begins, ends


def counted_energy(begins: list[int], ends: list[int], period_ns: int) -> list[Edge]:
    """Publications of the energy of a device that draws less while it waits."""
    found: list[Edge] = []
    for at_ns in range(period_ns, ends[-1], period_ns):
        busy_ns = sum(max(0, min(end, at_ns) - begin) for begin, end in zip(begins, ends, strict=True))
        energy_mj = round((busy_ns * BUSY_W + (at_ns - busy_ns) * IDLE_W) / 1e6)
        before_mj = found[-1].energy_mj if found else 0
        found.append(Edge(at_ns - MS // 10, at_ns + MS // 10, energy_mj, before_mj))
    return found


@given(st.dictionaries(st.integers(1, 39), st.integers(MS, 300 * MS), max_size=6))
def test_pauses_of_a_host_that_is_late_are_in_no_power(pauses_ns: dict[int, int]) -> None:
    begins, ends = runs_with_pauses(pauses_ns)
    edges = counted_energy(begins, ends, 20 * MS)
    told = mean_power_w(edges, busy_spans(begins, ends, 5 * MS), 20 * MS)
    assert told is not None
    assert told[0] == pytest.approx(BUSY_W, abs=max(0.001 * BUSY_W, 4 * told[1]))


def test_a_span_ends_where_the_device_waits_before_a_run_or_within_one() -> None:
    begins, ends = runs_with_pauses({10: 20 * MS})
    begins, ends = [*begins, ends[-1], ends[-1] + 2 * RUN_NS], [*ends, ends[-1] + 2 * RUN_NS, ends[-1] + 3 * RUN_NS]
    assert busy_spans(begins, ends, MS) == [
        (MS, begins[9]),
        (begins[10] + MS, begins[40]),
        (begins[41] + MS, ends[41]),
    ]


def test_a_device_that_always_waits_for_its_host_as_long_is_measured_as_it_is() -> None:
    begins, ends = runs_with_pauses(dict.fromkeys(range(1, 40), 10 * MS))
    assert busy_spans(begins, ends, MS) == [(MS, ends[-1])]


@given(st.floats(0.015, 0.11), st.sets(st.integers(1, 38), max_size=20))
def test_period_with_publications_missed(period_s: float, missed: set[int]) -> None:
    seen = [edge for k, edge in enumerate(edges(round(period_s * 1e9), 300.0, 40)) if k not in missed]
    steps = [later.energy_mj - earlier.energy_mj for earlier, later in pairwise(seen)]
    told = counter_period_s(seen, 1.2 * period_s)
    if max(steps) <= 3 * 300.0 * period_s * 1e3:  # a guess that is 20 % off cannot count longer gaps
        assert told == pytest.approx(period_s, rel=0.05)


def test_no_period_of_too_few() -> None:
    assert counter_period_s(edges(20 * MS, 300.0, 4), 0.02) is None


def kernels(
    old_ns: int, new_ns: int, change_at_ns: int, num: int, noise: Sequence[float]
) -> tuple[list[int], list[int]]:
    """Equal kernels end to end, of which each takes ``old_ns`` at the clock before and ``new_ns`` after the change."""
    begins, ends, now_ns = [], [], 0.0
    for k in range(num):
        begins.append(round(now_ns))
        old, new = old_ns * (1 + noise[k % len(noise)]), new_ns * (1 + noise[k % len(noise)])
        done = min(1.0, max(0.0, (change_at_ns - now_ns) / old))
        now_ns += done * old + (1 - done) * new
        ends.append(round(now_ns))
    return begins, ends


@given(
    st.floats(10.0, 40.0),
    st.floats(0.4, 3.0).filter(lambda ratio: abs(ratio - 1) > 0.1),
    st.randoms(use_true_random=False),
)
def test_the_moment_of_a_change_lies_within_a_kernel(change_ms: float, ratio: float, random: object) -> None:
    noise = np.random.default_rng(random.randrange(2**32)).normal(0, 0.01, 200)  # type: ignore[attr-defined]
    begins, ends = kernels(500_000, round(500_000 * ratio), round(change_ms * MS), 150, noise.tolist())
    told = change_ns(begins, ends, 5 * MS)
    assert told is not None
    assert told == pytest.approx(change_ms * MS, abs=max(500_000, 500_000 * ratio))


def test_one_slow_kernel_is_no_change_and_does_not_hide_one() -> None:
    begins, ends = kernels(500_000, 500_000, 0, 120, [0.0, 0.002, -0.002])
    assert change_ns(begins, ends, 10 * MS) is None
    begins, ends = kernels(500_000, 800_000, 25 * MS, 120, [0.0, 0.002, -0.002])
    shifted = [
        (b + 2 * MS * (k > 30), e + 2 * MS * (k >= 30)) for k, (b, e) in enumerate(zip(begins, ends, strict=True))
    ]
    told = change_ns([b for b, _ in shifted], [e for _, e in shifted], 10 * MS)
    assert told == pytest.approx(27 * MS, abs=MS)


def test_too_few_kernels_tell_nothing() -> None:
    begins, ends = kernels(500_000, 800_000, 25 * MS, 120, [0.0])
    assert change_ns(begins, ends, 1 * MS) is None  # two before the request
    assert change_ns(begins[:25], ends[:25], 10 * MS) is None  # none after the change


@pytest.mark.parametrize("gpu", ["a100", "a40", "h100"])
@pytest.mark.parametrize("is_up", [False, True])
def test_a_simulated_gpus_change_is_found_to_a_tenth_of_a_kernel(gpu: str, is_up: bool) -> None:  # noqa: FBT001
    with SimulatedMachine(gpu, virtual=True) as machine:
        device = machine.gpu(0)
        highest_mhz, lowest_mhz = device.preset.clocks_mhz[0], device.preset.clocks_mhz[20]
        before, after = (lowest_mhz, highest_mhz) if is_up else (highest_mhz, lowest_mhz)
        device.request_clock(before)
        machine.advance(50 * MS)
        marks = []
        for _ in range(200):
            marks.append(device.stream.event())
            device.stream.kernel("backward", 0.0005)
            marks.append(device.stream.event())
        machine.advance(20 * MS + 123_456)
        request_ns = machine.now_ns
        device.request_clock(after)
        truth_ns = device.read().pending_at_ns
        machine.advance(200 * MS)
        times_ns = [mark.time_ns() or 0 for mark in marks]
        told = change_ns(times_ns[::2], times_ns[1::2], request_ns)
    assert truth_ns > request_ns
    assert told == pytest.approx(truth_ns, abs=50_000)


def test_a_run_that_waited_for_its_launch_does_not_count() -> None:
    assert undisturbed([0.035, 0.035, 0.036, 0.035, 0.035]) == [0.035] * 4
    scattered = [0.030, 0.032, 0.035, 0.038, 0.040]  # as under a power cap
    assert undisturbed(scattered) == scattered


def test_quantiles() -> None:
    told = Quantiles.of([float(value) for value in range(101)])
    assert (told.num, told.median, told.p90, told.p99, told.worst) == (101, 50.0, 90.0, 99.0, 100.0)
    nothing = Quantiles.of([])
    assert nothing.num == 0
    assert math.isnan(nothing.median)
