"""The evidence of NVML: which GPUs run below the clock requested, for how long and for which reason.

A power cap that all GPUs of a stage share is how this job runs, not a straggler: what counts is the loss of clock
beyond that of the peers. A reading meets the cap or not, by what the GPU computes and is asked for at that instant, so
that a cap is held against the clocks that the peers have been seen to reach lately, at the cap or without. A peer that
waits draws too little to meet a cap, whatever its clock: that says nothing. A hot GPU that meets the cap all share is
as slow as they are there: its heat is what it loses where it does not. Where few peers say something, a power cap
predicts nothing, since the profile was measured under it: times must say that it is a lower one.
"""

import math

import numpy as np

from perseus_dist.straggler.evidence.observation import GpuObservation
from perseus_dist.straggler.evidence.peers import median_of_others
from perseus_dist.straggler.evidence.series import BoolArray
from perseus_dist.straggler.layout import Layout
from perseus_dist.straggler.policy import StragglerPolicy
from perseus_dist.units import FloatArray

REASON_IDLE = 0x1
REASON_CLOCKS_SETTING = 0x2
REASON_POWER_CAP = 0x4
REASON_HW_SLOWDOWN = 0x8
REASON_SW_THERMAL = 0x20
REASON_HW_THERMAL = 0x40
REASON_POWER_BRAKE = 0x80
THROTTLE_REASONS = REASON_POWER_CAP | REASON_HW_SLOWDOWN | REASON_SW_THERMAL | REASON_HW_THERMAL | REASON_POWER_BRAKE

_NUM_READINGS = 128  # that say what clock a GPU reaches
_LOADED = 0.8  # of the least power that a cap was met at
_MIN_LOSS = 0.02  # [log] a clock step or two below the one requested is within what NVML reads at an instant


class GpuEvidence:
    """Each GPU's latest useful reading, and how many in a row showed throttling.

    A throttled GPU that is asked for no more than it reaches says nothing: it may be free again, or not.

    Attributes:
        since_s: (num_ranks) [s] when the present throttling was first read; NaN where there is none.
        reasons: (num_ranks) bits of the last readings during it, joined: what begins as heat may go on as the power cap
            that all GPUs share.
        throttled_mhz: (num_ranks) [MHz] that the latest throttling let it reach: the median of the last readings; 0
            where there was none.
        since_iteration: (num_ranks) the newest that had begun at ``since_s``; -1 if unknown.
        free_iteration: (num_ranks) the newest that had begun when it was first read to be free again; -1 if unknown.
        requested_mhz, observed_mhz: (num_ranks) [MHz] of the latest reading.
        temperature_c, power_w: (num_ranks) of the latest reading.
        has_news: Whether a GPU has been throttled, or free again, for long enough since this was last set to False.
    """

    def __init__(self, layout: Layout, policy: StragglerPolicy) -> None:
        num_ranks = layout.num_ranks
        self._policy = policy
        self._stage_of_rank = layout.cell_of % layout.pp_size
        self._at_s, self._told_at_s = np.full((2, num_ranks), -np.inf)
        self._num_throttled, self._num_free = np.zeros((2, num_ranks), dtype=np.intp)
        self._throttled_clocks = np.zeros((num_ranks, policy.min_gpu_samples))
        # [log] requested over observed clock of the last throttled readings; NaN at the power cap.
        self._heat_losses = np.full((num_ranks, policy.min_gpu_samples), np.nan)
        self._throttled_reasons = np.zeros((num_ranks, policy.min_gpu_samples), dtype=np.int64)
        self.throttled_mhz = np.zeros(num_ranks)
        self.since_iteration, self.free_iteration = np.full((2, num_ranks), -1, dtype=np.int64)
        # [MHz] by the latest readings: reached at the power cap, and without it.
        self._capped_mhz = np.full((num_ranks, _NUM_READINGS), np.inf)
        self._free_mhz, self._read_w = np.zeros((2, num_ranks, _NUM_READINGS))
        self._num_read = np.zeros(num_ranks, dtype=np.intp)
        self.has_news = False
        self.since_s = np.full(num_ranks, np.nan)
        self.reasons = np.zeros(num_ranks, dtype=np.int64)
        self.requested_mhz, self.observed_mhz, self.temperature_c, self.power_w = np.zeros((4, num_ranks))

    def take(self, rank: int, seen: GpuObservation, now_s: float) -> None:
        """Take note of a reading; one of an idle GPU says nothing about its clock."""
        self.temperature_c[rank], self.power_w[rank] = seen.temperature_c, seen.power_w
        if seen.observed_mhz == 0 or seen.event_reasons & REASON_IDLE:
            return
        is_new = now_s > self._told_at_s[rank]  # readings told together are one piece of evidence
        self._told_at_s[rank] = now_s
        reasons = seen.event_reasons & THROTTLE_REASONS
        is_below = seen.requested_mhz == 0 or seen.observed_mhz < (1 - _MIN_LOSS) * seen.requested_mhz
        is_throttled = reasons != 0 and is_below
        if not is_throttled and seen.observed_mhz <= (1 + _MIN_LOSS) * self.throttled_mhz[rank]:
            return
        latest = self._num_read[rank] % _NUM_READINGS
        self._num_read[rank] += 1
        self._capped_mhz[rank, latest] = seen.observed_mhz if reasons == REASON_POWER_CAP and is_below else np.inf
        self._free_mhz[rank, latest] = 0 if is_throttled else seen.observed_mhz
        self._read_w[rank, latest] = seen.power_w
        is_stale = now_s - self._at_s[rank] > self._policy.stale_s
        self._at_s[rank] = now_s
        self.requested_mhz[rank], self.observed_mhz[rank] = seen.requested_mhz, seen.observed_mhz
        if is_throttled and is_new:
            if is_stale and self._num_throttled[rank] < self._policy.min_gpu_samples:
                self._num_throttled[rank] = 0  # too few to say what has been since
            self._record_throttled(rank, seen, reasons, now_s)
        elif not is_throttled and self.throttled_mhz[rank]:
            self._num_throttled[rank], self.since_s[rank] = 0, np.nan
            if is_new:
                self._record_unthrottled(rank, seen.iteration)

    def _record_throttled(self, rank: int, seen: GpuObservation, reasons: int, now_s: float) -> None:
        clocks, joined, losses = self._throttled_clocks[rank], self._throttled_reasons[rank], self._heat_losses[rank]
        if self._num_throttled[rank] == 0:
            self.since_s[rank], self.since_iteration[rank] = now_s, seen.iteration
            clocks[:], joined[:], losses[:] = seen.observed_mhz, reasons, np.nan
        # Heat that held it below this clock is over, although the power cap that all GPUs share may hold it now.
        is_past = ~np.isnan(losses) & (seen.observed_mhz > (1 + _MIN_LOSS) * clocks)
        losses[is_past], joined[is_past] = np.nan, reasons
        clocks[:-1], clocks[-1] = clocks[1:].copy(), seen.observed_mhz
        joined[:-1], joined[-1] = joined[1:].copy(), reasons
        is_heat = seen.requested_mhz and not reasons & REASON_POWER_CAP
        losses[:-1] = losses[1:].copy()
        losses[-1] = math.log(seen.requested_mhz / seen.observed_mhz) if is_heat else np.nan
        self.throttled_mhz[rank] = np.median(clocks)
        self.reasons[rank] = np.bitwise_or.reduce(joined)
        self._num_free[rank] = 0
        self._num_throttled[rank] += 1
        self.has_news |= bool(self._num_throttled[rank] == self._policy.min_gpu_samples)

    def _record_unthrottled(self, rank: int, iteration: int) -> None:
        if self._num_free[rank] == 0:
            self.free_iteration[rank] = iteration
        self._num_free[rank] += 1
        self.has_news |= bool(self._num_free[rank] == self._policy.min_gpu_samples)

    def go_back(self) -> None:
        """Training goes on from an earlier iteration: numbers of iterations say nothing any more."""
        self.since_iteration.fill(-1)
        self.free_iteration.fill(-1)

    def is_freed(self, rank: int) -> bool:
        """Whether a GPU that was throttled has been free for so many readings in a row as throttling would take."""
        return bool(self._num_free[rank] >= self._policy.min_gpu_samples)

    def is_throttled(self, rank: int) -> bool:
        """Whether the latest reading that says something was of a throttled GPU."""
        return bool(self._num_throttled[rank] > 0)

    def is_recent(self, now_s: float) -> BoolArray:
        """(num_ranks) whether the latest reading that says something is not stale."""
        recent: BoolArray = now_s - self._at_s <= self._policy.stale_s
        return recent

    def loss(self, now_s: float) -> FloatArray:
        """(num_ranks) logarithm of requested over observed clock, beyond the peers'; 0 where nothing throttles.

        Where no clock is requested, the peers' clock is what could have been.
        """
        if not self._num_throttled.any():
            return np.zeros(len(self._at_s))
        is_known = self.is_recent(now_s) & (self.observed_mhz > 0)
        observed = np.log(np.where(is_known, self.observed_mhz, np.nan))
        is_requested = self.requested_mhz > 0
        own = np.log(np.where(is_requested, self.requested_mhz, 1.0)) - np.where(is_requested, observed, np.nan)
        groups = self._stage_of_rank
        usual, num_others = median_of_others(own, groups)
        usual = np.where(num_others >= self._policy.min_peers, np.maximum(usual, 0.0), 0.0)
        free, num_free = median_of_others(np.where(is_requested, np.nan, observed), groups)
        free = np.where(num_free >= self._policy.min_peers, free, observed)
        loss = np.where(is_requested, own - usual, free - observed)
        is_capped = self._throttled_reasons[:, -1] & REASON_POWER_CAP != 0
        by_heat = np.fmax.reduce(self._heat_losses, axis=1) - usual
        reached = self._reached_by_peers()
        beyond_peers = np.minimum(loss, reached - observed)
        beyond_peers[np.isinf(reached) & ~np.isnan(by_heat)] = 0.0
        loss = np.where(is_capped, np.fmax(beyond_peers, by_heat), loss)
        return np.where(is_known & (self._num_throttled > 0), np.maximum(np.nan_to_num(loss), 0.0), 0.0)

    def supports(self, loss: FloatArray) -> BoolArray:
        """(num_ranks) where a throttled clock makes slow times credible."""
        supported: BoolArray = loss > _MIN_LOSS
        return supported

    def predicts(self, loss: FloatArray) -> BoolArray:
        """(num_ranks) where a throttled clock alone says that times will be slow, whatever else bounds them."""
        is_lasting = self._num_throttled >= self._policy.min_gpu_samples
        if is_lasting.any():
            is_lasting &= self._is_beyond_power | np.isfinite(self._reached_by_peers())
        lasting: BoolArray = is_lasting & (self._policy.gpu_gain_share * loss > np.log(self._policy.min_degree))
        return lasting

    @property
    def _is_beyond_power(self) -> BoolArray:
        """(num_ranks) where NVML has named another reason than the power cap."""
        beyond: BoolArray = (self.reasons & ~REASON_POWER_CAP) != 0
        return beyond

    def _reached_by_peers(self) -> FloatArray:
        """(num_ranks) logarithm of the clock that peers were seen to reach lately; infinite where they are few."""
        is_capped = np.isfinite(self._capped_mhz)
        loaded_w = _LOADED * self._read_w.min(where=is_capped, initial=np.inf)
        free_mhz = self._free_mhz.max(axis=1, where=self._read_w >= loaded_w, initial=0.0)
        reached_mhz = np.where(is_capped.any(axis=1), self._capped_mhz.min(axis=1), free_mhz)
        reached_mhz = np.where(reached_mhz > 0, reached_mhz, np.nan)
        by_peers, num_peers = median_of_others(np.log(reached_mhz), self._stage_of_rank)
        reached: FloatArray = np.where(num_peers >= self._policy.min_peers, by_peers, np.inf)
        return reached
