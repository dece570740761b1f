"""Actions that the agent's core returns, for its process to carry out."""

from dataclasses import dataclass

from perseus_dist.messages.from_agent import AgentMessage, IterationReport
from perseus_dist.runlog.timed_iteration import TimedIteration


@dataclass(frozen=True, slots=True)
class RequestClock:
    """Ask the clock control for a clock; None releases it."""

    clock_mhz: int | None


@dataclass(frozen=True, slots=True)
class Send:
    """Send to the planner, in this order, on the stream that is open."""

    message: AgentMessage


@dataclass(frozen=True, slots=True)
class ReadMeter:
    """Take a whole reading of the meter now: an iteration begins."""


@dataclass(frozen=True, slots=True)
class WatchEnergy:
    """Follow the edges of the energy counter from now on, or no more."""

    is_on: bool


@dataclass(frozen=True, slots=True)
class LeavePlanner:
    """Close the stream and try no more."""


@dataclass(frozen=True, slots=True)
class KeepReports:
    """Write these to the report's file, where there is one; each is given once."""

    reports: tuple[IterationReport, ...]


@dataclass(frozen=True, slots=True)
class KeepTimeline:
    """Write these to the report's timeline in place of the earlier ones, where there is a report.

    Attributes:
        switch_latency_s: From asking for a clock to having it, as seen so far; 0 before the first.
    """

    iterations: tuple[TimedIteration, ...]
    switch_latency_s: float


@dataclass(frozen=True, slots=True)
class LogDebug:
    """One line for debugging."""

    sentence: str


@dataclass(frozen=True, slots=True)
class LogWarning:
    """One line for the log: something is not as it should be."""

    sentence: str


Action = (
    RequestClock | Send | ReadMeter | WatchEnergy | LeavePlanner | KeepReports | KeepTimeline | LogDebug | LogWarning
)
