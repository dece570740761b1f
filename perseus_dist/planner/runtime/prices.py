"""Price policies of a running planner: kept in the store, with signals that are read beside the event loop."""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from perseus_dist.planner.access.auth import Caller
from perseus_dist.planner.budget.price_follower import Signal
from perseus_dist.planner.budget.price_policies import PricePolicies, PriceState
from perseus_dist.planner.job.facts.fact import Fact
from perseus_dist.planner.job.facts.policies import PricePolicySet
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.runtime.job_actor import JobActor
from perseus_dist.planner.runtime.signals.signal_files import SignalFiles
from perseus_dist.planner.store.store import NO_JOB, Store

_log = logging.getLogger(__name__)


class Prices:
    """The policies, their facts on the disk, and their signals. Everything runs on the event loop but reading files."""

    def __init__(self, store: Store, actors: Mapping[str, JobActor], files: SignalFiles) -> None:
        """Take up what the store holds, and read the signals: jobs go on as they were.

        Args:
            store: Where policies and progress become durable.
            actors: Of all jobs, by name; read at each evaluation.
            files: Of the signals.
        """
        self._store = store
        self._actors = actors
        self._files = files
        self._policies = PricePolicies(store.load_own())
        self._reading = asyncio.Lock()
        self._refreshing: asyncio.Task[Mapping[str, Signal]] | None = None
        files.refresh(self._policies.signals)

    def restore(self, facts: Sequence[Fact]) -> None:
        """Begin anew with stored facts; jobs stay at their paces until the signals are read."""
        self._policies = PricePolicies(facts)

    @property
    def states(self) -> tuple[PriceState, ...]:
        """Of all policies, as of the latest evaluation."""
        return self._policies.states

    @property
    def are_set(self) -> bool:
        """Whether there is one."""
        return bool(self._policies.policies)

    def seen_by(self, caller: Caller, visible: Collection[str]) -> list[PriceState]:
        """The states that a caller may see: of policies that it may change, or that have a job which it may see.

        Args:
            caller: Who looks.
            visible: Names of the jobs that it may see.
        """
        return [
            state
            for state in self.states
            if caller.may_limit(state.policy.jobs) or not set(visible).isdisjoint(state.policy.jobs)
        ]

    def get(self, name: str) -> PricePolicySet | None:
        """A policy, if there is one."""
        return self._policies.policies.get(name)

    def of_job(self, job_id: str, now_s: float) -> PricePolicySet | None:
        """The policy that a job is under at a Unix time."""
        return self._policies.of_job(job_id, now_s)

    async def read(self, name: str) -> Signal:
        """A signal, as its file is now, or as its provider answers."""
        # A caller who leaves ends no reading: its thread goes on, and another one would read beside it.
        signals = await asyncio.shield(asyncio.create_task(self._refresh(name)))
        return signals[name]

    def set(self, policy: PricePolicySet) -> "asyncio.Future[None]":
        """Put a policy in force; done once it is durable, with ``StoreError`` where the disk does not take it."""
        progress = self._policies.set(policy, self._jobs())
        return asyncio.wrap_future(self._store.commit(NO_JOB, (policy, *progress), (policy.key,)))

    def clear(self, policy: PricePolicySet) -> "asyncio.Future[None]":
        """Forget one, likewise. The second of two callers forgets nothing more."""
        return asyncio.wrap_future(self._store.commit(NO_JOB, (), self._policies.drop(policy.name)))

    def evaluate(self, now_s: float, steady_s: float) -> Mapping[str, tuple[str, float]]:
        """Look at all policies: by the names of jobs, which policy asks for which pace.

        Args:
            now_s: Unix time; tariffs are taken to be in the planner's own time zone.
            steady_s: [s] of a clock that never jumps.
        """
        now = datetime.fromtimestamp(now_s).astimezone()
        found = self._policies.evaluate(self._jobs(), now, self._files.signals, steady_s)
        for policy in found.ended:
            _log.info("price policy %s is over", policy.name)
        for sentence in found.sentences:
            _log.info("%s", sentence)
        if found.facts or found.ended:
            self._store.commit(NO_JOB, found.facts, [policy.key for policy in found.ended])
        return found.paces

    def refresh(self) -> None:
        """Begin to read what has changed, unless that is under way."""
        if self.are_set and (self._refreshing is None or self._refreshing.done()):
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh())

    def close(self) -> None:
        """End the reading that is under way."""
        if self._refreshing is not None:
            self._refreshing.cancel()

    async def _refresh(self, awaited: str = "") -> Mapping[str, Signal]:
        """Read the files of all policies, and one whose provider is waited for; one thread at a time."""
        async with self._reading:
            names = self._policies.signals | ({awaited} if awaited else set())
            await asyncio.to_thread(self._files.refresh, names, awaited)
            return self._files.signals

    def _jobs(self) -> dict[str, Job]:
        return {job_id: actor.job for job_id, actor in self._actors.items()}
