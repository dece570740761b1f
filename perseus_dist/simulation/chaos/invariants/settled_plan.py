"""Once a job has been left alone, a plan is in force where one can be."""

from perseus_dist.simulation.chaos.calm import calm_of
from perseus_dist.simulation.chaos.record import Broken, PlayedRun
from perseus_dist.simulation.chaos.standing import History

NAME = "settled_plan"


def check(run: PlayedRun, history: History) -> list[Broken]:
    """Judge the last iterations before the moment at which a plan must be in force (``Calm.planned``).

    That moment is iteration 40 after the last event, sweeps not counted, or later: 15 s (and ten message delays) after
    the last event and the last sweep. A plan can be in force where no process is down, no rank is cut off and the disk
    has room. It is, where every rank follows one in most of these iterations.
    """
    planned = calm_of(run, history).planned
    num_followed = sum(run.followed[i] for i in planned)
    if not planned or 2 * num_followed > len(planned):
        return []
    return [
        Broken(
            name=NAME,
            sentence=f"{num_followed} of iterations {planned[0]}-{planned[-1]} ran under a plan, although nothing is "
            f"in its way (phase {run.iterations[planned[-1]].phase or 'unknown'})",
        )
    ]
