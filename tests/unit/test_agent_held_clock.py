"""What the clock's requests have taken lately."""

import random

from perseus_dist.agent.measuring.held_clock import HeldClock
from perseus_dist.device.control import ClockReport


def test_the_latency_is_the_upper_quartile_of_the_latest_64() -> None:
    drawn = random.Random(0)
    latencies_ns = [drawn.randrange(1_000_000, 40_000_000, 1_000_000) for _ in range(200)]  # many are alike
    clock = HeldClock()
    for number, latency_ns in enumerate(latencies_ns):
        request_ns, clock_mhz = number * 1_000_000_000, 1200 + number % 2
        clock.request(clock_mhz, request_ns)
        clock.report(
            ClockReport(
                requested_mhz=clock_mhz,
                observed_mhz=clock_mhz,
                event_reasons=0,
                request_ns=request_ns,
                set_ns=request_ns,
                reached_ns=request_ns + latency_ns,
                error="",
            )
        )
        latest = sorted(latencies_ns[max(0, number - 63) : number + 1])
        assert clock.latency_s == latest[3 * (len(latest) - 1) // 4] / 1e9
