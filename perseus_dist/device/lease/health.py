"""Whether a lease daemon serves: what its event loop answers, not merely that its socket is there."""

from perseus_dist.device.lease.connectors import SocketConnector
from perseus_dist.device.lease.wire import encode


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
            connected.sendall(encode({"op": "release"}))
            said = connected.recv(4096)  # the end of the connection; a refusal where there are too many
    except TimeoutError:
        return f"it takes connections and has not answered within {timeout_s:g} s"
    except OSError as error:
        return f"no daemon answers there ({error.strerror})"
    return said.decode(errors="replace").strip()
