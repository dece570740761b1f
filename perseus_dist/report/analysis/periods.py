"""Periods in which pipelines waited for others, put together from iterations, switches and the frontier."""

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from perseus_dist.messages.terms import NO_POINT
from perseus_dist.report.analysis.episodes import Episode
from perseus_dist.report.analysis.pipelines import FollowedSwitch, PipelineIterations
from perseus_dist.report.analysis.waits import IterationWindow, StragglerPeriod, StragglerWait
from perseus_dist.runlog.files import RunFiles
from perseus_dist.runlog.frontier_csv import FrontierPoints
from perseus_dist.units import FloatArray, IntArray

_MAX_ITERATIONS = 100  # before and after, so that what is compared ran under the same conditions
_LATER = 0.005  # share of the straggler's time by which another pipeline is later than it, more than noise


def periods_of(
    run: RunFiles, pipelines: PipelineIterations, switches: Sequence[FollowedSwitch], episodes: Sequence[Episode]
) -> tuple[StragglerPeriod, ...]:
    """All of a run in which one pipeline waited for another.

    Args:
        run: The run.
        pipelines: Its iterations.
        switches: Its switches.
        episodes: Its stragglers.
    """
    found = []
    groups = [(waits, list(group)) for waits, group in groupby(switches, lambda one: one.event.t_prime_s > 0)]
    for place, (waits, group) in enumerate(groups):
        if waits and len(pipelines.dp_ranks) > 1:
            back = groups[place + 1][1] if place + 1 < len(groups) else []
            period = _PeriodFigures(run, pipelines, group, episodes).period(back)
            if period is not None:
                found.append(period)
    return tuple(found)


class _PeriodFigures:
    """Puts one period together."""

    def __init__(
        self,
        run: RunFiles,
        pipelines: PipelineIterations,
        group: Sequence[FollowedSwitch],
        episodes: Sequence[Episode],
    ) -> None:
        self._run = run
        self._pipelines = pipelines
        self._group = group
        first, last = _begin(group[0]), group[-1].last_iteration
        here = [one for one in episodes if _begins(one) <= last and (one.over_iteration or last) >= first]
        self._straggling = pipelines.rows_of(sorted({one.dp_rank for one in here}))
        if not 0 < len(self._straggling) < len(pipelines.dp_ranks):
            inside = (pipelines.number >= first) & (pipelines.number <= last)
            own_s = pipelines.own_time_s[:, inside]
            self._straggling = [int(np.argmax(np.median(own_s, axis=1)))] if inside.any() else [0]
        self._others = [row for row in range(len(pipelines.dp_ranks)) if row not in self._straggling]
        self._onset = min([*map(_begins, here), first])
        # A throttle that changes makes the plan in force too slow or too fast; that is latency, and told as such.
        self._cuts = sorted(one.iteration for one in run.injections)

    def period(self, back: Sequence[FollowedSwitch]) -> StragglerPeriod | None:
        """None where no iteration ran under it."""
        before_at = self._before()
        waits = []
        others = [self._pipelines.dp_ranks[row] for row in self._others]
        for points, merged in groupby(self._group, lambda one: _points(one, others)):
            wait = self._wait(list(merged), np.array(points), before_at)
            if wait is not None:
                waits.append(wait)
        if not waits:
            return None
        return StragglerPeriod(
            straggling=tuple(self._pipelines.dp_ranks[row] for row in self._straggling),
            others=tuple(others),
            before=self._stretch(before_at),
            waits=tuple(waits),
            after=self._stretch(self._after(back)),
        )

    def _before(self) -> IntArray:
        """Indices of the last iterations before the straggler, all under the same plan."""
        pipelines = self._pipelines
        at = np.flatnonzero(pipelines.number < self._onset)[-_MAX_ITERATIONS:]
        if not len(at):
            return at
        row = np.concatenate([pipelines.table_revision, pipelines.point])[:, at]
        same = (row == row[:, -1:]).all(axis=0) & pipelines.follows_plan[at]
        at = at[len(at) - int(np.argmin(np.append(same[::-1], [False]))) :]
        return at[:0] if self._is_slow_already(at) else at

    def _is_slow_already(self, at: IntArray) -> bool:
        """Whether the straggler was about as slow before: it was found late, and nothing shows its usual time."""
        if not len(at):
            return False
        own_s, number = self._pipelines.own_time_s, self._pipelines.number
        straggler_s = own_s[self._straggling].max(axis=0)
        usual_s = float(np.median(own_s[self._others][:, at].max(axis=0)))
        during = (number >= _begin(self._group[0])) & (number <= self._group[0].last_iteration)
        during_s = float(np.median(straggler_s[during])) if during.any() else usual_s
        return bool(np.median(straggler_s[at]) > max((1 + _LATER) * usual_s, (usual_s + during_s) / 2))

    def _after(self, back: Sequence[FollowedSwitch]) -> IntArray:
        for switch in back:
            if switch.first_iteration is not None:
                return self._between(switch.first_iteration, switch.last_iteration)[:_MAX_ITERATIONS]
        return np.array([], dtype=np.int64)

    def _between(self, first: int, last: int) -> IntArray:
        number = self._pipelines.number
        cut = min((cut for cut in self._cuts if cut >= first), default=last + 1)
        return np.flatnonzero((number >= first) & (number <= last) & (number < cut) & self._pipelines.follows_plan)

    def _wait(self, merged: Sequence[FollowedSwitch], points: IntArray, before_at: IntArray) -> StragglerWait | None:
        pipelines = self._pipelines
        follows = (pipelines.point[self._others] == points[:, None]).all(axis=0)
        followed = np.flatnonzero(follows & (pipelines.number >= _begin(merged[0])))
        if not len(followed):
            return None
        at = self._between(int(pipelines.number[followed[0]]), merged[-1].last_iteration)
        at = at[follows[at]]
        measured, before = self._stretch(at), self._stretch(before_at)
        if measured is None:
            return None
        straggler_s = pipelines.own_time_s[self._straggling][:, at].max(axis=0)
        others_s = pipelines.own_time_s[self._others][:, at].max(axis=0)
        straggler_time_s = float(np.median(straggler_s))
        waiting_j = saved_j = best_j = None
        if before is not None:
            power_w = len(self._others) * self._blocking_w
            if before.energy_j is not None:
                waiting_j = before.energy_j + power_w * (measured.time_s - before.time_s)
            forced_s = straggler_time_s + max(0.0, before.time_s - before.own_time_s)
            saved_j, best_j = self._savings(int(at[0]), int(before_at[-1]), forced_s / before.time_s)
        return StragglerWait(
            t_prime_s=merged[-1].event.t_prime_s,
            measured=measured,
            straggler_time_s=straggler_time_s,
            others_time_s=float(np.median(others_s)),
            num_later=int(np.count_nonzero(others_s > (1 + _LATER) * straggler_s)),
            waiting_j=waiting_j,
            planned_j=None if waiting_j is None or saved_j is None else waiting_j - saved_j,
            promised_j=None if waiting_j is None or best_j is None else waiting_j - best_j,
        )

    def _savings(self, at: int, before: int, slowdown: float) -> tuple[float | None, float | None]:
        """Savings of the other pipelines by the frontier: [J] by the plans followed, and by the best ones.

        Args:
            at: Index of an iteration during.
            before: Index of one before.
            slowdown: What the straggler makes of the time before.
        """
        frontier, pipelines = self._run.frontier, self._pipelines
        if frontier is None:
            return None, None
        rows = np.ix_(self._others, [before, at])
        points, revisions = pipelines.point[rows], pipelines.table_revision[rows]
        if (revisions != self._run.job.table_revision).any() or points.max() >= len(frontier.times_s):
            return None, None  # of a table that is no longer there
        effective_j = frontier.energies_j - self._blocking_w * frontier.times_s
        saved_j = best_j = 0.0
        for usual, followed in points.tolist():
            saved_j += effective_j[usual] - effective_j[followed]
            best_j += effective_j[usual] - _least(frontier, effective_j, usual, slowdown)
        return saved_j, best_j

    @property
    def _blocking_w(self) -> float:
        """[W] of all GPUs of a pipeline that waits."""
        job = self._run.job
        return job.pp_size * job.tp_size * job.blocking_power_w

    def _stretch(self, at: IntArray) -> IterationWindow | None:
        """Iterations at some indices, ascending."""
        if not len(at):
            return None
        pipelines = self._pipelines
        energies_j = pipelines.energy_j[self._others][:, at].sum(axis=0)
        energies_j = energies_j[~np.isnan(energies_j)]
        return IterationWindow(
            first_iteration=int(pipelines.number[at[0]]),
            last_iteration=int(pipelines.number[at[-1]]),
            num_iterations=len(at),
            time_s=float(np.median(pipelines.time_s[at])),
            own_time_s=float(np.median(pipelines.own_time_s[:, at].max(axis=0))),
            energy_j=float(np.median(energies_j)) if len(energies_j) else None,
        )


def _least(frontier: FrontierPoints, effective_j: FloatArray, usual: int, slowdown: float) -> float:
    """[J] least effective energy within the time that a straggler takes."""
    within = frontier.times_s <= max(1.0, slowdown) * frontier.times_s[usual]
    return float(effective_j[within].min())


def _points(switch: FollowedSwitch, dp_ranks: Sequence[int]) -> tuple[int, ...]:
    points = switch.event.points
    return tuple(points[dp_rank] if dp_rank < len(points) else NO_POINT for dp_rank in dp_ranks)


def _begin(switch: FollowedSwitch) -> int:
    event = switch.event
    return event.effective_iteration if event.effective_iteration >= 0 else event.iteration


def _begins(episode: Episode) -> int:
    return episode.steps[0].since
