"""What an agent says, as scalars: known figures only, and what is known to be nothing is told too."""

import pytest

from perseus_dist.boundaries.agent_status import AgentStatus
from perseus_dist.training.rank.status_scalars import scalars

NOTHING_OF_THE_JOB = {"predicted_saving": 0.0, "num_stragglers": 0.0, "straggler_degree": 1.0}


def test_a_rank_that_does_not_know_its_job_tells_of_its_gpu() -> None:
    assert scalars(AgentStatus()) == {}
    own = AgentStatus(iteration=3, time_s=0.5, energy_j=90.5, clock_mhz=1290)
    assert scalars(own) == {"gpu_iteration_energy_j": 90.5, "gpu_clock_mhz": 1290.0}


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("", {}),
        ("t_min", {"target_slowdown": 1.0}),
        ("slowdown=1.05", {"target_slowdown": 1.05}),
        ("deadline_s=2.5", {"target_time_s": 2.5}),
    ],
)
def test_a_job_without_stragglers_or_plan_says_so(target: str, told: dict[str, float]) -> None:
    assert scalars(AgentStatus(phase="warming_up", target=target)) == {**NOTHING_OF_THE_JOB, **told}


def test_a_job_tells_all() -> None:
    status = AgentStatus(
        phase="enforcing",
        job_time_s=0.75,
        job_energy_j=181.25,
        predicted_saving=0.125,
        target="t_min",
        num_stragglers=2,
        straggler_degree=1.25,
    )
    assert scalars(status) == {
        "iteration_time_s": 0.75,
        "iteration_energy_j": 181.25,
        "predicted_saving": 0.125,
        "num_stragglers": 2.0,
        "straggler_degree": 1.25,
        "target_slowdown": 1.0,
    }
