"""Plans that iterations followed, and what these save by the profile."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

_MAX_PLANS = 16

Directives = Mapping[int, tuple[int, int]]
"""By dp_rank, the revision of a table and the point of it that a pipeline follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """The plans that all pipelines follow, and what these save by the profile.

    Attributes:
        key: Equal where the same is followed.
        time_s: [s] that iterations take by the profile; 0 where that is not known.
        stretch: Times by which iterations are longer than at full clocks; 0 where that is not known.
        rate_j: [J] that an iteration saves.
        energy_j: [J] that an iteration of ``time_s`` draws by the profile; 0 where that is not known.
        waiting_w: [W] that all pipelines draw together while they wait.
        is_waiting: Some pipelines wait for a straggler.
        is_around_slow: Some pipeline is planned around its slow ranks, which draw something else at full clocks, too.
    """

    key: str
    time_s: float = 0.0
    stretch: float = 0.0
    rate_j: float = 0.0
    energy_j: float = 0.0
    waiting_w: float = 0.0
    is_waiting: bool = False
    is_around_slow: bool = False


UNKNOWN = Followed(key="unknown")
"""Some plan of which nothing is known any more."""


@dataclass(slots=True)
class FollowedPlans:
    """The latest plans of all pipelines, by the iteration that is to follow them first."""

    _plans: deque[tuple[int, Directives, Followed | None]] = field(default_factory=lambda: deque(maxlen=_MAX_PLANS))

    def begin(self, first_iteration: int, directives: Directives, plan: Followed | None) -> None:
        """From this iteration on all pipelines are to follow a plan.

        Args:
            first_iteration: Number of the first.
            directives: What ranks say that follow it.
            plan: The plan; None where that is full clocks, whatever it is called.
        """
        if not self._plans or self._plans[-1][1:] != (directives, plan):
            self._plans.append((first_iteration, directives, plan))

    def at(self, number: int, directives: Directives) -> Followed | None:
        """The plan that an iteration followed, which may be reported long after another plan has come.

        Args:
            number: Of the iteration. It only tells apart plans of the same directives: a planner that was stopped may
                order a plan for iterations that are over by then.
            directives: What ranks say that they followed.
        """
        same = [(first, plan) for first, known, plan in reversed(self._plans) if known == directives]
        return next((plan for first, plan in same if first <= number), same[0][1] if same else UNKNOWN)
