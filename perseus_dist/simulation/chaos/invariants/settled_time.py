"""Once a job has been left alone, its iterations take no longer than without Perseus, or what was asked for."""

from statistics import median

from perseus_dist.simulation.chaos.calm import calm_of
from perseus_dist.simulation.chaos.record import Broken, PlayedRun
from perseus_dist.simulation.chaos.standing import History

NAME = "settled_time"
_SHARE = 0.005


def check(run: PlayedRun, history: History) -> list[Broken]:
    """Judge iterations 21 to 40 after the last event, sweeps not counted.

    Their median time is at most 0.5 % above the median of r times what the same iterations take without Perseus.
    """
    settled = calm_of(run, history).settled
    if not settled:
        return []
    time_s = median(run.iterations[i].time_s for i in settled)
    allowed_s = median(history.at(i).allowed_s(run.without[i].time_s) for i in settled)
    if time_s <= (1 + _SHARE) * allowed_s:
        return []
    return [
        Broken(
            name=NAME,
            sentence=f"iterations {settled[0]}-{settled[-1]} take {time_s:.4f} s; allowed are {allowed_s:.4f} s and "
            f"0.5 % more ({100 * time_s / allowed_s - 100:+.1f} %)",
        )
    ]
