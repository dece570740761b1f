"""All invariants, in the order in which their breaking is listed."""

from perseus_dist.simulation.chaos.invariants import (
    durability,
    profile_truth,
    reported_baseline,
    reported_saving,
    reported_slowdown,
    reprofiling,
    settled_energy,
    settled_plan,
    settled_time,
    total_time,
    waiting,
)
from perseus_dist.simulation.chaos.record import Broken, PlayedRun
from perseus_dist.simulation.chaos.standing import History

_INVARIANTS = (
    total_time,
    settled_time,
    settled_plan,
    settled_energy,
    waiting,
    reprofiling,
    profile_truth,
    durability,
    reported_baseline,
    reported_slowdown,
    reported_saving,
)
INVARIANT_NAMES = tuple(invariant.NAME for invariant in _INVARIANTS)


def broken_invariants(run: PlayedRun) -> tuple[Broken, ...]:
    """The invariants that do not hold of a run."""
    history = History(run.scenario, unheeded=run.unheeded_orders)
    return tuple(broken for invariant in _INVARIANTS for broken in invariant.check(run, history))
