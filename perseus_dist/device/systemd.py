"""The two things that a service says to systemd, without a library: that it is ready, and that it is alive."""

import os
import socket
from collections.abc import Mapping
from contextlib import suppress


def notify(state: str, environ: Mapping[str, str] = os.environ) -> None:
    """Say ``READY=1``, ``WATCHDOG=1`` or ``STOPPING=1``; nothing where systemd did not start us."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):  # an abstract socket
        address = "\0" + address[1:]
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(address)
        sender.send(state.encode())


def watchdog_interval_s(environ: Mapping[str, str] = os.environ) -> float | None:
    """How often to say ``WATCHDOG=1``: half of what systemd allows; None if it does not ask."""
    with suppress(ValueError):
        if int(environ.get("WATCHDOG_PID", os.getpid())) == os.getpid():
            return int(environ.get("WATCHDOG_USEC", "")) / 2e6
    return None
