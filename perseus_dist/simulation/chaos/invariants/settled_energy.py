"""Once a job has been left alone, its plan draws what it promises."""

from statistics import median

from perseus_dist.simulation.chaos.calm import calm_of
from perseus_dist.simulation.chaos.record import Broken, PlayedRun
from perseus_dist.simulation.chaos.standing import History

NAME = "settled_energy"
_SHARE = 0.02


def check(run: PlayedRun, history: History) -> list[Broken]:
    """Judge the iterations that ``settled_plan`` judges, those under a plan alone, where every GPU is well.

    Their median energy is within 2 % of what the plans in force promise, with waiting until the iterations end. Where a
    GPU is not well nothing is judged: no plan promises what a slow GPU draws.
    """
    planned = calm_of(run, history).planned
    if not planned or history.at(planned[-1]).gpus:
        return []
    pairs = [
        (iteration.view.promised_energy_j(iteration.time_s), iteration.energy_j)
        for i in planned
        if run.followed[i] and (iteration := run.iterations[i]).view is not None and iteration.view.has_plan
    ]
    if not pairs:
        return []
    promised_j, energy_j = median(one for one, _ in pairs), median(one for _, one in pairs)
    if abs(energy_j - promised_j) <= _SHARE * promised_j:
        return []
    return [
        Broken(
            name=NAME,
            sentence=f"iterations {planned[0]}-{planned[-1]} draw {energy_j:.1f} J; the plans in force promise "
            f"{promised_j:.1f} J ({100 * energy_j / promised_j - 100:+.1f} %; allowed are 2 %)",
        )
    ]
