"""Events of a job and effects that follow from them: the two sides of ``lifecycle.step``.

The contract of effects. ``step`` returns them in the order in which they must take place, with one ``Persist`` at most.
Their performer holds back everything behind a ``Persist``, effects of later steps of the same job included, until
the store has committed it; jobs do not wait for each other. So nothing is sent that a restarted planner would not know:

    job registered            before  Attached
    samples                   before  ProfileAck, and before an Attached that counts them
    sweep id and its clocks   before  Sweep
    table                     before  PlanTable
    switch                    before  Switch
    target, straggler         before  the operator's answer
    pace                      before  the switch that keeps it

Where the store cannot commit, ``without_acknowledgement`` says what of the step may still be done. The store keeps what
it could not write and writes it before the job's next commit, so that a later acknowledgement never covers a gap.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from perseus_dist.messages.from_agent import AgentMessage, Attach
from perseus_dist.messages.from_planner import Attached, PlannerMessage, ProfileAck, Refused
from perseus_dist.messages.terms import Target
from perseus_dist.planner.job.facts.fact import Fact
from perseus_dist.planner.job.facts.plans import TableAhead
from perseus_dist.planner.worker.plan_request import PlanningRequest, PlanResult

# ---- events ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RankAttached:
    """A stream has begun with an ``Attach`` whose token has been checked.

    Attributes:
        stream: Names the stream as long as the planner process lives; never used twice.
        token_sha256: Who has begun it: the hexadecimal hash of the token that came along, or ``uid:1000``. The job
            belongs to the owner of its first rank; empty for anybody.
    """

    stream: int
    attach: Attach
    token_sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankDetached:
    """A stream has ended, however it did. For streams that were refused or replaced this event may come, or not."""

    stream: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMessage:
    """Any later message of a stream."""

    stream: int
    message: AgentMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanExpected:
    """A request to the planning worker will be answered within about ``expected_s`` [s]."""

    request_id: int
    expected_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReady:
    """The planning worker has answered."""

    result: PlanResult


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFailed:
    """The planning worker could not.

    Attributes:
        transient: Whether asking again can help: the worker died, nothing was wrong with the request.
    """

    request_id: int
    reason: str
    transient: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSet:
    """An operator wants another target. Answered with ``Answer``."""

    target: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceSet:
    """Power budgets and price policies ask for another pace of a registered job.

    Attributes:
        slowdown: Times an iteration at all-maximum clocks that one is to take at least; None for the target's alone.
        budget: Name of the budget that asks for it; empty for none.
        price: Name of the price policy that does; empty for none, and where a budget asks for a slower one.
        holds_probes: Whether there is no room for a probe at full clocks.
        reason: Why, in a clause.
    """

    slowdown: float | None
    budget: str
    holds_probes: bool
    reason: str
    price: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StragglerReported:
    """A pipeline's iterations last ``degree`` times the time at all-maximum clocks. Answered with ``Answer``.

    It wins over the detector, also with a degree of 1, which says that the pipeline does not straggle. The same
    ``straggler_id`` again replaces the earlier report.
    """

    straggler_id: str
    degree: float
    dp_rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StragglerCleared:
    """An operator's report is cleared. Answered with ``Answer``."""

    straggler_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time has passed; wanted about once a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerEnds:
    """The planner ends: counts that become durable from time to time are made durable now."""


JobEvent = (
    RankAttached
    | RankDetached
    | RankMessage
    | PlanExpected
    | PlanReady
    | PlanFailed
    | TargetSet
    | PaceSet
    | StragglerReported
    | StragglerCleared
    | Tick
    | PlannerEnds
)

# ---- effects ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Persist:
    """Make facts durable: one transaction, before anything behind it is done.

    Attributes:
        facts: Each replaces an earlier fact of the same ``key``.
        drop: Facts whose key begins so are deleted first.
    """

    facts: tuple[Fact, ...] = ()
    drop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Put a message into a stream's queue; nothing happens if the stream is gone."""

    stream: int
    message: PlannerMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class SendTable:
    """The same with ``job.plan.tables[pp_rank]``, which is encoded already: its bytes are ``encoded``."""

    stream: int
    encoded: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """Send this and end the stream: it was not accepted, or another one has taken its place."""

    stream: int
    refused: Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPlanning:
    """Ask the planning worker; the answer becomes ``PlanReady`` or ``PlanFailed``.

    Attributes:
        made: What a request of the same digest was answered with, so that no worker need be asked; or None.
    """

    request: PlanningRequest
    made: TableAhead | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelPlanning:
    """This answer is not awaited any more; a ``PlanReady`` that comes all the same is ignored."""

    request_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Answer the operator's call that this step was about; exactly one for each such event."""

    accepted: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """A decision, in a sentence."""

    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Forget:
    """The job is over and may be deleted, from memory and from the store."""


Effect = Persist | Send | SendTable | Refuse | StartPlanning | CancelPlanning | Answer | Log | Forget


def without_acknowledgement(effects: Iterable[Effect], trouble: str) -> list[Effect]:
    """Effects of a step that are still allowed, from a ``Persist`` on that the store could not commit.

    The planner goes on in memory: clocks are planned and switched, but nothing is acknowledged that is not durable.
    Agents send their samples again, and operators' calls are answered with the trouble.

    Args:
        effects: The failed ``Persist`` and all behind it, of that step.
        trouble: The store's sentence.
    """
    left: list[Effect] = []
    for effect in effects:
        match effect:
            case Persist() | Send(message=ProfileAck()):
                pass
            case Send(message=Attached() as attached):
                left.append(Send(stream=effect.stream, message=replace(attached, acked_samples=0)))
            case Answer(accepted=True):
                left.append(
                    Answer(accepted=False, reason=f"in force until the planner restarts, not stored: {trouble}")
                )
            case _:
                left.append(effect)
    return left
