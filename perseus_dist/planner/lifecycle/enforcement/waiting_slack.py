"""Slack that pipelines keep which wait for a straggler, where noise makes each now earlier, now later.

An iteration ends with its latest pipeline. At full clocks the straggler alone is late. Where all others are to end as
it does, the latest of many is later than the straggler on the mean.
"""

import math

from perseus_dist.planning.frontier.noise_margin import TOLERATED

_MAX_Z, _NUM_HALVINGS = 8.0, 40


def slack_beside_straggler(own_noise: float, num_waiting: int) -> float:
    """Share of the straggler's time by which waiting pipelines end earlier.

    Iterations then last longer by no more than ``TOLERATED`` on the mean: the sum, over the pipelines that wait, of how
    much later than the straggler each is, where it is, which is no less than how much later the latest is.

    Args:
        own_noise: Standard deviation of a pipeline's time, as a share, by what no other pipeline has in common with it.
        num_waiting: Pipelines.
    """
    apart = math.sqrt(2.0) * own_noise  # of a pipeline and the straggler
    if num_waiting * apart * _mean_excess(0.0) <= TOLERATED:
        return 0.0
    low, high = 0.0, _MAX_Z
    for _ in range(_NUM_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if num_waiting * apart * _mean_excess(middle) > TOLERATED else (low, middle)
    return high * apart


def _mean_excess(z: float) -> float:
    """Of a standard normal value over z, where it is above; 0 where it is not."""
    return math.exp(-z * z / 2) / math.sqrt(2 * math.pi) - z * math.erfc(z / math.sqrt(2)) / 2
