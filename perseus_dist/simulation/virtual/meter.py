"""An agent's meter in virtual time: readings as NVML gives them, straight from the simulated GPU."""

from collections import deque

from perseus_dist.agent.measuring.counter import Edge, EdgeTracker
from perseus_dist.device.nvml.meter import MeterSample
from perseus_dist.simulator.gpu import SimulatedGpu

DRIVER_VERSION = "580.00.simulated"


class VirtualMeter:
    """One GPU's meter, and the close watch of its energy counter.

    The watch needs no moments of its own: what a reading at any time would have shown is kept by the simulated GPU, so
    its readings are made up for before anything else happens to the agent.

    Attributes:
        name, driver_version, clocks_mhz, memory_mib, default_power_limit_w, power_limit_w: As from NVML.
        reading_ns: The next reading of the close watch, which ``edges`` makes up for; None where there is none.
    """

    def __init__(self, gpu: SimulatedGpu) -> None:
        self._gpu = gpu
        self.name = gpu.preset.nvml_name
        self.driver_version = DRIVER_VERSION
        self.clocks_mhz = gpu.preset.clocks_mhz
        self.memory_mib = gpu.preset.memory_mib
        self.default_power_limit_w = gpu.preset.power_limits_w[1]
        self.power_limit_w = gpu.state().power_limit_w
        self._period_ns = round(gpu.preset.timing.energy_period_s * 1e9)
        self._tracker: EdgeTracker | None = None
        self.reading_ns: int | None = None
        self._energy_mj = 0
        self._published: deque[tuple[int, int]] = deque()

    def sample(self, now_ns: int) -> MeterSample:
        """Energy, power, clock, throttle reasons and temperature, all of one moment."""
        reading = self._gpu.read()
        return MeterSample(
            time_before_ns=now_ns,
            time_after_ns=now_ns,
            energy_mj=reading.energy_mj,
            power_mw=reading.power_mw,
            clock_mhz=reading.clock_mhz,
            event_reasons=reading.event_reasons,
            temperature_c=reading.temperature_c,
        )

    def watch_energy(self, is_on: bool, now_ns: int) -> None:  # noqa: FBT001 - a switch
        """Begin, with a reading now, or end to watch the counter closely."""
        self._tracker = EdgeTracker(self._period_ns) if is_on else None
        self.reading_ns = now_ns if is_on else None
        self._published.clear()
        self._energy_mj = self._gpu.keep_counter(is_on)

    def edges(self, until_ns: int) -> list[tuple[int, Edge]]:
        """(when it was found [ns], the edge) that readings have shown before ``until_ns``, since the last call."""
        tracker, now_ns = self._tracker, self.reading_ns
        if tracker is None or now_ns is None:
            return []
        published = self._published
        published.extend(self._gpu.published())
        found = []
        energy_mj = self._energy_mj
        while now_ns < until_ns:
            while published and published[0][0] <= now_ns:
                energy_mj = published.popleft()[1]
            edge = tracker.add(now_ns, energy_mj, now_ns)
            if edge is not None:
                found.append((now_ns, edge))
            quiet_ns = min(until_ns, published[0][0]) if published else until_ns
            now_ns = tracker.pass_unchanged(tracker.next_reading_ns(now_ns), energy_mj, quiet_ns)
        self.reading_ns, self._energy_mj = now_ns, energy_mj
        return found
