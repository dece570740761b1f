"""Protocol of the table of leases by which replicas share the jobs of one database.

A replica registers with its address, and renews its registration; each job has a lease that names its owner and an
epoch. The leases of a replica that is silent lapse with its registration, all at once; the next owner of a job has a
greater epoch, which every write of the job's facts names, so that what an earlier owner still writes changes nothing.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from perseus_dist.planner.job.facts.decisions import TargetChosen
from perseus_dist.planner.job.facts.fact import Fact
from perseus_dist.planner.job.facts.runs import JobEnded, JobRegistered, SavingCounted

MOST_ELSEWHERE = 2_000
"""Jobs of other replicas that one asks for: a page shows fewer."""


class LeaseError(Exception):
    """The table cannot be reached, or refuses, for now. Its text is a sentence for users."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A lease that this replica has from now on.

    Attributes:
        epoch: Greater than those of all leases of the job before.
        facts: Of the job, in the order of storing; no other replica adds to them while the lease lasts.
        has_predecessor: Whether another replica, or an earlier start of this one, had the job before.
        is_salvaged: Whether rows could not be read, so that these facts are to be stored in place of all.
    """

    epoch: int
    facts: Sequence[Fact] = ()
    has_predecessor: bool = False
    is_salvaged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobElsewhere:
    """A job of another replica that lives, as it is stored.

    Attributes:
        address: Of its replica, for agents and commands.
        registered, target, saved, ended: Its facts; None where there is none.
    """

    SHOWN: ClassVar = (JobRegistered, TargetChosen, SavingCounted, JobEnded)

    job_id: str
    address: str
    registered: JobRegistered
    target: TargetChosen | None = None
    saved: SavingCounted | None = None
    ended: JobEnded | None = None


def job_elsewhere(job_id: str, address: str, facts: Iterable[Fact]) -> JobElsewhere | None:
    """A job from its facts of the kinds ``JobElsewhere.SHOWN``; None for one that is not registered yet."""
    by_kind = {type(fact): fact for fact in facts}
    registered, target, saved, ended = (by_kind.get(kind) for kind in JobElsewhere.SHOWN)
    if not isinstance(registered, JobRegistered):
        return None
    return JobElsewhere(
        job_id=job_id,
        address=address,
        registered=registered,
        target=target if isinstance(target, TargetChosen) else None,
        saved=saved if isinstance(saved, SavingCounted) else None,
        ended=ended if isinstance(ended, JobEnded) else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """The state of the table, as of a renewal.

    Attributes:
        lost: Jobs that other replicas have taken over, because this one was silent for too long.
        orphans: Some of the jobs that no living replica owns: the planner's own facts first, the others in any order.
        replicas: Addresses of those that live, this one's included, in order.
        policies: Address of the replica that owns the planner's own facts; empty if none does.
        patterns: Of the jobs of each power budget and price policy; an empty one means all jobs.
        next_lapse_s: [s] until the first of the others that live is none of them, unless it renews; infinite if there
            are no others.
    """

    lost: frozenset[str] = frozenset()
    orphans: Sequence[str] = ()
    replicas: Sequence[str] = ()
    policies: str = ""
    patterns: Sequence[Sequence[str]] = ()
    next_lapse_s: float = math.inf


class LeaseTable(Protocol):
    """Leases of one replica. ``survey`` is called by one thread, all else by another; each call may wait."""

    @property
    def address(self) -> str:
        """Where agents and commands reach this replica."""

    @property
    def lease_s(self) -> float:
        """How long the leases last from the begin of a renewal, in seconds."""

    def survey(self, held: Mapping[str, int]) -> Survey:
        """Renew the registration, and look around.

        Args:
            held: By job, the epoch of the lease that this replica believes to have.

        Raises:
            FencedError: The registration is gone: a planner that serves all jobs has taken over.
            LeaseError: It is not known whether it was renewed.
        """

    def claim(self, jobs: Collection[str], *, known_only: bool = False) -> "dict[str, Claimed | str]":
        """Take the leases of jobs that no living replica owns.

        Args:
            jobs: By name. A lease that this replica has is taken anew, with a greater epoch.
            known_only: Leave jobs alone that have no lease yet.

        Returns:
            By job, the lease, or the address of the replica that owns the job; neither for a job that is left alone.

        Raises:
            FencedError: The registration is gone.
            LeaseError: Nothing is known to have been taken.
        """

    def all(self) -> Mapping[str, bool]:
        """All jobs that have a lease, and whether a living replica owns it; without the planner's own facts.

        Raises:
            LeaseError: The database does not answer.
        """

    def elsewhere(self) -> Sequence[JobElsewhere]:
        """Jobs of the other replicas that live, by name; the first ``MOST_ELSEWHERE``.

        Raises:
            LeaseError: The database does not answer.
        """

    def release(self, held: Mapping[str, int]) -> None:
        """Let other replicas take jobs at once; the lease of a job without facts is deleted.

        Args:
            held: By job, the epoch of the lease; a lease of another epoch stays as it is.

        Raises:
            LeaseError: The leases lapse at the latest with the registration.
        """

    def resign(self) -> None:
        """Delete the registration, so that other replicas may take over all jobs at once.

        Raises:
            LeaseError: It lapses by itself.
        """
