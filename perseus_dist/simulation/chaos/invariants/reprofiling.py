"""No re-profiling makes the fastest plan slower."""

from perseus_dist.simulation.chaos.invariants.total_time import sweeps_of
from perseus_dist.simulation.chaos.record import Broken, JobSpan, PlayedRun
from perseus_dist.simulation.chaos.standing import History

NAME = "reprofiling"
_SHARE = 0.005


def check(run: PlayedRun, history: History) -> list[Broken]:
    """Judge the first plan after each sweep that a plan was in force before.

    Its fastest plan is at most 0.5 % above the one before, or above the undisturbed iteration's time where that is
    more: a profile that was too fast may be mended. Where in some iteration of the sweep every replica of a stage was
    not well, no measurement could be better, and where a link was slow, the plan before may not have known it: the time
    of the slowest iteration without Perseus is allowed.
    """
    broken = []
    for span in run.jobs:
        for sweep in sweeps_of(run, span):
            before = _last_plan(run, range(span.first, sweep.start))
            after = _next_plan(run, range(sweep.stop, span.last + 1), before[0])
            if not before[0] or after is None:
                continue
            allowed_s = max(before[1], span.undisturbed_time_s, _forced_s(run, history, span, sweep))
            if after[1] > (1 + _SHARE) * allowed_s:
                broken.append(
                    Broken(
                        name=NAME,
                        sentence=f"the sweep of iterations {sweep[0]}-{sweep[-1]} made the fastest plan "
                        f"{after[1]:.4f} s (table {after[0]}); it was {before[1]:.4f} s (table {before[0]}), allowed "
                        f"are {allowed_s:.4f} s and 0.5 % more",
                    )
                )
    return broken


def _last_plan(run: PlayedRun, iterations: range) -> tuple[int, float]:
    """(table revision, fastest plan [s]) of the last plan seen; (0, 0) without one."""
    for i in reversed(iterations):
        view = run.iterations[i].view
        if view is not None and view.fastest_s:
            return view.table_revision, view.fastest_s
    return 0, 0.0


def _next_plan(run: PlayedRun, iterations: range, revision: int) -> tuple[int, float] | None:
    """The same, of the first plan of a later revision, if the next sweep has not begun before it."""
    for i in iterations:
        view = run.iterations[i].view
        if run.iterations[i].is_sweep:
            return None
        if view is not None and view.fastest_s and view.table_revision > revision:
            return view.table_revision, view.fastest_s
    return None


def _forced_s(run: PlayedRun, history: History, span: JobSpan, sweep: range) -> float:
    for i in sweep:
        has_slow_link = any(faults.transfer_s for faults in history.at(i).gpus.values())
        if has_slow_link or unwell_stages(history, span, i):
            return max(run.without[j].time_s for j in sweep)
    return 0.0


def unwell_stages(history: History, span: JobSpan, iteration: int) -> frozenset[int]:
    """The pp_ranks of which no replica is well in an iteration: a tensor-parallel group, where every rank is."""
    job, unwell = span.job, history.at(iteration).gpus
    return frozenset(
        pp_rank
        for pp_rank in range(job.pp)
        if all(not unwell.keys().isdisjoint(job.group_of(dp_rank, pp_rank)) for dp_rank in range(job.dp))
    )
