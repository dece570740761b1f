"""Which jobs one of several replicas owns: taken when a rank or a call comes, or when their owner has died.

```
            ensure, orphans of a survey                      lost, fenced, suspended, withdrawn, handed over, left
  elsewhere --------------------------> owned, with an epoch ------------------------------------------> elsewhere
```

Everything here runs on the event loop but for calls on the table of leases, which wait for the database and run one
after the other in a thread, renewals beside them (``LeaseCalls``). An epoch is in ``epochs`` from the moment that a job
is taken up until it is given up: the store gives each commit the epoch of that moment, so that no commit of an earlier
ownership counts under a later one.

Jobs that a power budget or a price policy covers belong together, to the replica that keeps the policies: the others
hand theirs over.

Jobs are taken some at a time, and taken up one by one, and the leases are renewed meanwhile: a replica that takes over
a thousand jobs at once loses none because it takes them.
"""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, Protocol
from zlib import crc32

import grpc

from perseus_dist.planner.access.refusal import RefusalError, moved
from perseus_dist.planner.budget.sharing import covers
from perseus_dist.planner.runtime.outbox import Ending
from perseus_dist.planner.runtime.ownership.gathering import Gathering
from perseus_dist.planner.runtime.ownership.lease_calls import LeaseCalls
from perseus_dist.planner.runtime.shared.database_thread import Call
from perseus_dist.planner.store.fact_database import FencedError
from perseus_dist.planner.store.lease_table import Claimed, JobElsewhere, LeaseError, LeaseTable, Survey
from perseus_dist.planner.store.store import NO_JOB

BEAT_S = 0.4
_LEAST_PAUSE_S = 0.02
_CAUTION = 0.9  # times the lease: this replica's clock and the database's do not run alike
_SLOW_S = 1.0  # renewals that take longer are logged
_AT_ONCE = 16  # jobs that one claim takes: a rank's own claim waits for it

_log = logging.getLogger(__name__)


class Holder(Protocol):
    """Keeps the jobs: ``Jobs``."""

    def has(self, job_id: str) -> bool:
        """Whether there is such a job."""

    def take_over(self, job_id: str, claimed: Claimed) -> None:
        """Go on with a job, or with the policies for ``NO_JOB``."""

    def give_up(self, job_id: str, ending: Ending) -> None:
        """Forget it; another replica goes on."""


class Ownership:
    """Owned jobs and their epochs.

    Args:
        leases: Of this replica.
        holder: Of this replica's jobs.
        call, call_beside: As of ``LeaseCalls``.

    Attributes:
        epochs: By job that is owned, the planner's own facts (``NO_JOB``) included, the lease's epoch.
        replicas: Addresses of the others that live.
        num_takeovers: Jobs taken over from other replicas, or from an earlier start of this one.
        num_losses: Jobs that others have taken over, because this replica was silent.
    """

    def __init__(
        self, leases: LeaseTable, holder: Holder, call: Call | None = None, call_beside: Call | None = None
    ) -> None:
        self._leases = leases
        self._holder = holder
        self._calls = LeaseCalls(leases, call, call_beside)
        self.epochs: dict[str, int] = {}
        self.replicas: tuple[str, ...] = ()
        self.num_takeovers = self.num_losses = 0
        self._claiming: dict[str, asyncio.Task[str | None]] = {}
        self._taking = asyncio.Lock()  # no job is claimed twice, which would make its first epoch void
        self._arriving: dict[str, Claimed] = {}  # jobs that are claimed, and not taken up yet
        self._empty: frozenset[str] = frozenset()  # owned, and without a job at the latest beat
        self._survey = Survey()
        self._surveyed_s = 0.0  # by the loop's clock
        self._left: frozenset[str] = frozenset()  # jobs without an owner at the latest beat, for others to take
        self._suspended: frozenset[str] = frozenset()
        self._defects: dict[str, str] = {}  # by job that could not be taken up, why
        self._expiry: asyncio.TimerHandle | None = None
        self._is_leaving = False
        self._gathering = Gathering(leases.lease_s)  # of jobs that the policies cover

    @property
    def address(self) -> str:
        """Where agents and commands reach this replica."""
        return self._leases.address

    @property
    def is_over(self) -> "asyncio.Future[str]":
        """Done once a planner that serves all jobs has taken over: its result is a sentence."""
        return self._calls.is_over

    @property
    def num_owned(self) -> int:
        """Jobs that are owned."""
        return len(self.epochs.keys() - {NO_JOB})

    def owns(self, job_id: str) -> bool:
        """Whether the job is this replica's; ``NO_JOB`` stands for the policies."""
        self.check()
        return job_id in self.epochs

    def may_pace(self, job_id: str, *, draws_more: bool) -> bool:
        """Whether this replica may give a job an order of its policies, if there are any.

        A replica without the policies gives none to a job that they cover. A replica that has just taken the policies
        over gets the jobs that they cover one by one: until all are here, their power is unknown, and no job may draw
        more (``Gathering``).

        Args:
            job_id: Its name.
            draws_more: Whether the order makes it faster, or allows it probes at full clocks.
        """
        if NO_JOB not in self.epochs:
            return not self._is_covered(job_id)
        return self._gathering.is_over or not draws_more

    def check(self) -> None:
        """Give up what this replica, which was stopped perhaps, may have lost: before anything is said of its jobs."""
        if self._expiry is not None and asyncio.get_running_loop().time() >= self._expires_s():
            self.suspend()

    async def ensure(self, job_id: str, *, known_only: bool = False) -> None:
        """Own a job from now on, unless another replica does.

        Args:
            job_id: Its name; ``NO_JOB`` for the policies.
            known_only: A job that has no owner and never had one is left alone.

        Raises:
            RefusalError: Another replica is to be asked, or the database is away.
        """
        if self.owns(job_id):
            return
        if self._is_leaving:
            raise RefusalError(grpc.StatusCode.UNAVAILABLE, "the planner ends; another replica has its jobs")
        owner = self._home_elsewhere(job_id)
        if owner is None:
            owner = await self._claim(job_id, known_only=known_only)
        if owner is not None:
            raise moved(f"{_named(job_id)} at the replica {owner}", owner)

    async def beat(self) -> None:
        """Renew the leases, give up what is lost or belongs elsewhere, and take what has no owner."""
        if not await self._renew():
            return
        await self._while_renewing(self._look_after())

    async def keep(self) -> None:
        """Renew leases and look for orphans at each beat, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            began_s = loop.time()
            try:
                await self.beat()
            except Exception:  # a defect must not cost the other jobs
                _log.exception("leases: a look at them failed")
            await asyncio.sleep(self._pause_s(began_s))

    def _pause_s(self, began_s: float) -> float:
        """[s] from now to the next beat: soon where jobs are left, and where a lease is about to lapse just then."""
        now_s = asyncio.get_running_loop().time()
        next_s = max(began_s + (0.0 if self._left else BEAT_S), now_s + BEAT_S / 4)
        lapse_s = self._surveyed_s + self._survey.next_lapse_s + _LEAST_PAUSE_S
        return max(lapse_s - now_s, _LEAST_PAUSE_S) if now_s < lapse_s < next_s else next_s - now_s

    def lose(self, job_id: str, epoch: int) -> None:
        """Another replica has taken a job over from the lease of an epoch."""
        arriving = self._arriving.get(job_id)
        if arriving is not None and arriving.epoch == epoch:
            del self._arriving[job_id]
        if self.epochs.get(job_id) == epoch:
            del self.epochs[job_id]
            self.num_losses += 1
            _log.warning("%s: another replica has taken over, since this one was silent", _named(job_id))
            self._holder.give_up(job_id, Ending(reason=f"{_named(job_id)} at another replica now; attach again"))

    def withdraw(self, job_id: str, trouble: str) -> None:
        """Give up a job that cannot be stored, until it can be: it goes on from what is stored, here or elsewhere.

        Args:
            job_id: Its name.
            trouble: Why, a sentence.
        """
        if self.epochs.pop(job_id, None) is not None:
            self._suspended |= {job_id}
        _log.warning("%s given up until it can be stored: %s", _named(job_id), trouble)
        reason = f"{_named(job_id)} given up until it can be stored; attach again ({trouble})"
        self._holder.give_up(job_id, Ending(reason=reason, may_return=True))

    def suspend(self) -> None:
        """Give up everything for now: the leases are over by this replica's clock, and others may have the jobs."""
        if not self.epochs and not self._arriving:
            return
        _log.warning("leases could not be renewed in time: %d jobs are given up until they can be", self.num_owned)
        self._suspended |= self.epochs.keys() | self._arriving.keys()
        self._arriving.clear()
        reason = "this replica is cut off from its database; attach again, to another one"
        self._give_up_all(Ending(reason=reason, may_return=True))

    async def leave(self) -> None:
        """Give up everything, so that other replicas go on at once; nothing is taken any more."""
        self._is_leaving = True
        if self._expiry is not None:
            self._expiry.cancel()
        for claiming in list(self._claiming.values()):
            claiming.cancel()
        if self._claiming:
            await asyncio.wait(list(self._claiming.values()))
        self._give_up_all(Ending(reason="this replica ends; attach again, to another one"))
        await self._calls.resign()

    async def elsewhere(self) -> Sequence[JobElsewhere]:
        """Jobs of other replicas, by name, as they are stored.

        Raises:
            LeaseError: The database does not answer.
        """
        return await self._calls.run(self._leases.elsewhere)

    # ---- renewing ----------------------------------------------------------------------------------------------------

    async def _renew(self) -> bool:
        """Renew the leases, give up what is lost, and look around; whether that came to be."""
        if self._is_leaving:
            return False
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        held = self.epochs | {job_id: claimed.epoch for job_id, claimed in self._arriving.items()}
        survey = await self._calls.survey(held)
        if survey is None or self._is_leaving:
            return False
        self._watch_expiry()
        self._survey, self._surveyed_s = survey, began_s
        self.replicas = tuple(address for address in survey.replicas if address != self.address)
        for job_id in sorted(survey.lost):
            self.lose(job_id, held[job_id])
        if (took_s := loop.time() - began_s) > _SLOW_S:
            _log.info("leases: it took %.1f s to renew them and to look at others'", took_s)
        return True

    def _expires_s(self) -> float:
        """When the leases may be over, by the loop's clock: a long look at jobs may hold up the latest answer."""
        return self._calls.renewed_s + _CAUTION * self._leases.lease_s

    def _watch_expiry(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = asyncio.get_running_loop().call_at(self._expires_s(), self._expire)

    def _expire(self) -> None:
        assert self._expiry is not None
        if self._expires_s() > self._expiry.when():
            self._watch_expiry()
        else:
            self.suspend()

    async def _while_renewing(self, work: Coroutine[Any, Any, None]) -> None:
        """Do what may take longer than leases last."""
        working = asyncio.create_task(work)
        try:
            while not (await asyncio.wait([working], timeout=BEAT_S))[0]:
                await self._renew()
            await working
        finally:
            working.cancel()

    async def _look_after(self) -> None:
        await self._hand_over()
        await self._adopt()
        await self._drop_empty()

    # ---- taking ------------------------------------------------------------------------------------------------------

    async def _claim(self, job_id: str, *, known_only: bool) -> str | None:
        """Take one job; its owner if there is one. Ranks that come at once ask once."""
        if known_only:
            return await self._claim_one(job_id, known_only=True)
        claiming = self._claiming.get(job_id)
        if claiming is None:
            claiming = self._claiming[job_id] = asyncio.create_task(self._claim_one(job_id, known_only=False))
            claiming.add_done_callback(lambda done: self._end_claim(job_id, done))
        return await asyncio.shield(claiming)

    def _end_claim(self, job_id: str, done: "asyncio.Task[str | None]") -> None:
        self._claiming.pop(job_id, None)
        if not done.cancelled():
            done.exception()  # of ranks that have left: seen

    async def _claim_one(self, job_id: str, *, known_only: bool) -> str | None:
        async with self._taking:
            if job_id in self.epochs:
                return None
            return await self._claim_now(job_id, known_only=known_only)

    async def _claim_now(self, job_id: str, *, known_only: bool) -> str | None:
        self._suspended |= {job_id}  # where no answer comes, or the caller leaves: taken perhaps, and no orphan then
        try:
            found = await self._calls.run(partial(self._leases.claim, (job_id,), known_only=known_only))
        except (LeaseError, FencedError) as error:
            raise RefusalError(grpc.StatusCode.UNAVAILABLE, str(error)) from error
        self._suspended -= {job_id}
        match found.get(job_id):
            case Claimed() as claimed:
                if not self._own(job_id, claimed):
                    reason = f"{_named(job_id)} not taken up by a fault of this replica; its log says which"
                    raise RefusalError(grpc.StatusCode.UNAVAILABLE, reason)
                return None
            case owner:
                return owner

    def _own(self, job_id: str, claimed: Claimed) -> bool:
        """Take a job up; False after a defect: it is tried again at the next beat, and none begins in its place."""
        if self._is_leaving:
            return True  # the registration is about to go
        self.epochs[job_id] = claimed.epoch
        if job_id == NO_JOB:
            self._gathering.begin(asyncio.get_running_loop().time())
        try:
            self._holder.take_over(job_id, claimed)
        except Exception as error:  # which must not cost the other jobs
            if self._defects.get(job_id) != repr(error):
                _log.exception("%s not taken up, and tried again at each look at the leases", _named(job_id))
            self._defects[job_id] = repr(error)
            self._suspended |= {job_id}
            del self.epochs[job_id]
            self._holder.give_up(job_id, Ending(reason=f"{_named(job_id)} not taken up", may_return=True))
            return False
        self._defects.pop(job_id, None)
        self.num_takeovers += claimed.has_predecessor
        return True

    async def _adopt(self) -> None:
        """Take this replica's part of the jobs without an owner, and what others have left of theirs for a beat."""
        is_answered = await self._claim_orphans(sorted(self._suspended))
        orphans = self._survey.orphans
        if is_answered and NO_JOB in orphans:
            await self._claim_orphans([NO_JOB])
        await self._gather()  # where a claim fails each time, too: that must not hold up the others for ever
        if not is_answered:
            return
        jobs = [job_id for job_id in orphans if job_id != NO_JOB]
        if self.owns(NO_JOB):
            await self._claim_orphans([job_id for job_id in jobs if self._is_covered(job_id)])
        free = [job_id for job_id in jobs if not self._is_covered(job_id)]
        own = [job_id for job_id in free if self._falls_to(job_id) == self.address]
        left, self._left = self._left, frozenset(free).difference(own)
        await self._claim_orphans(own + sorted(self._left & left))

    async def _gather(self) -> None:
        """Take all orphans that the policies cover, however many there are, and see what is missing."""
        loop = asyncio.get_running_loop()
        if self._gathering.is_over or not self.owns(NO_JOB):
            return
        asked_s = loop.time()
        leases = await self._calls.all()
        if leases is None:
            return
        covered = [job_id for job_id in leases if self._is_covered(job_id)]
        await self._claim_orphans([job_id for job_id in covered if not leases[job_id]])
        if self.owns(NO_JOB):
            self._gathering.note([job_id for job_id in covered if job_id not in self.epochs], asked_s, loop.time())

    def _falls_to(self, job_id: str) -> str:
        """The living replica that is to take a job without an owner: all that live say the same."""
        return max(self._survey.replicas, key=lambda address: crc32(f"{job_id} {address}".encode()), default="")

    async def _claim_orphans(self, orphans: Sequence[str]) -> bool:
        """Take those of them that have no owner still; False if the table did not answer."""
        for begin in range(0, len(orphans), _AT_ONCE):
            if not await self._claim_some(orphans[begin : begin + _AT_ONCE]):
                return False
        return True

    async def _claim_some(self, orphans: Sequence[str]) -> bool:
        async with self._taking:
            jobs = [job_id for job_id in orphans if job_id not in self.epochs]
            self._suspended |= frozenset(jobs)  # where no answer comes: taken perhaps, and no orphans then
            found = await self._calls.claim(jobs) if jobs else {}
            if found is None:
                return False
            self._suspended -= frozenset(orphans)
            self._arriving = {job_id: one for job_id, one in found.items() if isinstance(one, Claimed)}
            try:
                await self._restore_claimed()
            finally:
                self._suspended |= self._arriving.keys()
                self._arriving = {}
            return True

    async def _restore_claimed(self) -> None:
        """Go on with the jobs that are claimed. The event loop is free behind each: for streams, and to renew leases.

        Until then their leases are held like the others', and lost or suspended with them.
        """
        while True:
            self.check()
            if not self._arriving:
                return
            job_id = next(iter(self._arriving))
            self._own(job_id, self._arriving.pop(job_id))
            await asyncio.sleep(0)

    # ---- giving up ---------------------------------------------------------------------------------------------------

    def _home_elsewhere(self, job_id: str) -> str | None:
        """The replica that keeps the policies, where those cover a job and it is another one."""
        keeper = self._survey.policies
        if job_id == NO_JOB or self.owns(NO_JOB) or keeper in ("", self.address):
            return None
        return keeper if self._is_covered(job_id) else None

    def _is_covered(self, job_id: str) -> bool:
        """Whether a power budget or a price policy covers a job."""
        return any(covers(patterns, job_id) for patterns in self._survey.patterns)

    def _give_up_all(self, ending: Ending) -> None:
        for job_id in list(self.epochs):
            del self.epochs[job_id]
            self._holder.give_up(job_id, ending)

    async def _hand_over(self) -> None:
        if not self._survey.patterns:
            return
        for job_id in list(self.epochs):
            owner = self._home_elsewhere(job_id)
            if owner is not None and job_id in self.epochs:  # which may be over by now, with all leases
                self._calls.unreleased[job_id] = self.epochs.pop(job_id)
                _log.info("job %s: goes to the replica %s, which keeps the policies", job_id, owner)
                reason = f"{_named(job_id)} at the replica {owner}, which keeps the policies"
                self._holder.give_up(job_id, Ending(reason=reason, owner=owner))
        await self._calls.release()

    async def _drop_empty(self) -> None:
        """Let go of leases of jobs that are over, or whose first rank was refused; none that was taken just now.

        And of those that could not be released before: or their jobs would have no owner while this replica lives.
        """
        empty = {job_id for job_id in self.epochs if job_id != NO_JOB and not self._holder.has(job_id)}
        self._calls.unreleased |= {job_id: self.epochs.pop(job_id) for job_id in empty & self._empty}
        self._empty = frozenset(empty)
        await self._calls.release()


def _named(job_id: str) -> str:
    return "the policies are" if job_id == NO_JOB else f"job {job_id} is"
