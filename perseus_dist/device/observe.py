"""Clock control where no clock can be set: the job is profiled and reported on, and runs as it would without us."""

from dataclasses import dataclass

from perseus_dist.device.control import ClockReport


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserveOnly:
    """A ``ClockControl`` that sets nothing."""

    refusal: str
    name: str = "observe"
    clocks_mhz: tuple[int, ...] = ()

    def request(self, clock_mhz: int | None, now_ns: int) -> None:
        """Sets no clock."""

    def fileno(self) -> int:
        """Nothing to wait for."""
        return -1

    def poll(self, now_ns: int) -> list[ClockReport]:  # noqa: ARG002
        """Nothing to report."""
        return []

    def close(self) -> None:
        """Nothing to release."""
