"""Once a job has been left alone, a plan is in force where one can be, and draws what it promises."""

from statistics import median

from perseus_dist.simulation.chaos.calm import calm_of
from perseus_dist.simulation.chaos.record import Broken, PlayedRun
from perseus_dist.simulation.chaos.standing import History

NAME = "settled_plan"
_SHARE = 0.02


def check(run: PlayedRun, history: History) -> list[Broken]:
    """Judge the last iterations before the moment at which a plan must be in force.

    That moment is iteration 40 after the last event, sweeps not counted, or later: 15 s (and ten message delays) after
    the last event and the last sweep. A plan can be in force where no process is down, no rank is cut off and the disk
    has room; it is, where every rank follows one in most of these iterations. Where every GPU is well, too, their
    median energy is within 2 % of what the plans promise, with waiting until the iterations end.
    """
    planned = calm_of(run, history).planned
    if not planned:
        return []
    num_followed = sum(run.followed[i] for i in planned)
    where = f"iterations {planned[0]}-{planned[-1]}"
    if 2 * num_followed <= len(planned):
        return [
            Broken(
                name=NAME,
                sentence=f"{num_followed} of {where} ran under a plan, although nothing is in its way (phase "
                f"{run.iterations[planned[-1]].phase or 'unknown'})",
            )
        ]
    if history.at(planned[-1]).gpus:
        return []
    promises_j = [
        (iteration.view.promised_energy_j(iteration.time_s), iteration.energy_j)
        for i in planned
        if run.followed[i] and (iteration := run.iterations[i]).view is not None and iteration.view.has_plan
    ]
    if not promises_j:
        return []
    promised_j, energy_j = median(one for one, _ in promises_j), median(one for _, one in promises_j)
    if abs(energy_j - promised_j) <= _SHARE * promised_j:
        return []
    return [
        Broken(
            name=NAME,
            sentence=f"{where} draw {energy_j:.1f} J; the plans in force promise {promised_j:.1f} J "
            f"({100 * energy_j / promised_j - 100:+.1f} %; allowed are 2 %)",
        )
    ]
