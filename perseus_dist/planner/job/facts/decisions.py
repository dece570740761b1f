"""Facts of what a job is to do: its target and pace, the stragglers that it waits for, and which plan is in force."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote

from perseus_dist.messages.terms import Target
from perseus_dist.planner.job.facts.keyed import KeyedFact


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchDecided(KeyedFact):
    """Each pipeline's point; ``switch_revision`` never goes back.

    Attributes:
        points: (dp_size) rows of the table, or ``NO_POINT``.
        own_revisions: (dp_size) of the pipeline's own table; 0 for that of all. Empty where no pipeline has one.
        t_prime_s: [s] what pipelines wait for; 0 where none waits.
    """

    table_revision: int
    switch_revision: int
    effective_iteration: int
    points: tuple[int, ...]
    reason: str
    own_revisions: tuple[int, ...] = ()
    t_prime_s: float = 0.0

    KEY = "switch"

    def revision_of(self, dp_rank: int) -> int:
        """Of the table that a pipeline follows."""
        return (self.own_revisions[dp_rank] if self.own_revisions else 0) or self.table_revision

    @property
    def directives(self) -> Mapping[int, tuple[int, int]]:
        """By dp_rank, the table revision and the point that its ranks are to follow."""
        return _directives(self)


@lru_cache(maxsize=8)
def _directives(decided: SwitchDecided) -> Mapping[int, tuple[int, int]]:
    """Kept, because each iteration of a job is compared with those in force; of a thousand pipelines they take long."""
    return {dp_rank: (decided.revision_of(dp_rank), point) for dp_rank, point in enumerate(decided.points)}


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetChosen(KeyedFact):
    """The job's target, and whether an operator set it, who overrules the job's own."""

    target: Target
    by_operator: bool

    KEY = "target"


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceChosen(KeyedFact):
    """A policy makes the job take this many times an iteration at all-maximum clocks, or its target's if longer.

    Attributes:
        slowdown: Above 1, or below where the target's plan is faster than all-maximum clocks by the profile.
        budget: Name of the power budget; empty where it is a price policy.
        price: Name of the price policy; empty where it is a power budget.
    """

    slowdown: float
    budget: str
    price: str = ""

    KEY = "pace"


@dataclass(frozen=True, slots=True, kw_only=True)
class StragglerKnown(KeyedFact):
    """A pipeline's iterations last ``degree`` times the time at all-maximum clocks."""

    straggler_id: str
    degree: float
    dp_rank: int

    KEY = "straggler/{0.quoted_id}/"

    @property
    def quoted_id(self) -> str:
        """The straggler's name with its slashes quoted, for keys."""
        return quote(self.straggler_id, safe="")
