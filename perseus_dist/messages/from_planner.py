"""From a planner to its agents: what to measure, the plans, which of them to follow."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """The answer to ``Attach``.

    Attributes:
        wants_timelines: ``RunTimes`` of iterations under a plan are of use, too.
    """

    phase: str
    table_revision: int
    acked_samples: int
    wants_timelines: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleWanted:
    """The text of this job's schedule is still missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Hold ``clocks_mhz[k]`` in iterations ``first_iteration + k * iterations_per_clock`` and so on."""

    sweep_id: int
    first_iteration: int
    iterations_per_clock: int
    clocks_mhz: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopSweep:
    """From this iteration on no clock is held."""

    sweep_id: int
    first_iteration: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Run these iterations without a plan, whatever is in force, and go on with it afterwards."""

    first_iteration: int
    num_iterations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """A rank's slice of the profile: what one kind of one chunk takes at each clock."""

    chunk: int
    kind: str
    clocks_mhz: tuple[int, ...]
    times_s: tuple[float, ...]
    energies_j: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTable:
    """One rank's clocks at every frontier point.

    Attributes:
        clocks_mhz: (num_points x num_instructions) little-endian uint16, row by row; 0 leaves the clock as it is.
        times_s, energies_j: (num_points) of the plans, the whole pipeline, ascending time.
        switch_latency_s: What the plans reckon with for changes to clocks without a latency of their own.
        change_clocks_mhz, change_latencies_s: (num_targets) the others, and their latencies.
        base_revision: 0 for a table of all pipelines. Otherwise this one is for one pipeline with a slow rank alone,
            and is held beside the table of that revision, whose profile stays the one to compare with.
        moments_ns: (num_points x (num_instructions - 1)) row by row, for a rank whose instructions cannot be seen: so
            long after its iteration began it asks for the row's second clock, and so on. Empty where each instruction
            has a clock.
    """

    revision: int
    num_points: int
    num_instructions: int
    clocks_mhz: bytes
    times_s: tuple[float, ...]
    energies_j: tuple[float, ...]
    expected: tuple[Expected, ...]
    switch_latency_s: float
    schedule_digest: str
    base_revision: int = 0
    change_clocks_mhz: tuple[int, ...] = ()
    change_latencies_s: tuple[float, ...] = ()
    moments_ns: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """Follow row ``point`` from ``effective_iteration`` on; ``NO_POINT`` releases the clocks.

    A point one past the table's last asks for the highest clock all the time.

    Attributes:
        max_slowdown: Times an iteration at full clocks that one may take, for agents whose planner is away; 0 if it is
            not known.
        deadline_s: [s] that an iteration may take at any rate; 0 for none.
        is_waiting: Whether pipelines wait for a straggler, which may recover.
    """

    table_revision: int
    point: int
    effective_iteration: int
    switch_revision: int
    max_slowdown: float = 0.0
    deadline_s: float = 0.0
    is_waiting: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileAck:
    """All samples up to this sequence are durable."""

    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Clocks are released until the next switch."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The stream ends after it."""

    reason: str
    retry: bool


PlannerMessage = (
    Attached | ScheduleWanted | Sweep | StopSweep | Probe | PlanTable | Switch | ProfileAck | Release | Refused
)
