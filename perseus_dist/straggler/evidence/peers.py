"""A reference from one's likes: the median of the others in a group, oneself left out.

With oneself in it, the median of two is half one's own; left out, a straggler among few is seen in full.
"""

import numpy as np
from numpy.typing import NDArray

from perseus_dist.units import FloatArray


def median_of_others(
    values: FloatArray, groups: NDArray[np.integer], is_left_out: NDArray[np.bool_] | None = None
) -> tuple[FloatArray, NDArray[np.intp]]:
    """Median of the other values of each one's group.

    Args:
        values: (n) NaN where there is none.
        groups: (n) any integers.
        is_left_out: (n) values that are no reference for others; they are themselves compared with all that remain.

    Returns:
        (n) medians, NaN where the value or all others are missing, and (n) how many others there were.
    """
    medians = np.full(len(values), np.nan)
    num_others = np.zeros(len(values), dtype=np.intp)
    is_there = ~np.isnan(values)
    counted = np.flatnonzero(is_there if is_left_out is None else is_there & ~is_left_out)
    if len(counted) == 0:
        return medians, num_others
    order = counted[np.lexsort((values[counted], groups[counted]))]
    ascending, group = values[order], groups[order]
    first = np.flatnonzero(np.concatenate(([True], group[1:] != group[:-1])))
    sizes = np.diff(np.append(first, len(order)))
    begin, others = np.repeat(first, sizes), np.repeat(sizes, sizes) - 1
    place = np.arange(len(order)) - begin
    # Places of the two middle values among the others, and with oneself put back among them.
    lower, upper = np.maximum(others - 1, 0) // 2, others // 2
    last = begin + others
    low = ascending[np.minimum(begin + lower + (place <= lower), last)]
    high = ascending[np.minimum(begin + upper + (place <= upper), last)]
    medians[order] = np.where(others > 0, (low + high) / 2, np.nan)
    num_others[order] = others
    if is_left_out is not None and len(left_out := np.flatnonzero(is_there & is_left_out)):
        index = np.minimum(np.searchsorted(group[first], groups[left_out]), len(first) - 1)
        has_group = group[first][index] == groups[left_out]
        middle = (ascending[first + (sizes - 1) // 2] + ascending[first + sizes // 2]) / 2
        medians[left_out] = np.where(has_group, middle[index], np.nan)
        num_others[left_out] = np.where(has_group, sizes[index], 0)
    return medians, num_others
