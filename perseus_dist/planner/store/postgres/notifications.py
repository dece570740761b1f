"""Notifications of a PostgreSQL channel on an event loop: faster than polling, and never relied on.

Behind a pooler in transaction mode a session that listens is another's a moment later; there nothing is heard. Such a
pooler is known by the number of the server's process, which it makes up for each of its clients.
"""

import asyncio
import logging
from collections.abc import Callable

import psycopg

from perseus_dist.planner.store.postgres.address import PostgresAddress
from perseus_dist.planner.store.postgres.connection import Connection, FailedError, Opened, UnreachableError

_RECONNECT_PERIOD_S = 5.0

_log = logging.getLogger(__name__)


async def hear(address: PostgresAddress, channel: str, heard: Callable[[str], None]) -> None:
    """Call a function with what is notified; for ever, or until it is known that there is a pooler between.

    Args:
        address: Of the database.
        channel: A name that needs no quotes.
        heard: Called on this event loop with the payload.
    """
    connection = Connection(address)

    def listen(opened: Opened) -> Opened | None:
        (row,) = opened.execute("SELECT pg_backend_pid()")
        if row[0] != opened.info.backend_pid:
            return None
        opened.execute(f"LISTEN {channel}".encode())
        return opened

    try:
        while True:
            try:
                opened = await asyncio.to_thread(connection.run, listen)
                if opened is None:
                    _log.info("%s: a pooler stands between, so that planning requests are polled for", connection.place)
                    return
                await _read(opened, heard)
            except (UnreachableError, FailedError, psycopg.Error):  # who asks the database says so
                connection.close()
            await asyncio.sleep(_RECONNECT_PERIOD_S)
    finally:
        connection.close()


async def _read(opened: Opened, heard: Callable[[str], None]) -> None:
    """Until the connection is lost, which raises ``psycopg.Error``."""
    loop = asyncio.get_running_loop()
    lost: asyncio.Future[None] = loop.create_future()
    socket = opened.fileno()

    def read() -> None:
        try:
            opened.pgconn.consume_input()
            while (notified := opened.pgconn.notifies()) is not None:
                heard(notified.extra.decode())
        except psycopg.Error as error:
            if not lost.done():
                lost.set_exception(error)

    loop.add_reader(socket, read)
    try:
        await lost
    finally:
        loop.remove_reader(socket)
