"""Server of the page, in the planner's event loop."""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass

import uvicorn

from perseus_dist.errors import TransientError
from perseus_dist.planner.access.access import Access
from perseus_dist.planner.access.address import Address
from perseus_dist.planner.access.tls import FollowedFiles, ServerTls
from perseus_dist.planner.runtime.jobs import TICK_S, Jobs
from perseus_dist.planner.runtime.operator_calls import OperatorCalls
from perseus_dist.planner.runtime.policy_calls import PolicyCalls
from perseus_dist.planner.web.access import WebAccess
from perseus_dist.planner.web.app import Page
from perseus_dist.planner.web.assets import load_assets, revision_of
from perseus_dist.planner.web.connections import BoundedProtocol
from perseus_dist.planner.web.fragments import make_templates
from perseus_dist.planner.web.sessions import Sessions
from perseus_dist.planner.web.views.diary import Diary

_BACKLOG = 128
_DRAIN_S = 2
_MAX_HEADERS_BYTES = 16 << 10
_AT_ONCE = 256

_log = logging.getLogger(__name__)


class WebListenError(TransientError):
    """An address that the page cannot be served at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebConfig:
    """How the page is to be served.

    Attributes:
        bind: Where browsers come in.
        access: Tokens and rights.
        needs_token: Whether a user id alone does not identify a caller.
        tls: None serves plain text.
    """

    bind: Address
    access: Access
    needs_token: bool
    tls: ServerTls | None = None


class _Server(uvicorn.Server):
    """Uvicorn's, which leaves signals to the planner."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals stay as they are."""
        yield


class WebServer:
    """The page, from its first request to its last."""

    def __init__(self, config: WebConfig, jobs: Jobs) -> None:
        """Listen; requests are served from ``start`` on.

        Raises:
            WebListenError: The address cannot be listened on.
        """
        self._jobs = jobs
        operators = OperatorCalls(jobs, config.access.audit)
        self._diary = Diary()
        self._tls = config.tls
        self._certificate_files = FollowedFiles(*(() if config.tls is None else config.tls.files))
        listener = _listen(config.bind)
        self._socket = listener
        self.address = Address(config.bind.host, listener.getsockname()[1])
        self.url = f"{'http' if config.tls is None else 'https'}://{self.address}/"
        is_loopback = config.bind.is_loopback
        assets = load_assets()
        page = Page(
            jobs=jobs,
            operators=operators,
            policies=PolicyCalls(jobs, config.access.audit),
            access=WebAccess(
                access=config.access,
                needs_token=config.needs_token or not is_loopback,
                address=self.address,
                sessions=Sessions(port=self.address.port, is_secure=config.tls is not None),
            ),
            templates=make_templates(asset_revision=revision_of(assets)),
            assets=assets,
            diary=self._diary,
            origin=("http" if config.tls is None else "https", self.address.port),
        )
        self._config = uvicorn.Config(
            page.application(is_loopback=is_loopback),
            http=BoundedProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level=logging.ERROR,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            h11_max_incomplete_event_size=_MAX_HEADERS_BYTES,
            timeout_graceful_shutdown=_DRAIN_S,
            ssl_certfile=None if config.tls is None else str(config.tls.cert),
            ssl_keyfile=None if config.tls is None else str(config.tls.key),
            ssl_ca_certs=None if config.tls is None or config.tls.client_ca is None else str(config.tls.client_ca),
            ssl_cert_reqs=ssl.CERT_NONE if config.tls is None or config.tls.client_ca is None else ssl.CERT_REQUIRED,
        )
        self._server = _Server(self._config)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Serve; whatever becomes of the page, the planner goes on."""
        self._tasks = [asyncio.create_task(self._serve()), asyncio.create_task(self._look())]

    async def close(self) -> None:
        """End streams and connections."""
        self._server.should_exit = True
        if self._tasks:
            serving, looking = self._tasks
            looking.cancel()
            await asyncio.gather(serving, looking, return_exceptions=True)
        self._socket.close()

    async def _serve(self) -> None:
        try:
            await self._server.serve(sockets=[self._socket])
        except Exception:
            _log.exception("the page has ended; the planner goes on without it")

    async def _look(self) -> None:
        """Once a second: which jobs have entered another phase, whether the certificate is another one."""
        while True:
            for number, actor in enumerate(self._jobs.all(), start=1):
                self._diary.look(actor)
                if number % _AT_ONCE == 0:
                    await asyncio.sleep(0)
            self._reload_certificate()
            await asyncio.sleep(TICK_S)

    def _reload_certificate(self) -> None:
        context = self._config.ssl if self._config.loaded else None
        if self._tls is None or context is None or not self._certificate_files.have_changed():
            return
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self._tls.cert, self._tls.key, password="")
            context.load_cert_chain(self._tls.cert, self._tls.key, password="")
            if self._tls.client_ca is not None:
                context.load_verify_locations(self._tls.client_ca)  # beside those of before, until a restart
        except (OSError, ssl.SSLError) as error:
            _log.error("the page's certificate before stays in use: %s: %s", self._tls.cert, error)


def _listen(bind: Address) -> socket.socket:
    """A listening socket.

    Raises:
        WebListenError: The address is taken, or not this machine's.
    """
    host = bind.host.strip("[]")
    listener = None
    try:
        found = socket.getaddrinfo(host, bind.port, type=socket.SOCK_STREAM)
        family, kind, number, _, address = min(found, key=lambda one: one[0] is not socket.AF_INET)
        listener = socket.socket(family, kind, number)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except (OSError, UnicodeError) as error:
        if listener is not None:
            listener.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise WebListenError(
            f"{bind}: the page cannot be served there ({reason}); name another address with --web HOST:PORT"
        ) from error
    listener.setblocking(False)  # noqa: FBT003
    return listener
