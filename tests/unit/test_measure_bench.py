"""Which of several tries of a block counts, and how long a clock is waited for."""

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from perseus_dist.device.control import ClockReport
from perseus_dist.measure.bench import bench
from perseus_dist.measure.bench.bench import Bench, Block, best_block
from perseus_dist.measure.clock_sweep import choose_clocks
from perseus_dist.measure.errors import MeasureError
from perseus_dist.measure.switch_latency import measure_latencies


def block(power_se_w: float) -> Block:
    return Block(
        kind="F",
        begin_ns=0,
        end_ns=1,
        times_s=(0.1, 0.1),
        power_w=400.0,
        power_se_w=power_se_w,
        clock_mhz=1410,
        event_reasons=0,
        temperature_c=None,
    )


def begun(tries: list[Block | None], log: list[Block | None]) -> Iterator[Block | None]:
    for one in tries:
        log.append(one)
        yield one


def test_the_first_well_known_power_ends_the_tries() -> None:
    good = block(1.9)
    log: list[Block | None] = []
    assert best_block(begun([None, block(2.1), good, block(0.1)], log)) is good
    assert len(log) == 3


def test_without_one_the_best_known_power_counts() -> None:
    best = block(3.0)
    assert best_block([block(9.0), best, None, block(3.1)]) is best


def test_without_any_power_there_is_no_block() -> None:
    assert best_block([None, None, None]) is None


class FewEvents:
    """Work on a device that has only so many events."""

    def __init__(self, num_events: int) -> None:
        self.num_free = num_events

    def probe(self) -> None:
        pass

    def mark(self) -> None:
        assert self.num_free, "the device has no event that is free"
        self.num_free -= 1

    def wait(self, mark: None) -> None:
        pass

    def times_ns(self, marks: Sequence[None]) -> list[int]:
        self.num_free += len(marks)
        return [0] * len(marks)


class SlowControl:
    """Answers a request when it has been asked so often."""

    name, refusal = "slow", ""

    def __init__(self, num_polls: float) -> None:
        self._num_polls = num_polls
        self._requested: tuple[int, int] = 0, 0

    def request(self, clock_mhz: int, now_ns: int) -> None:
        self._requested = clock_mhz, now_ns

    def poll(self, now_ns: int) -> list[ClockReport]:
        self._num_polls -= 1
        clock_mhz, request_ns = self._requested
        report = ClockReport(
            requested_mhz=clock_mhz, observed_mhz=clock_mhz, event_reasons=0, request_ns=request_ns, set_ns=now_ns,
            reached_ns=now_ns, error="",
        )  # fmt: skip
        return [report] if not self._num_polls else []


@pytest.mark.parametrize("num_polls", [1, 9, 10, 11, 95])
def test_a_clock_is_waited_for_with_the_events_that_a_device_has(
    num_polls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "_PROBES_AT_ONCE", 10)
    workload = FewEvents(20)
    held = Bench(cast("Any", workload), cast("Any", SlowControl(num_polls)), cast("Any", None), 0).hold(1410)
    assert (held.requested_mhz, workload.num_free) == (1410, 20)


def test_a_clock_that_is_not_answered_for_gives_the_events_back(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = iter(range(1000))
    monkeypatch.setattr(bench, "time", SimpleNamespace(monotonic=lambda: next(now_s), monotonic_ns=lambda: 0))
    workload = FewEvents(40)
    with pytest.raises(MeasureError, match="slow has not answered for 10 s"):
        Bench(cast("Any", workload), cast("Any", SlowControl(-1)), cast("Any", None), 0).hold(1410)
    assert workload.num_free == 40


def test_a_gpu_with_a_single_clock_has_no_changes_to_measure() -> None:
    said: list[str] = []
    assert measure_latencies(cast("Bench", None), choose_clocks((1410,), 8), 1.0, said.append) == []
    assert said == []
