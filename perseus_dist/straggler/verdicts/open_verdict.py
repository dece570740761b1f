"""The life of one verdict: raised, followed as it gets worse or better, over. Hysteresis, minimum hold, flap limit."""

import math
from collections import deque
from dataclasses import dataclass

import numpy as np

from perseus_dist.straggler.evidence.series import EvidenceSeries
from perseus_dist.straggler.policy import StragglerPolicy
from perseus_dist.straggler.verdicts.verdict import Degree

_MIN_PIPELINE_ROWS = 2
_MIN_LOG_EXCESS = 0.015  # [log] below it nothing is left of a straggler, however small it was


@dataclass(slots=True, kw_only=True, eq=False)
class OpenVerdict:
    """One place held to be a straggler; mutable, owned by the detector.

    Attributes:
        place: The cell, or the pipeline.
        raised_at_s, since_s: [s] when it was raised, and when it began.
        series: The times behind it; None while NVML alone speaks.
        degree: As published; it moves only where the estimate has moved.
        pipeline_degree: The same of the pipeline's own time; None before it is known.
        came_too_often: Raised too often when it was raised.
        was_acted_upon: Others have waited for it; they may until it ends, however small it becomes.
        rank, reasons: The rank that NVML has shown to be throttled while the verdict stood, and why; None and 0 if
            none.
        is_explained: NVML alone has been enough for it; so it is over when NVML says so.
        num_rows: Iterations that its estimate is taken over.
        num_followed: Iterations since it was raised.
        num_recovered, num_moved: Iterations in a row that look recovered, or unlike the estimate.
        num_blind: Iterations in a row that say nothing about it: it has no peer.
    """

    place: int
    raised_at_s: float
    since_s: float
    series: EvidenceSeries | None
    degree: Degree
    pipeline_degree: Degree | None = None
    came_too_often: bool = False
    was_acted_upon: bool = False
    rank: int | None = None
    reasons: int = 0
    is_explained: bool = False
    num_rows: int = 0
    num_followed: int = 0
    num_recovered: int = 0
    num_moved: int = 0
    num_blind: int = 0

    def follow(self, policy: StragglerPolicy, plain: EvidenceSeries) -> None:
        """Take note of one more iteration.

        Args:
            policy: When it is over.
            plain: The series that speaks where ``series`` has nothing to correct its values by.
        """
        self.num_followed += 1
        if self.series is None:
            return
        place = np.array([self.place])
        latest = self.series.estimate(policy.latest_window, place)
        if math.isnan(float(latest.median[0])):
            latest = plain.estimate(policy.latest_window, place)
        median = float(latest.median[0])
        self.num_blind = self.num_blind + 1 if math.isnan(median) else 0
        if self.num_blind:
            return
        excess = math.log(self.degree.value)
        left = max(_MIN_LOG_EXCESS, min(policy.release_share * excess, math.log(policy.min_degree)))
        self.num_recovered = self.num_recovered + 1 if median < left else 0
        self.num_rows = min(self.num_rows + 1, policy.windows[-1])
        moved = abs(median - excess) > max(0.02, policy.interval_z * float(latest.error[0]))
        self.num_moved = self.num_moved + 1 if moved else 0
        if self.num_moved >= policy.num_passes:
            self.num_rows, self.num_moved = policy.latest_window, 0
        if self.num_recovered == 0:
            self._publish(policy)

    def use(self, series: EvidenceSeries, policy: StragglerPolicy) -> None:
        """Believe times from now on."""
        expected = 0.5 * math.log(policy.min_degree)
        self.series = series
        num_slow = series.since(self.place, expected)
        self.num_rows = min(max(num_slow, policy.latest_window), policy.windows[-1])
        self._publish(policy, force=True)

    def follow_pipeline(self, series: EvidenceSeries, dp_rank: int, policy: StragglerPolicy) -> None:
        """Take note of what the straggler costs its pipeline."""
        if self.series is None:
            return
        num_rows = min(self.num_rows, series.num_known(dp_rank))
        new = degree_of(series, num_rows, dp_rank, policy) if num_rows >= _MIN_PIPELINE_ROWS else None
        old = self.pipeline_degree
        if new is None:
            return
        if old is None or _distance(new, old) >= policy.degree_step:
            self.pipeline_degree = new

    def is_over(self, now_s: float, policy: StragglerPolicy) -> bool:
        """Whether times have recovered for long enough; at once where no judgement has told of it yet."""
        held_s = now_s - self.raised_at_s
        is_held = 0 < held_s < policy.min_hold_s and self.num_followed < policy.min_hold_iterations
        return self.num_recovered >= policy.num_passes and not is_held

    def is_fresh(self, policy: StragglerPolicy) -> bool:
        """Whether what it is held to be by has been heard of lately."""
        return self.num_blind < policy.max_blind

    def is_flapping(self, now_s: float, policy: StragglerPolicy) -> bool:
        """Whether it comes and goes; no more so once it has stayed for long, or for as long as waiting pays."""
        has_stayed = self.num_followed >= policy.worth_iterations or now_s - self.raised_at_s > policy.flap_window_s
        return self.came_too_often and not has_stayed

    def is_acted_upon(self, now_s: float, policy: StragglerPolicy) -> bool:
        """Whether the others should wait for it, if it costs them anything.

        Once it is, it stays so: under another plan, which asks for other clocks, the same throttling is another degree.
        """
        self.was_acted_upon |= self.degree.low > policy.min_degree
        return self.was_acted_upon and not self.is_flapping(now_s, policy)

    def _publish(self, policy: StragglerPolicy, *, force: bool = False) -> None:
        assert self.series is not None
        degree = degree_of(self.series, self.num_rows, self.place, policy)
        if degree is None:
            return
        crosses = (degree.low > policy.min_degree) != (self.degree.low > policy.min_degree)
        if force or crosses or abs(degree.value - self.degree.value) >= policy.degree_step:
            self.degree = degree


def _distance(new: Degree, old: Degree) -> float:
    return max(abs(new.value - old.value), abs(new.low - old.low), abs(new.high - old.high))


def degree_of(series: EvidenceSeries, num_rows: int, place: int, policy: StragglerPolicy) -> Degree | None:
    """The degree of one place by the last iterations, with its interval; None where there are too few."""
    estimate = series.estimate(num_rows, np.array([place]))
    median = float(estimate.median[0])
    if math.isnan(median):
        return None
    wide = policy.interval_z * float(estimate.error[0]) + float(estimate.doubt[0])
    return Degree(value=math.exp(median), low=math.exp(median - wide), high=math.exp(median + wide))


class FlapLimit:
    """How often each place has been raised lately; bounded by the places there are."""

    def __init__(self, policy: StragglerPolicy) -> None:
        self._policy = policy
        self._raised_at_s: dict[tuple[str, int], deque[float]] = {}

    def raised(self, kind: str, place: int, now_s: float) -> bool:
        """Take note of one more; returns whether that is too often."""
        raised = self._raised_at_s.setdefault((kind, place), deque(maxlen=self._policy.max_raises + 1))
        raised.append(now_s)
        recent = [at_s for at_s in raised if now_s - at_s <= self._policy.flap_window_s]
        return len(recent) > self._policy.max_raises

    def ended(self, kind: str, case: OpenVerdict) -> None:
        """Take note of an end: a verdict that has stood for long was worth its cost, and counts no more."""
        if case.num_followed >= self._policy.worth_iterations:
            self._raised_at_s[kind, case.place].pop()
