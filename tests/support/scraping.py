"""Reading metrics as a scraper does, over HTTP and HTTPS."""

import http.client
import ssl
from base64 import b64encode

from waiting import PATIENCE_S


def basic(user: str, password: str) -> str:
    """An ``Authorization`` header."""
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


def get(address: str, *, authorization: str = "", path: str = "/metrics", tls: ssl.SSLContext | None = None) -> str:
    """The body, or the status where that is not 200."""
    host, _, port = address.rpartition(":")
    connection = (
        http.client.HTTPConnection(host.strip("[]"), int(port), timeout=PATIENCE_S)
        if tls is None
        else http.client.HTTPSConnection("localhost", int(port), timeout=PATIENCE_S, context=tls)
    )
    try:
        connection.request("GET", path, headers={"Authorization": authorization} if authorization else {})
        with connection.getresponse() as answer:
            body = answer.read().decode()
        return body if answer.status == 200 else str(answer.status)
    finally:
        connection.close()
