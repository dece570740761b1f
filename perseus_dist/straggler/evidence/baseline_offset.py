"""Offset of each place that has always been there, and is neither news nor a straggler.

Two GPUs of one kind differ by about half a percent in production. The offset is bounded by ``max_offset``, so that who
has been slow from the beginning is seen all the same, and moves in small steps: a straggler is flagged before it is
usual.
"""

import numpy as np

from perseus_dist.straggler.evidence.series import BoolArray
from perseus_dist.straggler.policy import StragglerPolicy
from perseus_dist.units import FloatArray

_MEMORY, _PRIOR_WEIGHT = 64, 8
_MAX_STEP = 0.01


class BaselineOffset:
    """Offsets, held towards 0.

    Attributes:
        offset: (num_places) logarithms.
    """

    def __init__(self, num_places: int, policy: StragglerPolicy) -> None:
        """Args: how many there are, and how large an offset may be."""
        self._limit = policy.max_offset
        self._num = np.zeros(num_places, dtype=np.intp)
        self.offset = np.zeros(num_places)

    def learn(self, left: FloatArray, learns: BoolArray) -> None:
        """Learn from one iteration.

        Args:
            left: (num_places) values without the offset; NaN where there is none.
            learns: (num_places) where what is seen is usual.
        """
        learns = learns & ~np.isnan(left)
        step = np.clip(left, -_MAX_STEP, _MAX_STEP) / (_PRIOR_WEIGHT + np.minimum(self._num, _MEMORY))
        self.offset[learns] = np.clip(self.offset + step, -self._limit, self._limit)[learns]
        self._num += learns
