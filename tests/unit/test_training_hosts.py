"""Whether a job spans several hosts, by what launchers set."""

import pytest

from perseus_dist.training.rank.hosts import meeting_host


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "node-0"}, "node-0"),  # torchrun
        ({"WORLD_SIZE": "8", "LOCAL_SIZE": "4", "MASTER_ADDR": "10.0.0.1"}, "10.0.0.1"),  # deepspeed
        ({"WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_SIZE": "4", "MASTER_ADDR": "node-0"}, "node-0"),
        ({"WORLD_SIZE": "8", "MASTER_ADDR": "node-0"}, "node-0"),  # srun: who knows
        ({"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "[fd00::1]"}, "fd00::1"),
        ({"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8", "MASTER_ADDR": "node-0"}, None),
        ({"WORLD_SIZE": "8", "LOCAL_SIZE": "8", "MASTER_ADDR": "10.0.0.1"}, None),
        ({"WORLD_SIZE": "8", "MASTER_ADDR": "127.0.0.1"}, None),
        ({"WORLD_SIZE": "8", "MASTER_ADDR": "localhost"}, None),
        ({"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"}, None),
        ({"WORLD_SIZE": "eight", "MASTER_ADDR": "node-0"}, None),
        ({}, None),
    ],
)
def test_the_host_where_ranks_of_several_hosts_meet(environment: dict[str, str], wanted: str | None) -> None:
    assert meeting_host(environment) == wanted
