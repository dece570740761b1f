"""When a GPU's throttling begins or ends, the planner hears of it at once, three times, and is not run over."""

from perseus_dist.agent.measuring.held_clock import HeldClock
from perseus_dist.agent.measuring.throttle_reporter import (
    EXTRA_WINDOW_NS,
    MAX_EXTRA,
    NUM_SAME,
    READ_AGAIN_NS,
    ThrottleReporter,
)
from perseus_dist.device.control import ClockReport
from perseus_dist.device.nvml.meter import MeterSample
from perseus_dist.messages.from_agent import GpuSample

MS = 1_000_000
S = 1_000_000_000
IDLE, POWER_CAP, THERMAL, POWER_BRAKE = 0x1, 0x4, 0x20, 0x80


class Gpu:
    """A GPU that is read once a second and whenever it is asked for; what is told, and when."""

    def __init__(self, requested_mhz: int | None = 1410) -> None:
        self.clock = HeldClock()
        self.news = ThrottleReporter(self.clock)
        self.now = S
        self.num_readings = 0
        self.clock_mhz, self.reasons = 1410, 0
        self.told: list[tuple[float, GpuSample]] = []
        if requested_mhz is not None:
            self.clock.request(requested_mhz, 0)

    def sample(self) -> MeterSample:
        return MeterSample(
            time_before_ns=self.now,
            time_after_ns=self.now,
            energy_mj=None,
            power_mw=250_000,
            clock_mhz=self.clock_mhz,
            event_reasons=self.reasons,
            temperature_c=60,
        )

    def read(self) -> bool:
        self.num_readings += 1
        sample = self.sample()
        if is_news := self.news.record(sample, self.now):
            self.told.append((self.now / S, self.news.tell()))
        return is_news

    def become(self, clock_mhz: int, reasons: int) -> None:
        self.clock_mhz, self.reasons = clock_mhz, reasons

    def run(self, seconds: float) -> None:
        """Readings once a second, and those that are due out of turn."""
        until = self.now + round(seconds * S)
        while self.now < until:
            due_ns = self.news.due_ns
            self.now = min((self.now // S + 1) * S, due_ns or until)
            if self.news.is_due(self.now) or self.now % S == 0:
                self.read()

    @property
    def clocks_told(self) -> list[int]:
        return [sample.clock_mhz for _, sample in self.told]


def test_a_change_is_told_three_times_and_then_once_a_second_as_ever() -> None:
    gpu = Gpu()
    gpu.run(5)
    assert gpu.told == []
    gpu.become(1005, THERMAL)
    gpu.run(5)
    assert [at for at, _ in gpu.told] == [7.0, 7.15, 7.3]
    assert gpu.told[0][1] == GpuSample(
        requested_mhz=1410, power_w=250.0, clock_mhz=1005, event_reasons=THERMAL, temperature_c=60.0
    )
    gpu.become(1410, 0)
    gpu.run(5)
    assert gpu.clocks_told == [1005] * NUM_SAME + [1410] * NUM_SAME
    assert not gpu.news.is_due(gpu.now + 60 * S)


def test_a_change_while_another_is_told_is_told_three_times_as_well() -> None:
    gpu = Gpu()
    gpu.become(1005, THERMAL)
    gpu.run(1)
    gpu.become(1410, 0)
    gpu.run(1)
    assert gpu.clocks_told == [1005, 1410, 1410, 1410]


def test_throttled_is_who_is_below_the_clock_requested_for_a_reason() -> None:
    for clock_mhz, reasons, requested_mhz, is_throttled in (
        (1005, THERMAL, 1410, True),
        (1005, POWER_BRAKE, 1410, True),
        (1300, POWER_CAP, 1410, True),
        (1300, 0x2, 1410, False),  # what an operator set
        (1300, 0, 1410, False),
        (1395, POWER_CAP, 1410, False),  # within what an instant says
        (1005, POWER_CAP, 1005, False),
        (1300, POWER_CAP, None, True),  # no clock is requested
        (1410, 0, None, False),
        (210, IDLE | THERMAL, 1410, False),
        (0, THERMAL, 1410, False),  # not read
    ):
        gpu = Gpu(requested_mhz)
        gpu.become(clock_mhz, reasons)
        assert gpu.read() == is_throttled, (clock_mhz, reasons, requested_mhz)
        assert (gpu.news.due_ns is not None) == is_throttled


def test_a_clock_that_was_only_just_asked_for_says_nothing() -> None:
    gpu = Gpu()
    report = ClockReport(
        requested_mhz=1410,
        observed_mhz=1410,
        event_reasons=0,
        request_ns=0,
        set_ns=0,
        reached_ns=50 * MS,
        error="",
    )
    gpu.clock.report(report)
    gpu.become(1005, THERMAL)
    gpu.clock.request(1410, gpu.now - 99 * MS)  # twice the latency is 100 ms
    assert not gpu.read()
    assert gpu.news.tell() == GpuSample(power_w=250.0, temperature_c=60.0)
    gpu.now += MS
    assert gpu.read()
    gpu.clock.request(None, gpu.now)  # a release takes as long
    gpu.now += 50 * MS
    assert not gpu.read()


def test_a_reading_that_is_told_again_is_no_second_one() -> None:
    gpu = Gpu()
    gpu.read()
    assert gpu.news.tell().clock_mhz == 1410
    assert gpu.news.tell() == GpuSample(power_w=250.0, temperature_c=60.0)


def test_readings_that_say_nothing_are_read_over_while_a_change_is_told() -> None:
    gpu = Gpu()
    gpu.become(1005, THERMAL)
    gpu.run(1)
    gpu.become(210, IDLE)
    gpu.run(0.3)
    gpu.become(1005, THERMAL)
    gpu.run(1)
    assert gpu.clocks_told == [1005] * NUM_SAME


def test_a_power_cap_that_always_holds_is_told_once() -> None:
    gpu = Gpu()
    gpu.become(1300, POWER_CAP)
    gpu.run(300)
    assert gpu.clocks_told == [1300] * NUM_SAME


def test_one_that_comes_and_goes_does_not_run_the_planner_over() -> None:
    gpu = Gpu()
    for _ in range(600):
        gpu.become(1300, POWER_CAP)
        gpu.run(0.05)
        gpu.read()
        gpu.become(1410, 0)
        gpu.run(0.05)
        gpu.read()
    times = [at for at, _ in gpu.told]
    window_s = EXTRA_WINDOW_NS / S
    most = max(sum(first <= at < first + window_s for at in times) for first in times)
    assert MAX_EXTRA - 3 <= most <= MAX_EXTRA
    assert READ_AGAIN_NS == 150 * MS


def test_an_idle_gpu_is_not_read_over_and_over() -> None:
    gpu = Gpu()
    gpu.become(1005, THERMAL)
    gpu.run(1)
    gpu.become(210, IDLE)
    before = gpu.num_readings
    gpu.run(60)
    assert gpu.num_readings - before <= 60 + MAX_EXTRA


def report(observed_mhz: int) -> ClockReport:
    return ClockReport(
        requested_mhz=1200,
        request_ns=0,
        set_ns=5 * MS,
        reached_ns=None,
        observed_mhz=observed_mhz,
        event_reasons=POWER_CAP,
        error="",
    )


def test_a_power_cap_excuses_a_lower_clock_and_no_higher_one() -> None:
    for observed_mhz, is_settled in ((1005, True), (1200, True), (1410, False)):
        gpu = Gpu(1200)
        gpu.become(observed_mhz, POWER_CAP)
        gpu.clock.reading(gpu.sample())
        assert (gpu.clock.settled_ns is not None) == is_settled
        gpu = Gpu(1200)
        gpu.clock.report(report(observed_mhz))
        assert (gpu.clock.settled_ns is not None) == is_settled
        assert gpu.clock.num_missed == (not is_settled)
