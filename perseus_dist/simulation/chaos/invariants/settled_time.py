"""Once a job has been left alone, its iterations take no longer than without Perseus, or what was asked for."""

import math
from statistics import median, stdev

from perseus_dist.simulation.chaos.calm import calm_of
from perseus_dist.simulation.chaos.record import Broken, PlayedRun
from perseus_dist.simulation.chaos.standing import History

NAME = "settled_time"
_SHARE = 0.005
_Z = 2.0


def check(run: PlayedRun, history: History) -> list[Broken]:
    """Judge iterations 21 to 40 after the last event, sweeps not counted.

    Their median time is at most 0.5 % above the median of r times what the same iterations take without Perseus. Where
    noise makes medians of twenty iterations differ by more, it is enough that the median of their ratios, iteration by
    iteration, keeps to that. And r times what is known by n noisy iterations at full clocks alone may be off by two
    standard errors of these.
    """
    settled = calm_of(run, history).settled
    if not settled:
        return []
    times_s = [run.iterations[i].time_s for i in settled]
    allowed_s = [history.at(i).allowed_s(run.without[i].time_s) for i in settled]
    of_medians = median(times_s) / median(allowed_s)
    of_pairs = median(time / allowed for time, allowed in zip(times_s, allowed_s, strict=True))
    share = _SHARE + _Z * _error(run, history, settled)
    if min(of_medians, of_pairs) <= 1 + share:
        return []
    return [
        Broken(
            name=NAME,
            sentence=f"iterations {settled[0]}-{settled[-1]} take {median(times_s):.4f} s; allowed are "
            f"{median(allowed_s):.4f} s and {100 * share:.1f} % more ({100 * of_medians - 100:+.1f} %)",
        )
    ]


def _error(run: PlayedRun, history: History, settled: tuple[int, ...]) -> float:
    """Standard error, as a share, of an iteration at full clocks, where a slower target is a multiple of it."""
    standing = history.at(settled[-1])
    if standing.target.deadline_s is not None or standing.allowed_s(1.0) <= 1.0:
        return 0.0
    without_s = [run.without[i].time_s for i in settled]
    before = range(history.last_event, settled[0])
    num_known = sum(not (run.followed[i] or run.iterations[i].is_sweep) for i in before)
    return stdev(without_s) / median(without_s) / math.sqrt(max(num_known, 1))
