"""Where the planner is: where the user said, or in the folder where the embedded one of rank 0 leaves its address."""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from perseus_dist.agent.link import PlannerAddress

FindPlanner = Callable[[], PlannerAddress | None]


def find_named(address: str, token_file: str | None) -> FindPlanner:
    """The planner that the user named; its token is read each time, since it may change."""

    def find() -> PlannerAddress:
        from perseus_dist.rpc.connection import read_token

        return PlannerAddress(address, "" if token_file is None else read_token(Path(token_file)))

    return find


def find_in_folder(folder: Path, job_id: str) -> FindPlanner:
    """The planner that rank 0 starts, as soon as its file is there."""
    path = address_file(folder, job_id)

    def find() -> PlannerAddress | None:
        with suppress(OSError, ValueError, KeyError, TypeError):
            found = json.loads(path.read_text())
            return PlannerAddress(str(found["address"]), str(found["token"]))
        return None

    return find


def address_file(folder: Path, job_id: str) -> Path:
    """Where a job's embedded planner leaves its address and token."""
    return folder / f"perseus-planner-{job_id}.json"
