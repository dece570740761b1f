"""Virtual jobs whose stages are on GPUs of different models: each stage is swept over its own GPU's clocks."""

import pytest

from perseus_dist.planning.schedule.schedule import make_schedule
from perseus_dist.simulation.job import SimulatedJob, as_simulated
from perseus_dist.simulation.virtual.run import run_virtual


@pytest.mark.parametrize(
    ("gpus", "num_pipelines"), [("a100,a40", 1), ("a40,a100", 1), ("a100,a40,a100,a40", 2)], ids=str
)
def test_stages_on_different_gpus_save_energy_and_keep_their_time(gpus: str, num_pipelines: int) -> None:
    """An A40 goes up to 1740 MHz and an A100 to 1410: with the clocks of both alone, plans are 3 % late."""
    job = SimulatedJob(
        schedule=as_simulated(make_schedule("1f1b", pp=2, microbatches=4)),
        num_pipelines=num_pipelines,
        num_iterations=90,
        imbalance=0.1,
    )
    outcome = run_virtual(job, gpus)
    assert outcome.enforced.num_iterations > 30, outcome.reason
    assert outcome.slowdown_percent < 0.5
    assert outcome.saving_percent > 5
    assert outcome.saving_percent == pytest.approx(outcome.predicted_saving_percent, abs=1.0)
    assert outcome.clocks_left_locked == 0
