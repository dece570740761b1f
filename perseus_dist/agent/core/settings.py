"""Settings that a rank's agent starts with, apart from the rank's coordinates."""

from dataclasses import dataclass

from perseus_dist.messages.from_agent import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings that an operator may change.

    Attributes:
        lease_s: Clocks are released when no boundary came for this long, and the longest instruction on top.
        holds_without_planner: Whether clocks go on as last agreed while the planner is away. Else they are released:
            one that ends with its job may be gone for good.
        drift_tolerance: Share by which an instruction's time may leave the profile.
        version: Of the package, for the planner.
        host: Name of the node, for the planner.
        host_clock: As of ``RunTimes``.
        keeps_timeline: Whether ``KeepTimeline`` is wanted: a report is written.
        follows_moments: Whether clocks may change within an iteration whose instructions cannot be seen, by time.
    """

    lease_s: float = 2.0
    holds_without_planner: bool = True
    drift_tolerance: float = 0.1
    version: str = ""
    host: str = ""
    host_clock: str = ""
    keeps_timeline: bool = True
    follows_moments: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedProfile:
    """Rows that stand in for a sweep."""

    samples: tuple[Sample, ...]
    blocking_power_w: float
