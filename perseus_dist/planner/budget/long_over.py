"""Which policies have been over for so long that they may be deleted, whatever a wall clock did in the meantime.

A wall clock that jumps forward makes everything that is to come seem over, until it is set right again. So what seems
over is out of force at once, and is deleted only after an hour of a clock that no one sets.
"""

from collections.abc import Iterable

KEPT_OVER_S = 3600.0


class LongOver:
    """Since when policies have been over at each look, by a clock that never jumps."""

    def __init__(self) -> None:
        self._since_s: dict[str, float] = {}

    def find(self, over: Iterable[str], steady_s: float) -> frozenset[str]:
        """The keys of those that have been over for an hour.

        Args:
            over: Keys of all that are over by the wall clock now.
            steady_s: [s] of a clock that never jumps.
        """
        self._since_s = {key: self._since_s.get(key, steady_s) for key in over}
        return frozenset(key for key, since_s in self._since_s.items() if steady_s >= since_s + KEPT_OVER_S)
