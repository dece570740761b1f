"""How much slower than its peers each place was in one iteration, or than its own history, where peers are few.

Peers are of the same stage, the same instruction kind and the same requested clock. Where fewer than ``min_peers``
others remain, being slower than them is not enough (one of two may as well have become faster): the place must also be
slower than its own history, from which what happens to the whole job is taken out; until it has a history, the profile
stands in where it clearly says slow. Where there are none, history alone speaks. Where plans have peers run at
different clocks, what a place's times are above the profile is compared with what they were when it was last compared.
Where most of many replicas become slow at once, those that stay well look fast beside them: then neither history nor
what is like the peers is learned at that stage.
"""

import math

import numpy as np
from numpy.typing import NDArray

from perseus_dist.straggler.evidence.baseline_offset import BaselineOffset
from perseus_dist.straggler.evidence.peers import median_of_others
from perseus_dist.straggler.evidence.series import BoolArray
from perseus_dist.straggler.policy import StragglerPolicy
from perseus_dist.units import FloatArray

_HISTORY_MEMORY = 64
_MAX_HISTORY_STEP = 0.03
_MAX_SPEED_UP = 0.02
_LIKE_MEMORY = 4
_PROFILE_DOUBT = 0.02
_MIN_SHARED = 2


class PeerBaseline:
    """The reference that each place is compared with; places are cells, or whole pipelines.

    Attributes:
        num_others: (num_places) peers in the latest iteration.
        num_compared: (num_places) iterations in which there was one.
        doubts: (num_places) how wrong the latest deviations may be, however many there are: the profile's error.
    """

    def __init__(self, stages: NDArray[np.integer], shares: FloatArray, policy: StragglerPolicy) -> None:
        """Args: (num_places) the stage of each place; (num_kinds) share of each kind; how many peers are enough."""
        self._stages = np.asarray(stages, dtype=np.intp)
        self._shares, self._policy = shares, policy
        self._level = BaselineOffset(len(stages), policy)
        self._history = np.zeros(len(stages))
        self._num_history = np.zeros(len(stages), dtype=np.intp)
        self._clocks = np.full((len(stages), len(shares)), np.nan)
        self._has_replicas = np.bincount(self._stages)[self._stages] > policy.min_peers  # if all can be compared
        self._like = np.full(len(stages), np.nan)  # what a place's own value would be if it were like its peers
        self._is_resumed = np.zeros(len(stages), dtype=bool)
        self.num_others = np.zeros(len(stages), dtype=np.intp)
        self.num_compared = np.zeros(len(stages), dtype=np.intp)
        self.doubts = np.zeros(len(stages))

    def deviations(
        self,
        values: FloatArray,
        clocks: FloatArray,
        is_straggler: BoolArray,
        is_frozen: BoolArray,
        unusual: FloatArray,
        is_profiled: BoolArray | None = None,
    ) -> tuple[FloatArray, FloatArray]:
        """Compare, then learn.

        Args:
            values: (num_places, num_kinds) logarithms of times; NaN where missing.
            clocks: (num_places, num_kinds) what must be equal for two times to be compared.
            is_straggler: (num_places) known ones, which are no reference for others.
            is_frozen: (num_places) where nothing must be learned, because what is seen is not usual; these included.
            unusual: (num_places) a difference that is more than noise.
            is_profiled: (num_places) where the profile, 0, stands for a history that is not there yet and could not be
                learned now; at other clocks such places are slow by another degree. Left out for pipelines, whose
                values say nothing beside another plan's.

        Returns:
            (num_places) logarithms; NaN where there is nothing to compare with. Where peers are few, the first is what
            they and history agree on, the second history alone, whose noise is that of the place.
        """
        peers = self._above_peers(values, clocks, is_straggler) - self._level.offset
        has_many = self.num_others >= self._policy.min_peers
        self.num_compared += ~np.isnan(peers)
        # Beside a straggler its only peer looks fast; that is nothing usual either.
        self._level.learn(peers, ~is_frozen & (has_many | ~is_frozen.any()))
        is_ahead = has_many & ~is_straggler & (peers < -unusual)  # NaN compares false
        learns = ~(is_frozen | np.isin(self._stages, self._stages[is_ahead]))
        # Few iterations do not tell a job that has become slower from a straggler, where its peers do not, either.
        rise = np.where(has_many | ~self._has_replicas, np.inf, unusual)
        history = self._above_history(values @ self._shares, clocks, is_straggler, is_frozen, learns, rise, is_profiled)
        known, is_well_alone = history, np.zeros(len(history), dtype=bool)
        if is_profiled is not None:
            above = self._above_profile(values @ self._shares, is_frozen)
            # Noise is what history shows: the profile speaks only where it says clearly that a place is slow.
            is_slow = np.minimum(above, 2 * peers) > math.log(self._policy.min_degree) + _PROFILE_DOUBT
            # Or that a known straggler is slow no more, if its only peer agrees, or no peer is left to compare with.
            is_left = self._are_all(is_straggler)
            witness = np.where(is_left, above, 2 * peers)
            is_well = is_straggler & (np.maximum(above, witness) < _PROFILE_DOUBT)
            is_new = np.isnan(history) & (is_slow | is_well) & ~has_many  # NaN compares false
            known = np.where(is_new, above, history)
            is_well_alone = is_new & is_well & is_left
            self.doubts = np.where(is_new, _PROFILE_DOUBT, 0.0)
        # One's own history is less noisy than the only peer: the peer need agree by half, and only about being slow.
        agreed = np.where(known > 0, np.minimum(known, np.maximum(2 * peers, 0.0)), known)
        both = np.where(np.isnan(peers), np.where(is_well_alone, known, history), agreed)
        compared, alone = np.where(has_many, peers, both), np.where(has_many, peers, history)
        if is_profiled is None:
            return compared, alone
        own, can_be_shared = self._above_like(values @ self._shares, compared, is_straggler, learns)
        if self._is_resumed.any():
            above = self._above_profile(values @ self._shares, is_straggler)
            own = np.where(self._is_resumed & np.isnan(self._like), above, own)
        is_followed = is_straggler & ~is_profiled & ~has_many
        is_alone = ~is_straggler & ~is_profiled & np.isnan(compared) & can_be_shared
        shrunk = np.sign(own) * np.maximum(np.abs(own) - _PROFILE_DOUBT, 0.0)
        shrunk = np.where(shrunk > 0, np.fmin(shrunk, np.maximum(2 * peers, 0.0)), shrunk)  # NaN without a peer
        beside = np.where(is_followed, own, np.where(is_alone, shrunk, np.nan))
        return np.fmax(compared, beside), np.fmax(alone, beside)

    def resume(self, place: int) -> None:
        """Compare a place with the profile, where no peer is at its clocks: it was compared before, and no more."""
        self._is_resumed[place] = True

    def _are_all(self, is_so: BoolArray) -> BoolArray:
        """(num_places) whether something is so of a place and all others of its stage, of which there are some."""
        has_others = np.bincount(self._stages)[self._stages] > 1
        are_all: BoolArray = has_others & ~np.isin(self._stages, self._stages[~is_so])
        return are_all

    def _above_profile(self, times: FloatArray, is_frozen: BoolArray) -> FloatArray:
        """Excess of places over the profile, the third witness beside a place without a history and its only peer.

        Who has been slow from the beginning has no other history. What makes the whole job slower is taken out.
        """
        common, _ = median_of_others(times, np.zeros(len(times), dtype=np.intp), is_frozen)
        above: FloatArray = times - np.maximum(np.nan_to_num(common), 0.0)
        return above

    def _above_like(
        self, times: FloatArray, compared: FloatArray, is_straggler: BoolArray, learns: BoolArray
    ) -> tuple[FloatArray, BoolArray]:
        """Excess of places over their peers, as it was when they were last compared.

        It is the only evidence where plans have peers run at different clocks, and as good as the profile is at these.

        Returns:
            (num_places) logarithms, without what happens to the whole job; and where that is known.
        """
        above = times - self._like
        like = np.where(learns, times - compared, np.nan)
        step = np.where(np.isnan(self._like), like, self._like + (like - self._like) / _LIKE_MEMORY)
        self._like = np.where(np.isnan(like), self._like, step)
        common, num_others = median_of_others(above, np.zeros(len(above), dtype=np.intp), is_straggler)
        is_common = num_others >= self._policy.min_peers
        # Others look fast where they were compared while the whole job was slow, which is over; a straggler was not.
        return above - np.where(is_common, np.maximum(common, -_MAX_SPEED_UP), 0.0), is_common

    def _above_peers(self, values: FloatArray, clocks: FloatArray, is_straggler: BoolArray) -> FloatArray:
        num_places, num_kinds = values.shape
        _, clock = np.unique(clocks, return_inverse=True)
        kind = np.broadcast_to(np.arange(num_kinds), values.shape)
        group = (clock.reshape(values.shape) * num_kinds + kind) * num_places + self._stages[:, None]
        left_out = np.repeat(is_straggler, num_kinds)
        medians, num_others = median_of_others(values.ravel(), group.ravel(), left_out)
        self.num_others = num_others.reshape(values.shape).min(axis=1)
        above: FloatArray = (values - medians.reshape(values.shape)) @ self._shares
        return above

    def _above_history(
        self,
        times: FloatArray,
        clocks: FloatArray,
        is_straggler: BoolArray,
        is_frozen: BoolArray,
        learns: BoolArray,
        rise: FloatArray,
        is_profiled: BoolArray | None,
    ) -> FloatArray:
        # Beside the profile's error at one clock stands another one at another clock: history begins anew.
        is_there = ~np.isnan(times)
        changed = is_there & np.any(clocks != self._clocks, axis=1) & learns
        self._num_history[changed] = 0
        self._clocks[changed] = clocks[changed]
        is_settled = is_there & (self._num_history >= self._policy.history_settle)
        own = np.where(is_settled, times - self._history, np.nan)
        if is_profiled is not None:
            own = np.where(is_profiled & ~is_settled, times, own)
        common, num_others = median_of_others(own, np.zeros(len(own), dtype=np.intp), is_frozen)
        # One or two that become faster are not the whole job: who does not is no slower than before.
        common = np.where(num_others >= self._policy.min_peers, common, np.maximum(common, -_MAX_SPEED_UP))
        # Without a peer, what has happened to the whole job looks like what has happened here.
        above = own - np.where(is_straggler & (num_others == 0), 0.0, common)
        shared = _shared_change(own[is_settled & ~is_frozen])
        # A place that takes what the profile says has no part in it.
        usual = times - np.clip(times, min(shared, 0.0), max(shared, 0.0))
        is_risen = ~is_settled & (self._num_history > 0) & (usual - self._history > rise)
        learns = is_there & learns & ~changed & ~is_risen  # the first iteration at other clocks may be of both
        step = np.where(
            is_settled,
            np.clip(np.nan_to_num(above), -_MAX_HISTORY_STEP, _MAX_HISTORY_STEP)
            / np.minimum(self._num_history + 1, _HISTORY_MEMORY),
            (usual - self._history) / (self._num_history + 1),
        )
        self._history[learns] += step[learns]
        self._num_history[learns] += 1
        return above


def _shared_change(changes: FloatArray) -> float:
    """Change that all places whose histories go back share at least, one way; 0 where that is not known.

    A history that begins meanwhile leaves it out, as theirs do. One place may have changed for itself.
    """
    if len(changes) < _MIN_SHARED:
        return 0.0
    return float(max(changes.min(), 0.0) + min(changes.max(), 0.0))
