"""Drawn histories that hold, each for a reason: what passes today passes tomorrow.

The gate (``.ci/run``) plays hundreds, with a file that names what each known failure breaks; here are some that are played
in a second or less, so that every kind of fault is in some of them.
"""

import pytest

from perseus_dist.simulation.chaos.drawing.draw import draw_history
from perseus_dist.simulation.chaos.drawing.fault_kinds import FaultKind
from perseus_dist.simulation.chaos.trial import try_seed

SEEDS = {
@LINES@
}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_history_that_holds(seed: int) -> None:
    trial = try_seed(seed)
    assert [f"{one.name}: {one.sentence}" for one in trial.broken] == []
    assert trial.reached_plan


def test_every_kind_of_fault_is_in_some_history() -> None:
    drawn = {kind for seed in SEEDS for kind in draw_history(seed).faults}
    assert drawn >= set(FaultKind) - UNHELD


UNHELD = frozenset({@UNHELD@})
"""Kinds of which no history that was tried holds."""
