"""Which replicas to believe: what disturbs a computation makes it slower, never faster.

Times at other clocks betray nothing: where a library picks another kernel, a lower clock can be 10 % faster (A40).
"""

import math
from collections.abc import Sequence

from perseus_dist.planning.profile_csv import Row

_ALIKE_SHARE = 0.02
_Z = 3.0


def undisturbed_rows(rows: Sequence[Row]) -> list[Row]:
    """Those of rows of the same thing at the same clock that are not clearly slower than the fastest.

    Args:
        rows: Of replicas, in any order; at least one.
    """
    least = min(rows, key=lambda row: row.time_s)
    return [row for row in rows if row.time_s <= (1 + _ALIKE_SHARE) * least.time_s + _Z * _doubt_s(row, least)]


def _doubt_s(*rows: Row) -> float:
    """[s] standard error of the difference, as far as rows tell how their runs spread."""
    return math.sqrt(sum(row.time_std_s**2 / row.samples for row in rows if row.time_std_s > 0))
