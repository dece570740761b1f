"""The governor of all power budgets: from what is set, and what jobs can draw, to the paces that jobs are asked for.

    paces of price policies, jobs --> demand --> sharing --> paces, slower ones first

It is evaluated again whenever anything may have changed, and asks for nothing where nothing has. Its caller stores
budgets and load targets; nothing in here does I/O or reads a clock.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from perseus_dist.planner.budget.demand import Demand, demand_of, power_degree
from perseus_dist.planner.budget.long_over import LongOver
from perseus_dist.planner.budget.sharing import BudgetState, Share, cap_of, reconcile, share_budget
from perseus_dist.planner.job.facts.fact import Fact
from perseus_dist.planner.job.facts.policies import BudgetSet, LoadTargetSet
from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.lifecycle.events import PaceSet

AskedPace = tuple[str, float]
"""Name of the price policy that asks, and the pace; 0 for the job's own target."""

_NO_PACE: AskedPace = ("", 0.0)
_TURN_S = 120.0  # in which one job may probe where there is no room for several
_MORE_POWER, _LESS_POWER = 0.01, 0.03  # shares by which a job's power must differ from what counts, to count anew
_KIND = 10  # characters that tell troubles apart, whatever jobs and watts they name
_SLOW_S = 30.0  # after which a job that was to become slower is not waited for any more: it may have stopped


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Consequences of a look at all budgets.

    Attributes:
        orders: By the names of jobs, the pace that is asked for.
        ended: Load targets that have long been over, and are forgotten.
        sentences: For the log.
    """

    orders: tuple[tuple[str, PaceSet], ...] = ()
    ended: tuple[LoadTargetSet, ...] = ()
    sentences: tuple[str, ...] = ()


class Governor:
    """Budgets and load targets in force, and what they give each job.

    Attributes:
        budgets: By name.
        load_targets: By key; those that are over for an hour more.
        states: Of the budgets, in the order of their names, as of the latest evaluation.
    """

    def __init__(self, facts: Iterable[Fact] = ()) -> None:
        """Begin with stored facts."""
        self.budgets: dict[str, BudgetSet] = {}
        self.load_targets: dict[str, LoadTargetSet] = {}
        self.states: tuple[BudgetState, ...] = ()
        self._said: dict[str, tuple[str, ...]] = {}
        self._degrees: dict[str, float] = {}
        self._full_w: dict[str, float] = {}
        self._slowed_at_s: dict[str, float] = {}
        self._long_over = LongOver()
        for fact in facts:
            self.apply(fact)

    def apply(self, fact: Fact) -> None:
        """A budget or a load target, new or another one of the same name."""
        match fact:
            case BudgetSet():
                self.budgets[fact.name] = fact
            case LoadTargetSet():
                self.load_targets[fact.key] = fact

    def drop_budget(self, name: str) -> list[str]:
        """Forget a budget and its load targets; the keys of what is gone, none where it was forgotten before."""
        budget = self.budgets.pop(name, None)
        gone = [target.key for target in self.load_targets.values() if target.budget == name]
        for key in gone:
            del self.load_targets[key]
        return gone if budget is None else [budget.key, *gone]

    def next_edge_s(self, after_s: float) -> float | None:
        """The Unix time after another one when the next load target begins or ends; None where none does."""
        edges = (edge_s for target in self.load_targets.values() for edge_s in (target.start_s, target.end_s))
        return min((edge_s for edge_s in edges if edge_s > after_s), default=None)

    def least_w(self, target: LoadTargetSet, jobs: Iterable[Job]) -> float:
        """[W] that the group of a load target can draw at least, by what is known now."""
        demands, _ = self._demands(jobs, {})
        return share_budget(self.budgets[target.budget], (target.watts, target.name), demands).least_w

    def evaluate(
        self,
        jobs: Iterable[Job],
        now_s: float,
        prices: Mapping[str, AskedPace] | None = None,
        *,
        steady_s: float | None = None,
    ) -> Evaluation:
        """Look at all budgets again.

        Args:
            jobs: All.
            now_s: Unix time, which may jump.
            prices: By the names of jobs, what price policies ask for: a budget may ask for a slower pace.
            steady_s: [s] of a clock that never jumps; ``now_s`` if None.
        """
        prices, steady_s = prices or {}, now_s if steady_s is None else steady_s
        over = [target.key for target in self.load_targets.values() if target.end_s <= now_s]
        ended = tuple(self.load_targets.pop(key) for key in self._long_over.find(over, steady_s))
        if not self.budgets:
            self.states, self._said = (), {}
            orders = (_unbudgeted(job, prices.get(job.job_id)) for job in jobs)
            return Evaluation(orders=tuple(order for order in orders if order is not None), ended=ended)
        jobs = list(jobs)
        demands, unknown = self._demands(jobs, prices)
        targets = self.load_targets.values()
        self.states = tuple(
            reconcile(
                [
                    share_budget(budget, cap_of(budget, targets, now_s), demands, unknown)
                    for _, budget in sorted(self.budgets.items())
                ],
                int(steady_s // _TURN_S),
            )
        )
        return Evaluation(orders=self._orders(jobs, steady_s, prices), ended=ended, sentences=self._sentences())

    def _orders(
        self, jobs: list[Job], steady_s: float, prices: Mapping[str, AskedPace]
    ) -> tuple[tuple[str, PaceSet], ...]:
        asked = {share.demand.job_id: share for state in self.states for share in state.shares}
        slower = [job_id for job_id, share in asked.items() if _pace(share) > share.demand.pace]
        self._slowed_at_s = {
            job_id: at_s
            for job_id, at_s in self._slowed_at_s.items()
            if job_id in asked and not asked[job_id].demand.is_settled and steady_s < at_s + _SLOW_S
        } | dict.fromkeys(slower, steady_s)
        # Others of the same budget get what some jobs give once it is given.
        groups = ({share.demand.job_id for share in state.shares} for state in self.states)
        waiting = {job_id for group in groups if not group.isdisjoint(self._slowed_at_s) for job_id in group}
        orders = []
        for job in jobs:
            share = asked.get(job.job_id)
            if share is None:
                if (order := _unbudgeted(job, prices.get(job.job_id))) is not None:
                    orders.append(order)
                continue
            pace = _pace(share)
            if not share.demand.paces or (pace < job.pace and job.job_id in waiting):
                wanted = _same_pace(job, share)
            else:
                wanted = _order(share, pace, prices.get(job.job_id))
            if (wanted.slowdown or 0.0, wanted.price, wanted.budget, wanted.holds_probes) != _asked(job):
                orders.append((job.job_id, wanted))
        return tuple(orders)

    def _demands(self, jobs: Iterable[Job], prices: Mapping[str, AskedPace]) -> tuple[list[Demand], list[str]]:
        """Of jobs that are not over, what is known; and the names of those of which nothing is."""
        demands: list[Demand] = []
        unknown: list[str] = []
        known, known_w = self._degrees, self._full_w
        self._degrees, self._full_w = {}, {}
        for job in jobs:
            degree = self._degrees[job.job_id] = _kept_figure(known.get(job.job_id, 1.0), power_degree(job))
            _, floor = prices.get(job.job_id, _NO_PACE)
            demand = demand_of(job, degree, floor)
            if demand is not None and not demand.paces:
                full_w = demand.points.full_power_w
                counted_w = self._full_w[job.job_id] = _kept_figure(known_w.get(job.job_id, full_w), full_w)
                demand = replace(demand, points=demand.points.with_power(counted_w / full_w))
            if demand is not None:
                demands.append(demand)
            elif job.spec is not None and job.phase is not Phase.DONE:
                unknown.append(job.job_id)
        return sorted(demands, key=lambda demand: demand.job_id), sorted(unknown)

    def _sentences(self) -> tuple[str, ...]:
        """Of each budget, what is not kept, once; and that it is kept again."""
        found: list[str] = []
        said, self._said = self._said, {}  # a budget that was cleared is said anew
        for state in self.states:
            name, troubles = state.budget.name, state.troubles
            kinds = (str(state.cap_w), *(trouble[:_KIND] for trouble in troubles))
            if said.get(name) != kinds:
                source = f" (load target {state.load_target})" if state.load_target else ""
                cap = "no cap" if state.cap_w is None else f"a cap of {state.cap_w:,.0f} W{source}"
                found.append(f"budget {name}: {cap}, {state.planned_w:,.0f} W planned for {len(state.shares)} jobs")
                found += [f"budget {name}: {trouble}" for trouble in troubles]
            self._said[name] = kinds
        return tuple(found)


def _kept_figure(kept: float, measured: float | None) -> float:
    """The degree, or the watts, that count: those of before where what is measured hardly differs.

    So noise makes no switches. More power than is counted breaks a cap, less only leaves watts unused.
    """
    if measured is None or -_LESS_POWER <= measured / kept - 1 <= _MORE_POWER:
        return kept
    return measured


def _pace(share: Share) -> float:
    """The pace to ask for; a job without a choice keeps the one that it was asked for before."""
    return share.pace if share.demand.paces else share.demand.pace


def _order(share: Share, pace: float, price: AskedPace | None) -> PaceSet:
    if price is not None and pace and pace <= price[1]:
        return replace(_by_price(*price), holds_probes=share.holds_probes)
    return PaceSet(
        slowdown=pace or None,
        budget=share.budget if pace else "",
        holds_probes=share.holds_probes,
        reason=f"budget {share.budget} gives the job {share.power_w:,.0f} W",
    )


def _same_pace(job: Job, share: Share) -> PaceSet:
    """The order to a job that has no choice now, or waits until others are slower: all but its probes stays."""
    pace, price, budget, _ = _asked(job)
    return PaceSet(
        slowdown=pace or None,
        budget=budget,
        holds_probes=share.holds_probes,
        reason="the job stays at its pace",
        price=price,
    )


def _asked(job: Job) -> tuple[float, str, str, bool]:
    """The latest order to a job: its pace, the price policy and the budget that ask for it, and whether probes wait."""
    before = (job.chosen_pace.price, job.chosen_pace.budget) if job.chosen_pace is not None else ("", "")
    return job.pace, *before, job.holds_probes


def _by_price(policy: str, pace: float) -> PaceSet:
    reason = f"price policy {policy} has the job at {f'{pace:.3f} times full clocks' if pace else 'its own target'}"
    return PaceSet(slowdown=pace or None, budget="", holds_probes=False, reason=reason, price=policy if pace else "")


def _unbudgeted(job: Job, price: AskedPace | None) -> tuple[str, PaceSet] | None:
    """The order to a job that no budget covers, where it is another one than before."""
    policy, pace = price or _NO_PACE
    if job.spec is None or (pace, policy if pace else "", "", False) == _asked(job):
        return None
    if price is not None:
        return job.job_id, _by_price(*price)
    return job.job_id, PaceSet(slowdown=None, budget="", holds_probes=False, reason="no policy asks the job for a pace")
