"""Whether a lease daemon serves: what its event loop answers, not merely that its socket is there."""

import socket

from perseus_dist.device.lease.connectors import SocketConnector
from perseus_dist.device.lease.wire import WireError, decode_from_daemon, encode

_READ_BYTES = 4096


def find_clockd_fault(path: str, timeout_s: float) -> str:
    """Open a connection and end it, without asking for a lease.

    Args:
        path: Of the daemon's socket.
        timeout_s: How long the daemon may take to answer.

    Returns:
        Why it does not serve, in a sentence; empty if it does.
    """
    try:
        with SocketConnector(path).connect() as connected:
            connected.settimeout(timeout_s)
            said = _last_words(connected)
    except TimeoutError:
        return f"it takes connections and has not answered within {timeout_s:g} s"
    except OSError as error:
        return f"no daemon answers there ({error.strerror})"
    return _reason(said) if said else ""


def _last_words(connected: socket.socket) -> bytes:
    """The daemon's words before it ends the connection: none, or a refusal where there are too many.

    Raises:
        OSError: It does not answer, or has ended the connection before it was asked to, and says nothing.
    """
    try:
        connected.sendall(encode({"op": "release"}))
    except (BrokenPipeError, ConnectionResetError):
        said = connected.recv(_READ_BYTES)
        if not said:
            raise
        return said
    return connected.recv(_READ_BYTES)


def _reason(said: bytes) -> str:
    try:
        return str(decode_from_daemon(said.strip())["reason"])
    except (WireError, KeyError):
        return said.decode(errors="replace").strip()
