"""Where the planner is: where the user said, or in the folder where the embedded one of rank 0 leaves its address."""

from collections.abc import Callable
from pathlib import Path

from perseus_dist.agent.link.link import PlannerAddress
from perseus_dist.boundaries.rank_spec import SharedPlanner
from perseus_dist.rpc.node_jobs import address_file, read_planner

FindPlanner = Callable[[], PlannerAddress | None]


def find_named(address: str, token_file: str | None) -> FindPlanner:
    """The planner that the user named; its token is read each time, since it may change."""

    def find() -> PlannerAddress:
        from perseus_dist.rpc.connection import read_token

        return PlannerAddress(address, "" if token_file is None else read_token(Path(token_file)))

    return find


def find_shared(planner: SharedPlanner) -> FindPlanner:
    """The planner that rank 0 starts on another host."""
    found = PlannerAddress(planner.address, planner.token)
    return lambda: found


def find_in_folder(folder: Path, job_id: str) -> FindPlanner:
    """The planner that rank 0 starts, as soon as its file is there."""
    path = address_file(folder, job_id)

    def find() -> PlannerAddress | None:
        found = read_planner(path)
        return None if found is None else PlannerAddress(found.address, found.token)

    return find
