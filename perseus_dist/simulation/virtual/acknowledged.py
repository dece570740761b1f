"""Facts that a planner has acknowledged to agents and operators, and whether one that starts now would know them.

A ledger beside the planner, made of what the planner gets and sends, never of what it stores: a fact that the planner
forgets to store is in the ledger all the same. A fact leaves the ledger when the planner replaces or deletes it.
"""

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from perseus_dist.messages.from_agent import ProfileSamples
from perseus_dist.messages.from_planner import Attached, PlannerMessage, PlanTable, ProfileAck, Sweep, Switch
from perseus_dist.planner.job.facts.decisions import StragglerKnown
from perseus_dist.planner.job.facts.runs import JobRegistered
from perseus_dist.planner.job.facts.sweeps import SAVED_PROFILE
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.lifecycle.events import (
    JobEvent,
    Persist,
    RankAttached,
    RankMessage,
    StragglerCleared,
    StragglerReported,
    TargetSet,
)

_DELETABLE = ("samples/", "sweep/", "ended/", "own/")
"""Facts that the planner may delete once it needs them no more; all others only where a job begins anew."""


class _Claim(NamedTuple):
    """One acknowledged fact: a sentence, and whether a job knows it."""

    name: str
    is_known: Callable[[Job], bool]


class AcknowledgedFacts:
    """Of one job's planner."""

    def __init__(self) -> None:
        self._claims: dict[str, _Claim] = {}  # by the key of the fact
        self._agents: dict[int, tuple[int, int]] = {}  # (rank, incarnation) of each stream
        self._samples: dict[tuple[int, int], dict[int, str]] = {}  # by agent: sequences heard, and their keys

    @property
    def names(self) -> frozenset[str]:
        """Names of all acknowledgements that still hold."""
        return frozenset(claim.name for claim in self._claims.values())

    def known_to(self, job: Job) -> frozenset[str]:
        """Those of them that a job knows: one that was restored from what is durable."""
        return frozenset(claim.name for claim in self._claims.values() if claim.is_known(job))

    def clear(self) -> None:
        """The job is over and deleted."""
        self._claims.clear()

    def hear(self, event: JobEvent, job: Job) -> None:
        """The planner receives an event.

        Args:
            event: What.
            job: Before the event changes it.
        """
        match event:
            case RankAttached():
                self._agents[event.stream] = (event.attach.rank.rank, event.attach.incarnation)
            case RankMessage(message=ProfileSamples() as samples) if event.stream in job.members.rank_of_stream:
                rank, incarnation = agent = self._agents[event.stream]
                series, heard = _series(job, samples), self._samples.setdefault(agent, {})
                if series is not None:
                    heard[samples.sequence] = f"samples/{series}/{rank}/{incarnation}/{samples.sequence}/"
                else:  # of a sweep that a planner does not know that was started again: it wants none
                    heard.pop(samples.sequence, None)
            case TargetSet() | StragglerReported() | StragglerCleared():
                # A full disk may keep the answer back: what stood before may be replaced then, and may not.
                key, ordered = _order(event)
                if (before := self._claims.get(key)) is not None:
                    self._claims[key] = _Claim(before.name, lambda job: before.is_known(job) or ordered.is_known(job))

    def replace(self, persist: Persist) -> None:
        """The planner deletes facts, or begins the job anew."""
        is_new_job = any(isinstance(fact, JobRegistered) for fact in persist.facts)
        gone = tuple(prefix for prefix in persist.drop if is_new_job or prefix.startswith(_DELETABLE))
        if gone:
            self._claims = {key: claim for key, claim in self._claims.items() if not key.startswith(gone)}
            for keys in self._samples.values():
                for sequence in [sequence for sequence, key in keys.items() if key.startswith(gone)]:
                    del keys[sequence]

    def say(self, stream: int, message: PlannerMessage, dp_rank: int, unstored: Collection[str]) -> None:
        """The planner tells an agent something.

        Args:
            stream: The agent's.
            message: What.
            dp_rank: The agent's pipeline.
            unstored: Keys of facts that the planner knows not to be durable: a full disk does not stop plans.
        """
        match message:
            case Attached():
                self._claim("job", "the job's registration", lambda job: job.spec is not None, unstored)
                self._claim_samples(stream, message.acked_samples)
            case ProfileAck():
                self._claim_samples(stream, message.sequence)
            case Sweep(sweep_id=sweep_id):
                name = f"sweep {sweep_id}"
                self._claim(f"sweep/{sweep_id}/", name, lambda job: job.profiling.sweep_id >= sweep_id, unstored)
            case PlanTable(revision=revision, base_revision=0):
                name = f"table {revision}"
                self._claim("table", name, lambda job: job.plan is not None and job.plan.revision >= revision, unstored)
            case PlanTable(revision=revision):
                self._claim(
                    f"own/{dp_rank}/",
                    f"table {revision} of pipeline {dp_rank}",
                    lambda job: (
                        dp_rank in job.detection.straggler_plans
                        and job.detection.straggler_plans[dp_rank].revision >= revision
                    ),
                    unstored,
                )
            case Switch(switch_revision=revision):
                name = f"switch {revision}"
                self._claim(
                    "switch",
                    name,
                    lambda job: job.switch is not None and job.switch.switch_revision >= revision,
                    unstored,
                )

    def show(self, job: Job, unstored: Collection[str]) -> None:
        """The planner shows a job to operators."""
        baseline = job.measured.baseline
        if baseline is not None:
            name = f"the baseline of {baseline.time_s:.4f} s"
            self._claim("baseline", name, lambda other: other.measured.baseline == baseline, unstored)

    def answer(self, event: JobEvent) -> None:
        """The planner accepts an operator's order."""
        match event:
            case TargetSet() | StragglerReported() | StragglerCleared():
                key, claim = _order(event)
                self._claims[key] = claim

    def _claim_samples(self, stream: int, sequence: int) -> None:
        """All that was heard of an agent up to a sequence; a full disk is no excuse."""
        rank, incarnation = agent = self._agents[stream]
        for number, key in self._samples.get(agent, {}).items():
            if number <= sequence and key not in self._claims:
                series = int(key.split("/")[1])
                self._claim(
                    key,
                    f"samples {number} of rank {rank} (series {series}, incarnation {incarnation})",
                    lambda job, number=number, series=series: any(  # type: ignore[misc]
                        taken.samples.sequence == number
                        for taken in job.profiling.samples.get(series, {}).get(rank, ())
                    ),
                )

    def _claim(self, key: str, name: str, is_known: Callable[[Job], bool], unstored: Iterable[str] = ()) -> None:
        if key not in unstored:
            self._claims[key] = _Claim(name, is_known)


def _order(event: TargetSet | StragglerReported | StragglerCleared) -> tuple[str, _Claim]:
    """The key of the fact that an operator's order makes or deletes, and what is true once that is done."""
    match event:
        case TargetSet(target=target):
            return "target", _Claim(
                f"the target {target}", lambda job: job.chosen_target is not None and job.chosen_target.target == target
            )
        case StragglerReported(straggler_id=name, degree=degree, dp_rank=dp_rank):
            known = StragglerKnown(straggler_id=name, degree=degree, dp_rank=dp_rank)
            return known.key, _Claim(f"straggler {name} at {degree:g}", lambda job: job.stragglers.get(name) == known)
        case StragglerCleared(straggler_id=name):
            key = StragglerKnown(straggler_id=name, degree=1.0, dp_rank=0).key
            return key, _Claim(f"no straggler {name}", lambda job: name not in job.stragglers)


def _series(job: Job, samples: ProfileSamples) -> int | None:
    """The series that the samples belong to; None where the planner does not wait for them."""
    if samples.sweep_id == SAVED_PROFILE:
        return SAVED_PROFILE if job.plan is None else None
    return job.profiling.sweeps[samples.sweep_id].series if samples.sweep_id in job.profiling.sweeps else None
