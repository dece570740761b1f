"""A process that only plans: workers of a database's queue, and neither streams nor jobs."""

import asyncio
import logging
import os
import secrets
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from perseus_dist import systemd
from perseus_dist.planner.store.database import StoreError
from perseus_dist.planner.store.postgres.address import PostgresAddress
from perseus_dist.planner.store.postgres.notifications import hear
from perseus_dist.planner.store.postgres.planning_requests import CHANNEL, SEEN_S, PlanningRequests
from perseus_dist.planner.store.request_queue import PATIENT, URGENT, QueueError
from perseus_dist.planner.worker.planning_worker import PlanningWorker
from perseus_dist.planner.worker.shared.queue_worker import QueueWorker
from perseus_dist.planner.worker.shared.shared_queue import SharedQueue
from perseus_dist.planning.output_file import write_output

_ALIVE_PERIOD_S = 2.0
_REPORT_PERIOD_S = SEEN_S / 3
_LAST_REPORT_S = 2.0

_log = logging.getLogger(__name__)


def shared_queue(address: PostgresAddress) -> SharedQueue:
    """The queue of a database, on the event loop that runs.

    Raises:
        StoreError: libpq cannot read the URL.
    """
    return SharedQueue(PlanningRequests(address), lambda heard: hear(address, CHANNEL, heard))


async def serve_queue(
    address: PostgresAddress,
    num_workers: int,
    on_serving: Callable[[str], None] = lambda _: None,
    *,
    alive_file: Path | None = None,
) -> None:
    """Plan for all planners on a database, until SIGTERM or SIGINT; a database that is away is waited for.

    Args:
        address: Of the database.
        num_workers: Requests that are planned at once, each in a process. Of several workers the first takes urgent
            requests alone, so that no job without a plan waits for whole frontiers.
        on_serving: Called with the database's name once requests are taken.
        alive_file: Written then, and touched every two seconds from then on, for probes; None for none.

    Raises:
        StoreError: The address or the user's rights are of no use.
        OutputError: The file cannot be written.
    """
    over = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    queue = shared_queue(address)
    processes = [PlanningWorker() for _ in range(num_workers)]
    try:
        when = ""
        try:
            await queue.state()
        except QueueError as error:
            if not error.is_passing:
                raise StoreError(str(error)) from error
            when = ", once it can be reached"
        workers = [
            QueueWorker(queue, process, least_urgency=URGENT if num_workers > 1 and not number else PATIENT)
            for number, process in enumerate(processes)
        ]
        if alive_file is not None:
            write_output(alive_file, b"")
        running = [asyncio.create_task(worker.run()) for worker in workers]
        name = secrets.token_hex(16)
        running.append(asyncio.create_task(_report(queue, name, num_workers)))
        if alive_file is not None:
            running.append(asyncio.create_task(_touch(alive_file)))
        systemd.notify("READY=1")
        on_serving(queue.name)
        _log.info("planning for all planners on %s, %d requests at once%s", queue.name, num_workers, when)
        ending = asyncio.create_task(over.wait())
        await asyncio.wait({ending, *running}, return_when=asyncio.FIRST_COMPLETED)
        systemd.notify("STOPPING=1")
        for task in (ending, *running):
            task.cancel()
        await asyncio.gather(ending, *running, return_exceptions=True)
        with suppress(QueueError, TimeoutError):
            async with asyncio.timeout(_LAST_REPORT_S):
                await queue.report(name, 0)
        _log.info("ends; %d requests were answered", sum(worker.num_answered for worker in workers))
    finally:
        await queue.close()
        for process in processes:
            await process.close()


async def _report(queue: SharedQueue, name: str, num_at_once: int) -> None:
    """Be seen by planners, for ever."""
    while True:
        with suppress(QueueError):  # which the queue logs
            await queue.report(name, num_at_once)
        await asyncio.sleep(_REPORT_PERIOD_S)


async def _touch(path: Path) -> None:
    """Touch a file again and again, for ever; where it is gone, a probe takes this process for dead."""
    while True:
        await asyncio.sleep(_ALIVE_PERIOD_S)
        with suppress(OSError):
            os.utime(path)
