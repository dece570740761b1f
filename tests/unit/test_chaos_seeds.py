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
    6: "same job again, trainer killed, agent stopped, oscillation; 1f1b, 9 ranks, saved profile",
    16: "slow link, target, other job under the name, lease holder killed; 1f1b, 4 ranks, saved profile",
    24: "same job again, whole node; interleaved, 2 ranks, sweep",
    42: "lease holder killed; one rank, whose plan is full clocks: it saves nothing",
    50: "lost messages; gpipe, 4 ranks, sweep",
    77: "partition, lease holder stopped; 1f1b, 2 ranks, saved profile",
    99: "repeated messages, power cap; 1f1b, 3 ranks, sweep",
    103: "whole node, heat, late messages, disk full; 1f1b, 6 ranks, sweep",
    149: "heat, planner killed, late messages; 1f1b, 6 ranks, sweep",
    176: "slow link, planner stopped, whole node; 1f1b, 2 ranks, sweep",
    198: "slow link, agent stopped, slow GPU, power cap; 1f1b, 4 ranks, sweep",
    24006: "late messages, target; interleaved, 2 ranks on H100 and A40, saved profile",
}
PLAYED_BY_THE_GATE = (24, 103, 149)  # with the others below 200, as .ci/run has them; these take longest


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.stress] * (seed in PLAYED_BY_THE_GATE)) for seed in SEEDS]
)
def test_a_history_that_holds(seed: int) -> None:
    trial = try_seed(seed)
    assert [f"{one.name}: {one.sentence}" for one in trial.broken] == []
    assert trial.reached_plan


@pytest.mark.stress
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
