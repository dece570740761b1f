"""Counters of the planner process; ``metrics`` shows them."""

from collections import Counter
from dataclasses import dataclass, field

from perseus_dist.planner.job.state.durations import PLANNING_BOUNDS_S, DurationHistogram


@dataclass(slots=True, kw_only=True)
class Counters:
    """Plain integers of the event loop: counting must cost next to nothing. All since the start.

    Attributes:
        received: Messages of agents, by kind.
        refused: Streams and calls that were refused, by gRPC status.
        sent: Messages to agents, by kind.
        calls: Operators' calls, by method.
        streams: Agents' streams that were begun.
        plans: Plans, by outcome.
        planning: From the request of a plan to its answer.
        store_failures: Commits that disk or database did not take.
        loop_lag_s: How late the event loop was at its latest tick.
        tick_failures: Ticks of a job that raised, which is a defect.
    """

    received: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    sent: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    streams: int = 0
    plans: Counter[str] = field(default_factory=Counter)
    planning: DurationHistogram = field(default_factory=lambda: DurationHistogram(PLANNING_BOUNDS_S))
    store_failures: int = 0
    loop_lag_s: float = 0.0
    tick_failures: int = 0
