"""Serves metrics over HTTP or HTTPS, in threads, within bounds: a slow or hostile client holds up no other for long."""

import gzip
import logging
import socket
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client.exposition import gzip_accepted

from perseus_dist.errors import TransientError
from perseus_dist.planner.access.address import Address
from perseus_dist.planner.metrics.certificate import FollowedCertificate

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

PATH = "/metrics"
MAX_CONNECTIONS = 32
_TIMEOUT_S = 10.0  # between two bytes of a client, the handshake included
_COMPRESSION = 1  # the quickest: pages shrink to a twentieth, and the planner's processor time is dearer than bytes

_log = logging.getLogger(__name__)

Expose = Callable[[str], tuple[bytes, str]]
"""Makes a page and its content type, by the header ``Accept``; raises TimeoutError where none can be made."""


class MetricsListenError(TransientError):
    """An address that metrics cannot be served on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointConfig:
    """Where metrics are served, and to whom.

    Attributes:
        bind: Port 0 takes a free one.
        cert, key: In PEM; None serves plain text.
        password_file: Users and hashes, as ``PasswordFile`` reads them; None asks for no password.
    """

    bind: Address
    cert: Path | None = None
    key: Path | None = None
    password_file: Path | None = None

    def certificate(self) -> FollowedCertificate | None:
        """The certificate.

        Raises:
            TlsError: It cannot be served with.
        """
        return None if self.cert is None or self.key is None else FollowedCertificate(self.cert, self.key)

    def admits(self) -> Callable[[str], bool] | None:
        """Whether an ``Authorization`` header is let in; None where all are.

        Raises:
            PasswordFileError: The file cannot be used.
        """
        if self.password_file is None:
            return None
        from perseus_dist.planner.metrics.basic_auth import PasswordFile

        return PasswordFile(self.password_file).admits


class MetricsEndpoint:
    """The endpoint; it serves from its making until ``close``."""

    def __init__(self, config: EndpointConfig, expose: Expose) -> None:
        """Listen.

        Raises:
            PerseusError: Address, certificate or password file cannot be used.
        """
        certificate, admits = config.certificate(), config.admits()
        try:
            self._server = _Server(config.bind, certificate)
        except OSError as error:
            raise MetricsListenError(
                f"{config.bind}: metrics cannot be served there ({error.strerror}); "
                "name another with --metrics HOST:PORT"
            ) from error
        self._server.set_app(_guarded(expose, admits))
        scheme = "http" if certificate is None else "https"
        self.address = str(Address(config.bind.host, self._server.server_port))
        self.url = f"{scheme}://{self.address}{PATH}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End it; answers under way are cut off with the process."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _guarded(expose: Expose, admits: Callable[[str], bool] | None) -> "WSGIApplication":
    making = threading.Lock()

    def app(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        def answer(status: str, text: str, *headers: tuple[str, str]) -> list[bytes]:
            start_response(status, [("Content-Type", "text/plain; charset=utf-8"), *headers])
            return [f"{text}\n".encode()]

        if admits is not None and not admits(environ.get("HTTP_AUTHORIZATION", "")):
            challenge = ("WWW-Authenticate", 'Basic realm="perseus-dist metrics", charset="UTF-8"')
            return answer("401 Unauthorized", "metrics need a user and a password", challenge)
        if environ["REQUEST_METHOD"] != "GET":
            return answer("405 Method Not Allowed", "metrics are read with GET", ("Allow", "GET"))
        if environ["PATH_INFO"] != PATH:
            return answer("404 Not Found", f"metrics are at {PATH}")
        # One page at a time: pages made in several threads would take the planner's loop its turns.
        if not making.acquire(timeout=_TIMEOUT_S):
            return answer("503 Service Unavailable", "others scrape; try again later")
        try:
            body, content_type = expose(environ.get("HTTP_ACCEPT", ""))
        except (TimeoutError, RuntimeError, CancelledError):  # the loop has ended, or is busy for too long
            return answer("503 Service Unavailable", "the planner is busy, or ends")
        finally:
            making.release()
        headers = [("Content-Type", content_type)]
        if gzip_accepted(environ.get("HTTP_ACCEPT_ENCODING", "")):
            body = gzip.compress(body, _COMPRESSION)
            headers.append(("Content-Encoding", "gzip"))
        start_response("200 OK", headers)
        return [body]

    return app


class _Server(ThreadingMixIn, WSGIServer):
    """A thread for each connection, up to a number of them; TLS is negotiated there, not where connections come in."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, bind: Address, certificate: FollowedCertificate | None) -> None:
        host = bind.host.strip("[]")
        family, _, _, _, where = socket.getaddrinfo(host, bind.port, type=socket.SOCK_STREAM)[0]
        self.address_family = family
        self._certificate = certificate
        self._free = threading.BoundedSemaphore(MAX_CONNECTIONS)
        super().__init__((str(where[0]), int(where[1])), _Handler)

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # HTTPServer's would ask the name service for our name
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def finish_request(self, request: Any, client_address: Any) -> None:
        request.settimeout(_TIMEOUT_S)
        if self._certificate is None:
            super().finish_request(request, client_address)
            return
        with self._certificate.context().wrap_socket(request, server_side=True) as secure:
            super().finish_request(secure, client_address)
            with suppress(OSError):
                secure.unwrap()

    def handle_error(self, _request: Any, client_address: Any) -> None:
        _log.debug("metrics: connection from %s failed", client_address, exc_info=True)


class _Handler(WSGIRequestHandler):
    timeout = _TIMEOUT_S

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # as it is inherited
        _log.debug(format, *args)
