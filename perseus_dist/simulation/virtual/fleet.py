"""Several virtual jobs under the power budgets of one planner, side by side in time."""

from collections.abc import Sequence
from dataclasses import dataclass

from perseus_dist.planner.budget.governor import Governor
from perseus_dist.simulation.virtual.run import VirtualJob

_NS_PER_S = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnIteration:
    """An iteration of a job: when, from the fleet's begin, and what all its GPUs drew, by the simulator's truth."""

    begin_s: float
    end_s: float
    energy_j: float


class VirtualFleet:
    """Jobs that train beside each other; each is at most an iteration ahead of the others.

    Attributes:
        jobs: Side by side.
        governor: Of the planner's power budgets.
        prices: By the names of jobs, the price policy that asks for a pace, and the pace.
        drawn: By job, its iterations.
        sentences: That the planner's log would have of budgets.
    """

    def __init__(self, jobs: Sequence[VirtualJob]) -> None:
        self.jobs = jobs
        self.governor = Governor()
        self.prices: dict[str, tuple[str, float]] = {}
        self.drawn: list[list[DrawnIteration]] = [[] for _ in jobs]
        self.sentences: list[str] = []

    @property
    def now_s(self) -> float:
        """[s] up to which all jobs have trained."""
        return min(job.machine.now_ns for job in self.jobs) / _NS_PER_S

    def run_until(self, until_s: float) -> None:
        """Train all jobs up to there."""
        while self.now_s < until_s:
            number = min(range(len(self.jobs)), key=lambda one: self.jobs[one].machine.now_ns)
            self._run_iteration(number)
            self.evaluate()

    def evaluate(self) -> None:
        """Look at the budgets, as the planner does whenever a job changes."""
        found = self.governor.evaluate([job.planner.job for job in self.jobs], self.now_s, self.prices)
        self.sentences += found.sentences
        by_name = {job.planner.job.job_id: job for job in self.jobs}
        for job_id, order in found.orders:
            by_name[job_id].planner.tell(order)

    def power_w(self, at_s: float) -> float:
        """[W] of all jobs at a moment: the mean over the iteration that each is in."""
        return sum(
            one.energy_j / (one.end_s - one.begin_s)
            for drawn in self.drawn
            for one in drawn
            if one.begin_s <= at_s < one.end_s
        )

    def _run_iteration(self, number: int) -> None:
        machine = self.jobs[number].machine
        begin_ns, begin_j = machine.now_ns, machine.true_energy_j
        self.jobs[number].run_iteration()
        self.drawn[number].append(
            DrawnIteration(
                begin_s=begin_ns / _NS_PER_S,
                end_s=machine.now_ns / _NS_PER_S,
                energy_j=machine.true_energy_j - begin_j,
            )
        )
