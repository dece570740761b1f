"""A process that only plans: workers of a database's queue, and neither streams nor jobs."""

import asyncio
import logging
import signal
from collections.abc import Callable

from perseus_dist import systemd
from perseus_dist.planner.store.database import StoreError
from perseus_dist.planner.store.postgres.address import PostgresAddress
from perseus_dist.planner.store.postgres.notifications import hear
from perseus_dist.planner.store.postgres.planning_requests import CHANNEL, PlanningRequests
from perseus_dist.planner.store.request_queue import PATIENT, URGENT, QueueError
from perseus_dist.planner.worker.planning_worker import PlanningWorker
from perseus_dist.planner.worker.queue_worker import QueueWorker
from perseus_dist.planner.worker.shared_queue import SharedQueue

_log = logging.getLogger(__name__)


def shared_queue(address: PostgresAddress) -> SharedQueue:
    """The queue of a database, on the event loop that runs.

    Raises:
        StoreError: libpq cannot read the URL.
    """
    return SharedQueue(PlanningRequests(address), lambda heard: hear(address, CHANNEL, heard))


async def serve_queue(
    address: PostgresAddress, num_workers: int, on_serving: Callable[[str], None] = lambda _: None
) -> None:
    """Plan for all planners on a database, until SIGTERM or SIGINT; a database that is away is waited for.

    Args:
        address: Of the database.
        num_workers: Requests that are planned at once, each in a process. Of several workers the first takes urgent
            requests alone, so that no job without a plan waits for whole frontiers.
        on_serving: Called with the database's name once requests are taken.

    Raises:
        StoreError: The address or the user's rights are of no use.
    """
    over = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    queue = shared_queue(address)
    processes = [PlanningWorker() for _ in range(num_workers)]
    try:
        when = ""
        try:
            await queue.length()
        except QueueError as error:
            if not error.is_passing:
                raise StoreError(str(error)) from error
            when = ", once it can be reached"
        workers = [
            QueueWorker(queue, process, least_urgency=URGENT if num_workers > 1 and not number else PATIENT)
            for number, process in enumerate(processes)
        ]
        running = [asyncio.create_task(worker.run()) for worker in workers]
        systemd.notify("READY=1")
        on_serving(queue.name)
        _log.info("planning for all planners on %s, %d requests at once%s", queue.name, num_workers, when)
        ending = asyncio.create_task(over.wait())
        await asyncio.wait({ending, *running}, return_when=asyncio.FIRST_COMPLETED)
        systemd.notify("STOPPING=1")
        for task in (ending, *running):
            task.cancel()
        await asyncio.gather(ending, *running, return_exceptions=True)
        _log.info("ends; %d requests were answered", sum(worker.num_answered for worker in workers))
    finally:
        await queue.close()
        for process in processes:
            await process.close()
