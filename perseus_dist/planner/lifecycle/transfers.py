"""Transfers between stages, as ranks' times tell them: measured at full clocks, planned with, planned anew.

A link is well in one iteration and slow in another. Plans are on time with all that the newest snapshots show: so a
change is planned with at once, and what has not been seen for several snapshots costs no energy any more. Where it
comes back all the same, more of them must agree the next time.
"""

from perseus_dist.messages.from_agent import RunTimes
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.job.measured_transfers import (
    Snapshot,
    distinct,
    have_moved,
    is_new,
    least_change_s,
    num_computations,
    slowest,
    spreads_of_runs,
    transfers_of_runs,
    varying_s,
)
from perseus_dist.planner.job.state.measured import NUM_SNAPSHOTS
from perseus_dist.planner.job.state.membership import RankState
from perseus_dist.planner.job.state.planning import JobPlan

_MAX_OPEN = 4  # iterations that not all ranks have reported yet
_MIN_INTERVAL_S = 30.0  # between two plans for the sake of transfers
_LONG_AGO = 16  # iterations
_MAX_PLANNED = 3  # snapshots that a plan is on time with


def record_run_times(job: Job, state: RankState, message: RunTimes) -> None:
    """Take note of a rank's times; one GPU of a tensor-parallel group speaks for all.

    Those under a plan are shown alone: transfers are measured at full clocks.
    """
    rank = state.rank
    if rank.tp_rank or not job.schedule_text:
        return
    if len(message.begins_ns) != num_computations(job.schedule_text, rank.pp_rank):
        return  # of a schedule that is not the job's any more
    is_planned = bool(message.clocks_mhz)
    if is_planned or job.switch is None:
        job.num_changes += job.measured.timelines.take(rank.dp_rank, rank.pp_rank, rank.pp_size, message)
    if is_planned:
        return
    open_iterations = job.measured.run_times
    times = open_iterations.setdefault(message.iteration, {})
    times[rank.dp_rank, rank.pp_rank] = message
    while len(open_iterations) > _MAX_OPEN:
        del open_iterations[next(iter(open_iterations))]  # the oldest
    if len(times) == rank.dp_size * rank.pp_size:
        pipelines = [[times[dp_rank, pp_rank] for pp_rank in range(rank.pp_size)] for dp_rank in range(rank.dp_size)]
        snapshot = tuple(transfers_of_runs(job.schedule_text, of_one) for of_one in pipelines)
        _note(job, snapshot)
        lasts_ns = [times[dp_rank, 0].ends_ns[-1] - times[dp_rank, 0].begins_ns[0] for dp_rank in range(rank.dp_size)]
        longest = lasts_ns.index(max(lasts_ns))
        job.measured.varying_transfers_s = varying_s(job.schedule_text, pipelines[longest], snapshot[longest])
        job.measured.transfer_spreads = slowest(
            spreads_of_runs(job.schedule_text, of_one, transfers)
            for of_one, transfers in zip(pipelines, snapshot, strict=True)
        )
        job.measured.snapshot_iteration = message.iteration
        open_iterations.clear()


def _note(job: Job, snapshot: Snapshot) -> None:
    """Where it shows what plans did without again, more snapshots must agree before they do so the next time."""
    measured, least_s = job.measured, _least_change_s(job)
    if job.plan is not None and least_s is not None and measured.snapshots:
        is_unplanned = is_new(snapshot, _planned(job.plan), least_s)
        has_changed = have_moved(measured.snapshots[-1], snapshot, least_s)
        if is_unplanned and has_changed and not is_new(snapshot, measured.snapshots, least_s):
            measured.num_agreeing = min(2 * measured.num_agreeing, NUM_SNAPSHOTS)
    measured.snapshots.append(snapshot)


def snapshots_to_plan(job: Job) -> tuple[Snapshot, ...]:
    """The newest snapshots that differ; with those of the plan in force while there are too few."""
    newest = list(job.measured.snapshots)[-job.measured.num_agreeing :]
    least_s = _least_change_s(job)
    if least_s is None:
        return tuple(newest[-1:])
    older = _planned(job.plan) if job.plan is not None and len(newest) < job.measured.num_agreeing else ()
    return distinct([*reversed(newest), *older], least_s)[:_MAX_PLANNED]


def _least_change_s(job: Job) -> float | None:
    """[s] of a transfer; None before it is known what iterations take at full clocks."""
    full_s = job.enforcement.guard.guard.reference_s
    return None if full_s is None else least_change_s(job.schedule_text, full_s)


def _planned(plan: JobPlan) -> tuple[Snapshot, ...]:
    return plan.snapshots or ((),)


def are_unconfirmed(job: Job) -> bool:
    """Whether the plan in force knows transfers that may be over: they were measured before it, and never since."""
    if job.plan is None or job.switch is None or job.measured.snapshot_iteration >= job.switch.effective_iteration:
        return False
    least_s = _least_change_s(job)
    return least_s is not None and all(have_moved((), snapshot, least_s) for snapshot in _planned(job.plan))


def are_of_long_ago(job: Job) -> bool:
    """Whether the newest transfers were measured so long ago that they may be over, and a probe can tell."""
    return not job.holds_probes and job.progress.iteration - job.measured.snapshot_iteration > _LONG_AGO


def transfers_have_moved(job: Job, now_s: float, *, is_urgent: bool = False) -> str:
    """Why to plan again for the sake of transfers; empty where the plan in force knows them, and no others.

    Args:
        job: Of all pipelines.
        now_s: [s] of the planner's clock.
        is_urgent: Something speaks against the plan's times, so that no interval is kept.
    """
    # A plan that does not know them is late: one made for another reason does not put the next one off.
    if (is_urgent or now_s >= job.planning.moved_at_s + _MIN_INTERVAL_S) and (why := transfers_are_new(job)):
        return why
    if not is_urgent and now_s < job.planning.transfers_at_s + _MIN_INTERVAL_S:
        return ""
    least_s = _least_change_s(job)
    if not job.measured.snapshots or job.plan is None or least_s is None:
        return ""
    planned, wanted = _planned(job.plan), snapshots_to_plan(job)
    is_looked_at = job.enforcement.guard.guard.is_probe_ahead(job.progress.iteration)  # its last iteration tells more
    if not is_looked_at and any(is_new(snapshot, wanted, least_s) for snapshot in planned):
        return f"transfers between stages take {_text(wanted)}, for long: planning without others"
    return ""


def transfers_are_new(job: Job) -> str:
    """Why to plan again for the sake of transfers that the plan in force does not know; empty where it knows all."""
    least_s = _least_change_s(job)
    if not job.measured.snapshots or job.plan is None or least_s is None:
        return ""
    planned, wanted = _planned(job.plan), snapshots_to_plan(job)
    if not any(is_new(snapshot, planned, least_s) for snapshot in wanted):
        return ""
    why = f"transfers between stages take {_text(wanted)}, and {_text(planned)} by the plan"
    return f"{why}: planning again"


def are_unknown_to_request(job: Job) -> str:
    """Why to begin the pending request anew: it does not know the newest transfers; empty where it does.

    Its plan would be late, and another one asked for once it is there. That is done once for each plan, so that a link
    that comes and goes does not put the plan off for ever.
    """
    baseline, measured, planning = job.measured.baseline, job.measured, job.planning
    if planning.pending is None or planning.is_restarted or baseline is None or not measured.snapshots:
        return ""
    newest, planned = measured.snapshots[-1], planning.snapshots or ((),)
    if not is_new(newest, planned, least_change_s(job.schedule_text, baseline.time_s)):
        return ""
    return f"transfers between stages take {_text((newest,))}, and {_text(planned)} by the plan that is being made"


def _text(snapshots: tuple[Snapshot, ...]) -> str:
    longest_ms = sorted({round(1e3 * max(slowest(one).values(), default=0.0), 1) for one in snapshots})
    return "up to " + " or ".join(f"{one_ms:.1f} ms" for one_ms in longest_ms)
