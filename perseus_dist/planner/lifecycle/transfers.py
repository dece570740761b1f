"""Transfers between stages, as ranks' times tell them: measured at full clocks, planned with, planned anew."""

from collections.abc import Iterable

from perseus_dist.messages.from_agent import RunTimes
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.job.measured_transfers import (
    Transfers,
    have_moved,
    num_computations,
    slowest,
    transfers_of_runs,
)
from perseus_dist.planner.job.state.membership import RankState

_MAX_OPEN = 4  # iterations that not all ranks have reported yet
_MIN_INTERVAL_S = 30.0  # between two plans for the sake of transfers


def record_run_times(job: Job, state: RankState, message: RunTimes) -> None:
    """Take note of a rank's times; one GPU of a tensor-parallel group speaks for all."""
    rank = state.rank
    if rank.tp_rank or not job.schedule_text:
        return
    if len(message.begins_ns) != num_computations(job.schedule_text, rank.pp_rank):
        return  # of a schedule that is not the job's any more
    open_iterations = job.measured.run_times
    times = open_iterations.setdefault(message.iteration, {})
    times[rank.dp_rank, rank.pp_rank] = message
    while len(open_iterations) > _MAX_OPEN:
        del open_iterations[next(iter(open_iterations))]  # the oldest
    if len(times) == rank.dp_size * rank.pp_size:
        job.measured.transfers = tuple(
            transfers_of_runs(job.schedule_text, [times[dp_rank, pp_rank] for pp_rank in range(rank.pp_size)])
            for dp_rank in range(rank.dp_size)
        )
        job.measured.transfers_iteration = message.iteration
        open_iterations.clear()


def are_unconfirmed(job: Job) -> bool:
    """Whether the plan in force knows transfers that may be over: they were measured before it, and never since."""
    if job.plan is None or job.switch is None or job.measured.transfers_iteration >= job.switch.effective_iteration:
        return False
    full_s = job.enforcement.guard.guard.reference_s
    return full_s is not None and have_moved((), job.plan.transfers, full_s)


def transfers_have_moved(job: Job, now_s: float, *, is_urgent: bool = False) -> str:
    """Why to plan again for the sake of transfers; empty where the plan in force knows them.

    Args:
        job: Of all pipelines.
        now_s: [s] of the planner's clock.
        is_urgent: Something speaks against the plan's times, so that no interval is kept.
    """
    measured = job.measured.transfers
    if measured is None or job.plan is None:
        return ""
    if not is_urgent and now_s < job.planning.transfers_at_s + _MIN_INTERVAL_S:
        return ""
    full_s = job.enforcement.guard.guard.reference_s
    if full_s is None or not have_moved(job.plan.transfers, measured, full_s):
        return ""
    return (
        f"transfers between stages take up to {_longest_ms(measured):.1f} ms, and "
        f"{_longest_ms(job.plan.transfers):.1f} ms by the plan: planning again"
    )


def _longest_ms(pipelines: Iterable[Transfers]) -> float:
    return 1e3 * max(slowest(pipelines).values(), default=0.0)
