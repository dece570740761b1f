"""Addresses where a planner on this node is to serve its page and its metrics, by the settings: whether they answer."""

import http.client
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from perseus_dist.cli.node.doctor.backup import is_planner_kept_here
from perseus_dist.cli.settings.effective import Setting
from perseus_dist.messages.finding import Finding, Level
from perseus_dist.planner.access.address import Address, parse_address

_TIMEOUT_S = 3.0
_ANY_HOST = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}


def inspect_served(settings: Sequence[Setting]) -> Iterator[Finding]:
    """Ask page and metrics of a planner that keeps its state on this node; what they answer does not matter."""
    found = {one.key: one.value for one in settings if one.section == "planner" and not one.is_default}
    places = [
        ("page", "--web", found.get("web"), "/", "tls-cert"),
        ("metrics", "--metrics", _metrics_place(found), "/metrics", "metrics-tls-cert"),
    ]
    for subject, option, text, path, certificate in places:
        if text is None or not is_planner_kept_here(settings):
            continue
        address = parse_address(text)
        if address.port == 0:  # any: the planner's log says which
            continue
        trouble = _trouble(address, path, has_tls=found.get(certificate) is not None)
        if trouble:
            what = f"nothing answers at {address}, where the planner's settings have its {subject} ({trouble})"
            remedy = f"start the planner, or look in its log why {option} is not served"
            yield Finding(level=Level.WARN, subject=subject, what=what, remedy=remedy)
        else:
            yield Finding(level=Level.OK, subject=subject, what=f"answers at {address}")


def _metrics_place(found: Mapping[str, Any]) -> str | None:
    if found.get("metrics") is not None:
        return str(found["metrics"])
    port = found.get("metrics-port")
    return None if port is None else f"127.0.0.1:{port}"


def _trouble(address: Address, path: str, *, has_tls: bool) -> str:
    host = _ANY_HOST.get(address.host, address.host).strip("[]")
    connection: http.client.HTTPConnection
    if has_tls:  # whose certificate is looked at beside those of the settings
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection = http.client.HTTPSConnection(host, address.port, timeout=_TIMEOUT_S, context=context)
    else:
        connection = http.client.HTTPConnection(host, address.port, timeout=_TIMEOUT_S)
    try:
        connection.connect()
        # Behind a handshake it is there, and hangs up where it wants a certificate of who asks.
        with suppress(*((ssl.SSLError, ConnectionError) if has_tls else ())):
            connection.request("GET", path)
            connection.getresponse()
    except TimeoutError:
        return f"no answer within {_TIMEOUT_S:g} s"
    except (OSError, http.client.HTTPException) as error:
        return getattr(error, "strerror", None) or type(error).__name__
    finally:
        connection.close()
    return ""
