"""Events of a simulated job besides training: every fault and every operator's order, as plain values.

Each event applies before its iteration begins. ``None``, or the neutral value that a class names, is the default again.
Ranks are global: pipeline by pipeline, pp_rank by pp_rank, tp_rank by tp_rank. A node is ``GPUS_PER_NODE`` ranks in a
row.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

GPUS_PER_NODE = 8


class ProcessAction(StrEnum):
    """A fault of a process."""

    KILL = "kill"
    STOP = "stop"
    CONTINUE = "continue"
    RESTART = "restart"


class Process(StrEnum):
    """Processes of a job. The planner is the job's; all others are a rank's."""

    AGENT = "agent"
    PLANNER = "planner"
    LEASE = "lease"
    TRAINER = "trainer"


@dataclass(frozen=True, slots=True, kw_only=True)
class _OnGpus:
    """Something about the GPU of one rank, or those of one node: exactly one of the two is given."""

    iteration: int
    rank: int | None = None
    node: int | None = None

    def ranks(self, num_ranks: int) -> tuple[int, ...]:
        """The ranks whose GPUs it is about, of a job of so many."""
        if self.rank is not None:
            return (self.rank,)
        assert self.node is not None, "the parser lets no event pass that has neither"
        first = self.node * GPUS_PER_NODE
        return tuple(range(first, min(first + GPUS_PER_NODE, num_ranks)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowDown(_OnGpus):
    """Computations take ``slowdown`` times the usual, and nothing says why; 1 is the usual."""

    slowdown: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatCap(_OnGpus):
    """The GPU is too hot for clocks above this one."""

    thermal_cap_mhz: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerCap(_OnGpus):
    """An operator sets the GPU's power limit."""

    power_limit_w: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowLink(_OnGpus):
    """Each result that the rank sends to another takes so long on its way [s]."""

    transfer_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessEvent:
    """A process is killed, stopped, continued or started again; ``rank`` is None for the planner alone."""

    iteration: int
    action: ProcessAction
    process: Process
    rank: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageDelay:
    """Messages between a rank's agent (None: every agent) and the planner take so long [s]."""

    iteration: int
    delay_s: float | None
    rank: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """Between a rank's agent (None: every agent) and the planner nothing passes, or again."""

    iteration: int
    is_partitioned: bool
    rank: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """This share of the messages between a rank's agent (None: every agent) and the planner arrives twice."""

    iteration: int
    repeat: float | None
    rank: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """This share of the messages between a rank's agent (None: every agent) and the planner is lost.

    A stream delivers in order or ends: with a lost message goes its stream, and all that is on its way.
    """

    iteration: int
    lose: float | None
    rank: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskFull:
    """The planner's disk is full, or has room again."""

    iteration: int
    is_full: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOrder:
    """An operator chooses a target, written as in a scenario."""

    iteration: int
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StragglerOrder:
    """An operator reports how slow a pipeline is. ``pipeline`` None withdraws all reports, ``degree`` None this one."""

    iteration: int
    pipeline: int | None = None
    degree: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NextJob:
    """The job ends and another begins under its name, on the same machines unless the GPU changes.

    Attributes:
        changes: Fields of ``ScenarioJob`` that are different from now on.
    """

    iteration: int
    changes: Mapping[str, Any] = field(default_factory=dict)


GpuEvent = SlowDown | HeatCap | PowerCap | SlowLink
Event = (
    GpuEvent
    | ProcessEvent
    | MessageDelay
    | Partition
    | Repetition
    | Loss
    | DiskFull
    | TargetOrder
    | StragglerOrder
    | NextJob
)


def is_recovery(event: Event) -> bool:
    """Whether an event brings the default back, so that it ends a disturbance and does not begin one."""
    match event:
        case SlowDown():
            return event.slowdown == 1
        case HeatCap():
            return event.thermal_cap_mhz is None
        case PowerCap():
            return event.power_limit_w is None
        case SlowLink():
            return not event.transfer_s
        case ProcessEvent():
            return event.action in {ProcessAction.CONTINUE, ProcessAction.RESTART}
        case MessageDelay():
            return not event.delay_s
        case Partition():
            return not event.is_partitioned
        case Repetition():
            return not event.repeat
        case Loss():
            return not event.lose
        case DiskFull():
            return not event.is_full
        case StragglerOrder():
            return event.degree is None
        case TargetOrder() | NextJob():
            return False
