"""Messages of a service to systemd, without a library: that it is ready, alive, or stopping.

A watchdog is kept quiet by the service's own work: a loop that runs and gets nothing done is restarted as one that
hangs.
"""

import asyncio
import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

_SOCKET = "NOTIFY_SOCKET"
_PAUSE_S = 5.0


def notify(state: str, environ: Mapping[str, str] = os.environ) -> None:
    """Say ``READY=1``, ``WATCHDOG=1`` or ``STOPPING=1``; nothing where systemd did not start us."""
    address = environ.get(_SOCKET, "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):  # an abstract socket
        address = "\0" + address[1:]
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(address)
        sender.send(state.encode())


def pause_before_restart(environ: Mapping[str, str]) -> None:
    """Wait for 5 s where systemd started us: it would start again at once what ends for a cause that may last."""
    if _SOCKET in environ:
        time.sleep(_PAUSE_S)


def watchdog_interval_s(environ: Mapping[str, str] = os.environ) -> float | None:
    """How often to say ``WATCHDOG=1``: half of what systemd allows; None if it does not ask."""
    with suppress(ValueError):
        if int(environ.get("WATCHDOG_PID", os.getpid())) == os.getpid():
            return int(environ.get("WATCHDOG_USEC", "")) / 2e6
    return None


async def keep_watchdog_quiet(progress: Callable[[], int], environ: Mapping[str, str] = os.environ) -> None:
    """Say ``WATCHDOG=1`` as often as systemd asks, if there has been progress since; for ever, if it asks at all.

    Args:
        progress: A count of what the service has done, which grows several times as often as systemd asks.
        environ: Of the process.
    """
    interval_s = watchdog_interval_s(environ)
    seen = None
    while interval_s is not None:
        done = progress()
        if done != seen:
            notify("WATCHDOG=1", environ)
        seen = done
        await asyncio.sleep(interval_s)
