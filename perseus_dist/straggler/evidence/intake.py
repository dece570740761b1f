"""Reports of single ranks, put together into iterations: late, repeated, missing and impossible ones included.

A report is one row of an array; memory is bounded by ``max_ahead`` iterations of all ranks. Iterations leave in order,
each once: as soon as every rank that is not silent has reported it, or after a time of grace.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from perseus_dist.straggler.evidence.observation import IterationObservation, refusal_of_iteration
from perseus_dist.straggler.layout import Layout
from perseus_dist.straggler.policy import StragglerPolicy
from perseus_dist.units import FloatArray

_PIPELINE, _PLANNED, _TOKENS, _INPUT_WAIT = range(4)
_NUM_OTHERS = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WholeIteration:
    """One iteration, cell by cell; NaN where no rank reported.

    Attributes:
        iteration: Its number.
        at_s: [s] when its first report came.
        log_ratios: (num_cells, num_kinds) logarithm of time over the profile's at the requested clock.
        requested_mhz: (num_cells, num_kinds) [MHz].
        log_tokens: (num_cells) logarithm of the work done; NaN where it is not known.
        pipeline_s, planned_s: (dp_size) [s] NaN where they are not known.
        input_wait_s: (dp_size) [s] NaN where it is not known.
    """

    iteration: int
    at_s: float
    log_ratios: FloatArray
    requested_mhz: FloatArray
    log_tokens: FloatArray
    pipeline_s: FloatArray
    planned_s: FloatArray
    input_wait_s: FloatArray


class Intake:
    """Iterations that are not whole yet.

    Attributes:
        last_seen_s: (num_ranks) [s] when each rank last said anything that was true; -inf before.
        refused: How many reports were refused, by reason.
        num_jumps: How often training went on at quite another iteration.
    """

    def __init__(self, layout: Layout, policy: StragglerPolicy) -> None:
        self._layout, self._policy = layout, policy
        self._num_kinds = len(layout.kinds)
        width = 2 * self._num_kinds + _NUM_OTHERS
        self._rows = np.full((policy.max_ahead, layout.num_ranks, width), np.nan)
        self._num_reported = [0] * policy.max_ahead
        self._first_at_s = [0.0] * policy.max_ahead
        self._next: int | None = None
        self._newest = -1
        # Where ranks say to be, if not at an iteration that can be taken: a majority there is followed.
        self._elsewhere = np.full(layout.num_ranks, -1, dtype=np.int64)
        self._num_elsewhere = np.zeros(layout.num_ranks, dtype=np.int64)
        self.last_seen_s = np.full(layout.num_ranks, -np.inf)
        self.refused: Counter[str] = Counter()
        self.num_jumps = 0

    def take(self, rank: int, seen: IterationObservation, now_s: float) -> str:
        """Take note of one rank's iteration.

        Returns:
            Empty, or why it was refused. A refused report from another place in training shows where that goes on.
        """
        if refusal := refusal_of_iteration(seen, self._num_kinds, self._policy.max_ratio):
            self.refused["impossible"] += 1
            return f"rank {rank}, iteration {seen.iteration}: {refusal}"
        if self._next is None:
            self._next = self._newest = seen.iteration
        if not self._next <= seen.iteration < self._next + self._policy.max_ahead:
            return self._record_elsewhere(rank, seen, now_s)
        slot = seen.iteration % self._policy.max_ahead
        row = self._rows[slot, rank]
        if row[0] == row[0]:  # not NaN
            self.refused["repeated"] += 1
            return f"rank {rank} has reported iteration {seen.iteration} before; each is taken once"
        wait_s = np.nan if seen.input_wait_s is None else seen.input_wait_s
        others = (seen.pipeline_time_s, seen.planned_time_s, seen.tokens, wait_s)
        self._rows[slot, rank] = (*seen.time_ratios, *seen.requested_mhz, *others)
        if self._num_reported[slot] == 0:
            self._first_at_s[slot] = now_s
        self._num_reported[slot] += 1
        self._newest = max(self._newest, seen.iteration)
        self._num_elsewhere[rank] = 0
        self.last_seen_s[rank] = now_s
        return ""

    def _record_elsewhere(self, rank: int, seen: IterationObservation, now_s: float) -> str:
        """A late report is refused; but where most ranks go on elsewhere, training has, and is followed from there."""
        assert self._next is not None
        begin, end = self._next, self._next + self._policy.max_ahead - 1
        if seen.iteration == self._elsewhere[rank] and self._num_elsewhere[rank]:
            self.refused["repeated"] += 1
            return f"rank {rank} has reported iteration {seen.iteration} before; each is taken once"
        goes_on = self._num_elsewhere[rank] > 0 and seen.iteration > self._elsewhere[rank]
        self._num_elsewhere[rank] = self._num_elsewhere[rank] + 1 if goes_on else 1
        self._elsewhere[rank] = seen.iteration
        self.last_seen_s[rank] = now_s
        is_there = self._num_elsewhere >= 2
        if 2 * np.count_nonzero(is_there) > np.count_nonzero(self.last_seen_s >= now_s - self._policy.stale_s):
            self._next = self._newest = int(np.median(self._elsewhere[is_there])) + 1
            self._rows.fill(np.nan)
            self._num_reported = [0] * self._policy.max_ahead
            self._num_elsewhere.fill(0)
            self.num_jumps += 1
        self.refused["out of order"] += 1
        return f"rank {rank} reported iteration {seen.iteration}, expected {begin} to {end}; it is not judged"

    def next_complete_iteration(self, now_s: float) -> WholeIteration | None:
        """The next iteration that can be judged; None where there is none yet."""
        while self._next is not None and self._next <= self._newest:
            slot = self._next % self._policy.max_ahead
            num_reported = self._num_reported[slot]
            if num_reported == 0:
                if self._num_reported_later() == 0:
                    return None
                self._next += 1  # no rank ever reported it
                continue
            if num_reported < self._layout.num_ranks:
                is_live = self.last_seen_s >= now_s - self._policy.stale_s
                is_missing = np.isnan(self._rows[slot, :, 0])
                is_early = now_s < self._first_at_s[slot] + self._policy.grace_s
                has_room = self._newest - self._next < self._policy.max_ahead // 2
                if is_early and has_room and np.any(is_live & is_missing):
                    return None
            taken = self._fold(self._next, slot)
            self._rows[slot] = np.nan
            self._num_reported[slot] = 0
            self._next += 1
            return taken
        return None

    def _num_reported_later(self) -> int:
        return sum(self._num_reported)

    def _fold(self, iteration: int, slot: int) -> WholeIteration:
        """Ranks to cells and pipelines: each is as slow as its slowest rank, whom the others wait for.

        A pipeline's time is known where each of its stages has told: the first one ends last.
        """
        layout, kinds = self._layout, self._num_kinds
        cells = np.fmax.reduce(self._rows[slot][layout.rank_of], axis=2)  # (dp_size, pp_size, width)
        pipelines = np.fmax.reduce(cells[:, :, 2 * kinds :], axis=1)
        has_told = ~np.isnan(cells[:, :, 2 * kinds + _PIPELINE]).any(axis=1)
        cells = cells.reshape(layout.num_cells, -1)
        tokens = cells[:, 2 * kinds + _TOKENS]
        return WholeIteration(
            iteration=iteration,
            at_s=self._first_at_s[slot],
            log_ratios=np.log(cells[:, :kinds]),
            requested_mhz=cells[:, kinds : 2 * kinds],
            log_tokens=np.log(tokens, where=tokens > 0, out=np.full_like(tokens, np.nan)),
            pipeline_s=np.where(has_told & (pipelines[:, _PIPELINE] > 0), pipelines[:, _PIPELINE], np.nan),
            planned_s=np.where(pipelines[:, _PLANNED] > 0, pipelines[:, _PLANNED], np.nan),
            input_wait_s=pipelines[:, _INPUT_WAIT],
        )
