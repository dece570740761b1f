"""The plan in force and its guard: as long as the plan is of use."""

import math
from dataclasses import dataclass, field

from perseus_dist.planner.job.facts.decisions import SwitchDecided
from perseus_dist.planner.job.guard_watch import GuardWatch

SwitchBounds = tuple[float, float, bool]
"""``max_slowdown``, ``deadline_s`` and ``is_waiting`` of a ``Switch``."""


@dataclass(slots=True, kw_only=True)
class Enforcement:
    """The switch that pipelines follow, and observations that speak against it.

    Attributes:
        switch: In force, or None.
        guard: Whether the plan keeps the promise, and what has come of it.
        drifts: By rank whose instructions' times have left the profile, the largest share by which: below 0 where they
            take less.
        drift_since_s: [s] since when there are any.
        lasting_drifts: Ranks of which that has lasted for long.
        dropped: By pp_rank for whose drift the plan has been dropped, by which share; until it is measured again.
        dropped_reference_s: [s] an iteration at full clocks when it was dropped for a drift last; None as above.
        overrun: Share by which a plan of the table in force takes longer than a slower target allows, as measured; a
            plan is chosen that is so much faster.
        sent_bounds: Those that ranks were sent last with the switch; None before.
        measured_at_s: [s] when the guard's reference was measured last, by a probe or as clocks were released.
    """

    switch: SwitchDecided | None = None
    guard: GuardWatch = field(default_factory=GuardWatch)
    drifts: dict[int, float] = field(default_factory=dict)
    drift_since_s: float = 0.0
    lasting_drifts: set[int] = field(default_factory=set)
    dropped: dict[int, float] = field(default_factory=dict)
    dropped_reference_s: float | None = None
    overrun: float = 0.0
    sent_bounds: SwitchBounds | None = None
    measured_at_s: float = -math.inf

    def forget_drifts(self) -> None:
        """Forget drifts that have been answered."""
        self.drifts.clear()
        self.lasting_drifts.clear()
