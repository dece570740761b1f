"""A planning process that the machine does not let start just then."""

import asyncio
import errno
import os

import pytest
from test_planner_job_actor import REQUEST

from perseus_dist.planner.worker.planning_worker import PlanningWorker, WorkerDiedError


def test_a_process_that_cannot_be_started_may_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other failures have a job drop what it has measured, and do without a plan until a rank starts anew."""

    async def start(*_arguments: object, **_options: object) -> None:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    with pytest.raises(WorkerDiedError, match=r"cannot be started \(Resource temporarily unavailable\)"):
        asyncio.run(PlanningWorker().plan(REQUEST))
