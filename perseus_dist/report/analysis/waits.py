"""Time and energy of waiting for stragglers: of the other pipelines before, during and after.

Three energies of the other pipelines are given beside the measured one. All of them last as long as the iterations
really did, because everybody waits for the straggler until then:

    waiting     the plan of before, then waiting: measured before, plus blocking power x (time during - time before)
    planned     waiting, minus what the frontier says that the plans followed save
    promised    waiting, minus what it says of the best plan within the time that the straggler took

What two plans save against each other is the difference of their effective energies, total minus blocking power x time.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

_LEAST_PROMISE = 0.005  # share of an iteration's energy; of less no share can be measured


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationWindow:
    """Iterations in a row under one plan; medians.

    Attributes:
        time_s: [s] of the whole job.
        own_time_s: [s] of the slowest pipeline until it waits for gradient synchronisation.
        energy_j: [J] of the pipelines that do not straggle, together; None where it is not known.
    """

    first_iteration: int
    last_iteration: int
    num_iterations: int
    time_s: float
    own_time_s: float
    energy_j: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StragglerWait:
    """Iterations in which the others followed one plan for the straggler's sake; None where something is not known.

    Attributes:
        t_prime_s: [s] that was decided, by the newest switch of those that gave the others this plan.
        measured: What came of it.
        straggler_time_s, others_time_s: [s] until gradient synchronisation: the slowest pipeline that straggles, and
            the slowest of the others; medians.
        num_later: Iterations in which one of the others took longer than the stragglers.
        waiting_j, planned_j, promised_j: [J] of the others; see the module.
    """

    t_prime_s: float
    measured: IterationWindow
    straggler_time_s: float
    others_time_s: float
    num_later: int
    waiting_j: float | None
    planned_j: float | None
    promised_j: float | None

    def document(self) -> dict[str, Any]:
        """The wait as it stands in ``report.json``."""
        shares = {"share_of_plan": share_of([self], "planned_j"), "share_of_promise": share_of([self], "promised_j")}
        return asdict(self) | shares


@dataclass(frozen=True, slots=True, kw_only=True)
class StragglerPeriod:
    """From the first switch for stragglers to the one that brings the target's plan back.

    Attributes:
        straggling, others: Pipelines.
        before: None where the job followed no plan, or the straggler was as slow before it was found: no energy is then
            held against that of waiting.
        waits: At least one.
        after: None where it never came to that.
    """

    straggling: tuple[int, ...]
    others: tuple[int, ...]
    before: IterationWindow | None
    waits: tuple[StragglerWait, ...]
    after: IterationWindow | None

    def document(self) -> dict[str, Any]:
        """For ``report.json``; shares are of what was promised, by all waits together."""
        return {
            **asdict(self),
            "waits": [wait.document() for wait in self.waits],
            "share_of_plan": share_of(self.waits, "planned_j"),
            "share_of_promise": share_of(self.waits, "promised_j"),
        }


def share_of(waits: Sequence[StragglerWait], against: str) -> float | None:
    """Saving against waiting under the plan of before, as a share.

    Args:
        waits: Each counts by its iterations.
        against: Of what: ``planned_j`` or ``promised_j``.

    Returns:
        The share; None where nothing worth measuring was to be saved, or something is not known.
    """
    saved_j = aim_j = waiting_j = 0.0
    for wait in waits:
        to_reach_j, num = getattr(wait, against), wait.measured.num_iterations
        if to_reach_j is None or wait.waiting_j is None or wait.measured.energy_j is None:
            return None
        saved_j += num * (wait.waiting_j - wait.measured.energy_j)
        aim_j += num * (wait.waiting_j - to_reach_j)
        waiting_j += num * wait.waiting_j
    return saved_j / aim_j if aim_j > _LEAST_PROMISE * waiting_j > 0 else None
