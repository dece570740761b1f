"""Facts of the planner itself, stored in the name of no job: power budgets, load targets, price policies."""

from dataclasses import dataclass

from perseus_dist.planner.job.facts.keyed import KeyedFact

MAX_TIME_S = 2.5e11
"""[s] of Unix time, in the year 9892: later times are beyond the calendar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSet(KeyedFact):
    """A group of jobs shares a power budget.

    Attributes:
        name: Of the budget.
        watts: That the group may draw; 0 for no limit but load targets.
        jobs: Patterns of job names with ``*`` and ``?``; empty for all jobs.
        objective: As of ``policies.power_budget.Objective``.
        guard_band: Share of the cap to stay below it, for peaks.
        weights: Patterns, each with the weight of the jobs that it covers; the first that does counts, else 1.
        max_slowdowns: Likewise, times an iteration at full clocks that one of them may take at most; else no limit.
    """

    name: str
    watts: float
    jobs: tuple[str, ...] = ()
    objective: str = "total"
    guard_band: float = 0.0
    weights: tuple[tuple[str, float], ...] = ()
    max_slowdowns: tuple[tuple[str, float], ...] = ()

    KEY = "budget/{0.name}/"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTargetSet(KeyedFact):
    """Between two Unix times a budget's group may draw no more than this.

    Attributes:
        name: Of the load target, among those of the budget.
        budget: The budget's name.
        watts: That the group may draw.
        best_effort: Whether it was accepted without being known to be possible.
    """

    name: str
    budget: str
    start_s: float
    end_s: float
    watts: float
    best_effort: bool

    KEY = "load/{0.budget}/{0.name}/"


@dataclass(frozen=True, slots=True, kw_only=True)
class PricePolicySet(KeyedFact):
    """Jobs follow a price, or carbon, on the way to a number of iterations that each is to do by a deadline.

    Attributes:
        name: Of the policy.
        jobs: Names of jobs.
        signal: Name of the signal, among the planner's.
        deadline_s: Unix time.
        iterations: That each job has to do from when the policy was set.
    """

    name: str
    jobs: tuple[str, ...]
    signal: str
    deadline_s: float
    iterations: int

    KEY = "price/{0.name}/"


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceProgress(KeyedFact):
    """Iterations that a job has done under a price policy.

    Attributes:
        policy: Its name.
        done: Over all its runs since the policy was set.
        run_id: The run that was counted last.
        iteration: Of that run, up to where they are counted; -1 where that was not known yet.
    """

    policy: str
    job_id: str
    done: int
    run_id: str
    iteration: int

    KEY = "price/{0.policy}/{0.job_id}/"
