"""Drawn histories that hold, each for a reason: what passes today passes tomorrow.

The gate (``.ci/run``) plays hundreds, with a file that names what each known failure breaks; here are some quick ones,
so that every kind of fault is in one of them.
"""

import pytest

from perseus_dist.simulation.chaos.drawing.draw import draw_history
from perseus_dist.simulation.chaos.drawing.fault_kinds import FaultKind
from perseus_dist.simulation.chaos.scenario.scenario import SAVED, Scenario, ScenarioJob
from perseus_dist.simulation.chaos.trial import judge, try_seed

SEEDS = {
    0: "manual report, agent killed; 1f1b, 4 ranks, sweep",
    5: "undisturbed; 1f1b, 4 ranks, sweep",
    35: "late messages, slow GPU, same job again; 1f1b, 4 ranks, sweep",
    42: "lease holder killed; one rank, whose plan is full clocks: it saves nothing",
    48: "disk full, slow link, whole node, power cap; 1f1b, 3 ranks, saved profile",
    50: "lost messages; gpipe, 4 ranks, sweep",
    58: "trainer killed, oscillation; 1f1b, 12 ranks, saved profile",
    61: "planner killed, slow link; 1f1b, 15 ranks, saved profile",
    77: "partition, lease holder stopped; 1f1b, 2 ranks, saved profile",
    78: "target; 1f1b, 10 ranks, sweep",
    81: "slow link, heat; gpipe, 7 ranks, saved profile",
    86: "repeated messages, oscillation, agent stopped; interleaved, 8 ranks, saved profile",
    137: "power cap, other job under the name, planner stopped; 1f1b, 6 ranks, sweep",
    164: "manual report, slow link; gpipe, 16 ranks with short iterations, saved profile",
}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_history_that_holds(seed: int) -> None:
    trial = try_seed(seed)
    assert [f"{one.name}: {one.sentence}" for one in trial.broken] == []
    assert trial.reached_plan


def test_a_profile_that_was_measured_while_all_gpus_were_slow_is_measured_again() -> None:
    """A power limit of a whole node ends just after the highest clock was measured."""
    broken = {one.name for one in try_seed(154).broken}
    assert not broken & {"settled_time", "total_time", "profile_truth"}


def test_every_kind_of_fault_is_in_some_history() -> None:
    drawn = {kind for seed in SEEDS for kind in draw_history(seed).faults}
    assert drawn == set(FaultKind)


@pytest.mark.parametrize(("pp", "schedule", "layers"), [(2, "1f1b", 24), (3, "gpipe", 100), (2, "interleaved", 9)])
def test_a_saved_profile_is_of_the_layers_that_stages_have(pp: int, schedule: str, layers: int) -> None:
    job = ScenarioJob(
        schedule=schedule,
        pp=pp,
        microbatches=2 * pp,
        chunks=2 if schedule == "interleaved" else 1,
        layers=layers,
        imbalance=0.1,
        profile=SAVED,
    )
    run, broken = judge(Scenario(job=job, iterations=60))
    assert not broken, broken[0].sentence
    assert run is not None
