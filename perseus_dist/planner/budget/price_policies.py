"""All price policies: which job follows which signal, how far each is, and the paces that follow from it; no I/O.

It is evaluated again whenever anything may have changed, before power budgets are: a budget may make a job slower than
prices would, and nothing makes it faster.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from perseus_dist.planner.budget.demand import demand_of
from perseus_dist.planner.budget.long_over import LongOver
from perseus_dist.planner.budget.price_follower import PricedJob, PriceFollower, Signal
from perseus_dist.planner.job.facts.fact import Fact
from perseus_dist.planner.job.facts.policies import PricePolicySet, PriceProgress
from perseus_dist.planner.job.job import Job
from perseus_dist.policies.forecast_error import ForecastError, forecast_error
from perseus_dist.policies.signal_text import Piece
from perseus_dist.policies.tariff import Tariff

_PLANS_AT_ONCE = 2  # of up to 0.2 s each, during which a planner does nothing else
KEPT_S = 86_400.0
"""A policy is forgotten so long after its deadline, and an hour of a clock that never jumps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceState:
    """A price policy and its jobs, now.

    Attributes:
        policy: As it was set.
        trouble: Why its signal cannot be followed, or is not the newest, in a clause; empty where neither is so.
        jobs: In the policy's order.
        content: Of its signal, where there is one.
        now: With its offset from UTC.
    """

    policy: PricePolicySet
    trouble: str
    jobs: tuple[PricedJob, ...]
    content: tuple[Piece, ...] | Tariff | None = None
    now: datetime | None = None

    @property
    def forecast_error(self) -> ForecastError | None:
        """Of the signal's forecasts until now; None where it is not known."""
        return forecast_error(self.content, self.now)

    @property
    def is_kept(self) -> bool:
        """Whether all deadlines are kept, by what is known now."""
        return all(job.is_on_time for job in self.jobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceEvaluation:
    """Consequences of a look at all price policies.

    Attributes:
        paces: By the names of jobs, the policy that asks, and the pace: 0 for the job's own target.
        facts: To be stored.
        ended: Policies that are forgotten.
        sentences: For the log.
    """

    paces: Mapping[str, tuple[str, float]]
    facts: tuple[PriceProgress, ...] = ()
    ended: tuple[PricePolicySet, ...] = ()
    sentences: tuple[str, ...] = ()


class PricePolicies:
    """Price policies in force.

    Attributes:
        policies: By name.
        states: In the order of their names, as of the latest evaluation.
    """

    def __init__(self, facts: Iterable[Fact] = ()) -> None:
        """Begin with stored facts."""
        self.policies: dict[str, PricePolicySet] = {}
        self.states: tuple[PriceState, ...] = ()
        self._followers: dict[tuple[str, str], PriceFollower] = {}
        self._said: dict[str, tuple[str, ...]] = {}
        self._long_over = LongOver()
        facts = list(facts)
        progress = {(fact.policy, fact.job_id): fact for fact in facts if isinstance(fact, PriceProgress)}
        for fact in facts:
            if isinstance(fact, PricePolicySet):
                self._begin(fact, progress)

    @property
    def signals(self) -> frozenset[str]:
        """Names of the signals that policies follow."""
        return frozenset(policy.signal for policy in self.policies.values())

    def of_job(self, job_id: str, now_s: float) -> PricePolicySet | None:
        """The policy that a job is under at a Unix time; none whose deadline has passed, and which is still known."""
        under = (policy for policy in self.policies.values() if job_id in policy.jobs and now_s < policy.deadline_s)
        return next(under, None)

    def set(self, policy: PricePolicySet, jobs: Mapping[str, Job]) -> list[PriceProgress]:
        """Put a policy in force, and count its jobs' iterations from now on.

        Args:
            policy: New, or in place of the one of its name.
            jobs: By name.

        Returns:
            What is to be stored besides.
        """
        self.drop(policy.name)
        self._begin(policy, {})
        return [self._followers[policy.name, job_id].begin_at(jobs.get(job_id)) for job_id in policy.jobs]

    def drop(self, name: str) -> list[str]:
        """Forget a policy; the key that all its facts begin with, or nothing where it was forgotten before."""
        policy = self.policies.pop(name, None)
        if policy is None:
            return []
        for job_id in policy.jobs:
            del self._followers[name, job_id]
        return [policy.key]

    def evaluate(
        self, jobs: Mapping[str, Job], now: datetime, signals: Mapping[str, Signal], steady_s: float
    ) -> PriceEvaluation:
        """Look at all price policies again.

        Args:
            jobs: All, by name.
            now: With its offset from UTC, which tariffs are taken to be in.
            signals: By name.
            steady_s: [s] of a clock that never jumps.
        """
        now_s = now.timestamp()
        over = [name for name, policy in self.policies.items() if now_s >= policy.deadline_s + KEPT_S]
        ended = tuple(self.policies[name] for name in self._long_over.find(over, steady_s))
        for policy in ended:
            self.drop(policy.name)
        states: list[PriceState] = []
        stored: list[PriceProgress] = []
        paces: dict[str, tuple[str, float]] = {}
        num_left = _PLANS_AT_ONCE
        for name, policy in sorted(self.policies.items()):
            signal = signals.get(policy.signal, Signal(content=None, is_read=False))
            found = []
            for job_id in policy.jobs:
                follower, job = self._followers[name, job_id], jobs.get(job_id)
                if job is not None:
                    follower.resume(job)
                    follower.count(job)
                if (progress := follower.to_store(now_s)) is not None:
                    stored.append(progress)
                num_plans = follower.num_plans
                priced = follower.step(now, None if job is None else demand_of(job), signal, may_plan=num_left > 0)
                num_left -= follower.num_plans - num_plans
                if not priced.is_over:
                    paces[job_id] = name, priced.pace
                found.append(priced)
            states.append(
                PriceState(policy=policy, trouble=signal.trouble, jobs=tuple(found), content=signal.content, now=now)
            )
        self.states = tuple(states)
        return PriceEvaluation(paces=paces, facts=tuple(stored), ended=ended, sentences=self._sentences())

    def _begin(self, policy: PricePolicySet, progress: Mapping[tuple[str, str], PriceProgress]) -> None:
        self.policies[policy.name] = policy
        for job_id in policy.jobs:
            self._followers[policy.name, job_id] = PriceFollower(policy, job_id, progress.get((policy.name, job_id)))

    def _sentences(self) -> tuple[str, ...]:
        """Of each policy, why jobs do not follow it, once."""
        found = []
        said = {}
        for state in self.states:
            now = [state.trouble] if state.trouble else []
            now += [f"job {job.job_id}: {job.reason}" for job in state.jobs if job.reason]
            said[state.policy.name] = tuple(now)
            new = [one for one in now if one not in self._said.get(state.policy.name, ())]
            found += [f"price policy {state.policy.name}: {sentence}" for sentence in new]
        self._said = said
        return tuple(found)
