"""Time and energy of a run, before its plan and under it."""

from collections import deque
from dataclasses import dataclass, field, replace

from perseus_dist.messages.from_agent import RunTimes
from perseus_dist.messages.terms import NO_ITERATION
from perseus_dist.planner.job.facts.runs import BaselineMeasured
from perseus_dist.planner.job.measured_transfers import Snapshot, TransferTimes
from perseus_dist.planner.job.saving.saving import Saving
from perseus_dist.planner.job.self_check import SelfCheckWatch
from perseus_dist.planner.job.state.progress import Iteration
from perseus_dist.planner.job.timelines import Timelines

NUM_PROBED = 5  # iterations of probes behind a baseline
NUM_ENFORCED = 64  # iterations behind the figures of the plan in force
NUM_AGREEING, NUM_SNAPSHOTS = 2, 32  # snapshots of transfers that agree at first, and at most


@dataclass(slots=True, kw_only=True)
class Measured:
    """Figures of a run.

    Attributes:
        num_warm: Iterations of the warm-up.
        baseline_iterations: What the baseline is made of, once the job is warm.
        baseline: Of this run, or None.
        probed: Iterations of probes, at full clocks.
        enforced: Iterations under the switch in force.
        saving: What plans have saved in this run, by measurement.
        self_check: What the profile predicts of iterations under the table in force, beside what they take.
        slow_at: The newest iteration at which some rank was known to be slow, or waited for.
        run_times: Times of computations by iteration and (dp_rank, pp_rank), until all ranks have reported them.
        timelines: The same of the newest iteration of some pipelines, for those who watch.
        snapshots: Of transfers in such iterations, the newest last.
        snapshot_iteration: The newest one's.
        varying_transfers_s: [s] of that iteration, for transfers that are slower in some microbatches than in others.
        transfer_spreads: [s] in that iteration, how much longer than their least nine in ten transfers of a link took
            at most, in the pipeline where that was most.
        num_agreeing: Snapshots in a row without a transfer, before plans do without it: more where it has come back.
        stored_saved_j: [J] of that, what is durable; stored_saved_at_s: [s] when it was last stored, in any run.
    """

    num_warm: int = 0
    baseline_iterations: list[Iteration] = field(default_factory=list)
    baseline: BaselineMeasured | None = None
    probed: deque[Iteration] = field(default_factory=lambda: deque(maxlen=NUM_PROBED))
    enforced: deque[Iteration] = field(default_factory=lambda: deque(maxlen=NUM_ENFORCED))
    saving: Saving = field(default_factory=Saving)
    self_check: SelfCheckWatch = field(default_factory=SelfCheckWatch)
    slow_at: int = NO_ITERATION
    run_times: dict[int, dict[tuple[int, int], RunTimes]] = field(default_factory=dict)
    timelines: Timelines = field(default_factory=Timelines)
    snapshots: deque[Snapshot] = field(default_factory=lambda: deque(maxlen=NUM_SNAPSHOTS))
    snapshot_iteration: int = NO_ITERATION
    varying_transfers_s: float = 0.0
    transfer_spreads: TransferTimes = field(default_factory=dict)
    num_agreeing: int = NUM_AGREEING
    stored_saved_j: float = 0.0
    stored_saved_at_s: float = 0.0

    def go_back(self, iteration: int) -> None:
        """Training goes on from an earlier iteration, this one: all that was measured came before it."""
        self.slow_at = min(self.slow_at, iteration)
        for kept in (self.probed, self.enforced):
            for place, one in enumerate(kept):
                kept[place] = replace(one, number=min(one.number, iteration))
        self.run_times.clear()
        self.timelines = Timelines()
