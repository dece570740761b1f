"""The evidence of NVML: which GPUs run below the clock requested, for how long and for which reason.

A power cap that all GPUs of a stage share is how this job runs, not a straggler: what counts is the loss of clock
beyond that of the peers.
"""

import numpy as np

from perseus_dist.straggler.layout import Layout
from perseus_dist.straggler.observation import GpuObservation
from perseus_dist.straggler.peers import median_of_others
from perseus_dist.straggler.policy import StragglerPolicy
from perseus_dist.straggler.series import BoolArray
from perseus_dist.units import FloatArray

REASON_IDLE = 0x1
REASON_CLOCKS_SETTING = 0x2
REASON_POWER_CAP = 0x4
REASON_HW_SLOWDOWN = 0x8
REASON_SW_THERMAL = 0x20
REASON_HW_THERMAL = 0x40
REASON_POWER_BRAKE = 0x80
THROTTLE_REASONS = REASON_POWER_CAP | REASON_HW_SLOWDOWN | REASON_SW_THERMAL | REASON_HW_THERMAL | REASON_POWER_BRAKE

_MIN_LOSS = 0.02  # [log] a clock step or two below the one requested is within what NVML reads at an instant


class GpuEvidence:
    """The latest reading of every GPU, and for how many readings in a row it has been throttled.

    Attributes:
        since_s: (num_ranks) [s] when the present throttling was first read; NaN where there is none.
        reasons: (num_ranks) bits read during it, joined.
        requested_mhz, observed_mhz: (num_ranks) [MHz] of the latest reading.
        temperature_c, power_w: (num_ranks) of the latest reading.
    """

    def __init__(self, layout: Layout, policy: StragglerPolicy) -> None:
        num_ranks = layout.num_ranks
        self._policy = policy
        self._stage_of_rank = layout.cell_of % layout.pp_size
        self._at_s = np.full(num_ranks, -np.inf)
        self._num_throttled = np.zeros(num_ranks, dtype=np.intp)
        self.since_s = np.full(num_ranks, np.nan)
        self.reasons = np.zeros(num_ranks, dtype=np.int64)
        self.requested_mhz, self.observed_mhz, self.temperature_c, self.power_w = np.zeros((4, num_ranks))

    def take(self, rank: int, seen: GpuObservation, now_s: float) -> None:
        """Take note of a reading; one of an idle GPU says nothing about its clock."""
        self.temperature_c[rank], self.power_w[rank] = seen.temperature_c, seen.power_w
        if seen.observed_mhz == 0 or seen.event_reasons & REASON_IDLE:
            return
        is_new = now_s > self._at_s[rank]  # readings told together are one piece of evidence
        self._at_s[rank] = now_s
        self.requested_mhz[rank], self.observed_mhz[rank] = seen.requested_mhz, seen.observed_mhz
        reasons = seen.event_reasons & THROTTLE_REASONS
        is_below = seen.requested_mhz == 0 or seen.observed_mhz < (1 - _MIN_LOSS) * seen.requested_mhz
        if not (reasons and is_below):
            if self._num_throttled[rank]:
                self._num_throttled[rank], self.since_s[rank] = 0, np.nan
            return
        if not is_new:
            return
        if self._num_throttled[rank] == 0:
            self.since_s[rank], self.reasons[rank] = now_s, 0
        self._num_throttled[rank] += 1
        self.reasons[rank] |= reasons

    def loss(self, now_s: float) -> FloatArray:
        """(num_ranks) logarithm of requested over observed clock, beyond the peers'; 0 where nothing throttles.

        Where no clock is requested, the peers' clock is what could have been.
        """
        if not self._num_throttled.any():
            return np.zeros(len(self._at_s))
        is_known = (now_s - self._at_s <= self._policy.stale_s) & (self.observed_mhz > 0)
        observed = np.log(np.where(is_known, self.observed_mhz, np.nan))
        is_requested = self.requested_mhz > 0
        own = np.log(np.where(is_requested, self.requested_mhz, 1.0)) - np.where(is_requested, observed, np.nan)
        groups = self._stage_of_rank
        usual, num_others = median_of_others(own, groups)
        usual = np.where(num_others >= self._policy.min_peers, np.maximum(usual, 0.0), 0.0)
        free, num_free = median_of_others(np.where(is_requested, np.nan, observed), groups)
        free = np.where(num_free >= self._policy.min_peers, free, observed)
        loss = np.where(is_requested, own - usual, free - observed)
        return np.where(is_known & (self._num_throttled > 0), np.maximum(np.nan_to_num(loss), 0.0), 0.0)

    def supports(self, loss: FloatArray) -> BoolArray:
        """(num_ranks) where a throttled clock makes slow times credible."""
        supported: BoolArray = loss > _MIN_LOSS
        return supported

    def predicts(self, loss: FloatArray) -> BoolArray:
        """(num_ranks) where a throttled clock alone says that times will be slow, whatever else bounds them."""
        is_lasting = self._num_throttled >= self._policy.min_gpu_samples
        lasting: BoolArray = is_lasting & (self._policy.gpu_gain_share * loss > np.log(self._policy.min_degree))
        return lasting
