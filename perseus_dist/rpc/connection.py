"""How agents and operators reach a planner: channel options, TLS and the token."""

import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perseus_dist.errors import PerseusError
from perseus_dist.rpc.limits import MAX_AGENT_MESSAGE_BYTES, MAX_PLANNER_MESSAGE_BYTES

if TYPE_CHECKING:
    import grpc

SERVICE = "perseus.v1.Planner"
ATTACH = f"/{SERVICE}/Attach"
NODE_STREAM = f"/{SERVICE}/NodeStream"
WATCH_JOB = f"/{SERVICE}/WatchJob"
GET_FRONTIER = f"/{SERVICE}/GetFrontier"
GET_PROFILE = f"/{SERVICE}/GetProfile"

OWNER_KEY = "perseus-owner"
"""Trailing metadata of a call that another replica is to be asked: its ``HOST:PORT``."""

_MAX_FILE_BYTES = 1 << 20
_BUNDLE_VARIABLE = "SSL_CERT_FILE"
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Alpine
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, RHEL
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/ssl/cert.pem",
)

CHANNEL_OPTIONS = (
    ("grpc.max_send_message_length", MAX_AGENT_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_PLANNER_MESSAGE_BYTES),
    # A peer that vanished without a word (cable, half-open connection) is noticed within 10 s. It is the ping timeout
    # that ends the connection: gRPC's core does not look at keepalive_timeout_ms (seen in 1.85), and waits 60 s.
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.enable_retries", 0),  # what a stream lost, the next attach takes up again
)


class ConnectionFileError(PerseusError):
    """A token or certificate that cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTls:
    """Files in PEM.

    Attributes:
        ca: Whom to trust; the system's authorities if None.
        ca_pem: The same as text in the file's place.
        cert, key: Who we are, for a planner that asks (mTLS): both or neither.
    """

    ca: Path | None = None
    ca_pem: str | None = None
    cert: Path | None = None
    key: Path | None = None


def channel_credentials(tls: ClientTls) -> "grpc.ChannelCredentials":
    """For ``grpc.secure_channel``; reads the files anew each time.

    Raises:
        ConnectionFileError: A file cannot be used.
    """
    import grpc

    check_pem(tls)
    ca, key, cert = (None if path is None else _read(path) for path in (tls.ca, tls.key, tls.cert))
    if tls.ca_pem is not None:
        ca = tls.ca_pem.encode("ascii", errors="replace")
    elif ca is None and (bundle := system_authorities()) is not None:
        ca = _read(bundle)  # gRPC would take those it brings along, and not those that this machine's operator trusts
    return grpc.ssl_channel_credentials(root_certificates=ca, private_key=key, certificate_chain=cert)


def system_authorities() -> Path | None:
    """The file of authorities that this machine trusts: ``$SSL_CERT_FILE``, unchecked, else the distribution's."""
    if named := os.environ.get(_BUNDLE_VARIABLE):
        return Path(named)
    return next((bundle for bundle in map(Path, _BUNDLES) if bundle.is_file()), None)


def check_pem(tls: ClientTls) -> None:
    """Check that the files can be used: gRPC itself would only say that there is no answer.

    Raises:
        ConnectionFileError: A file cannot be read, is no PEM file of its kind, or a key does not fit its certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if tls.ca is not None:
        _load_authorities(context, tls.ca)
    elif tls.ca_pem is None and (bundle := system_authorities()) is not None:
        try:
            _load_authorities(context, bundle)
        except ConnectionFileError as error:
            variable = f"{_BUNDLE_VARIABLE}=" if os.environ.get(_BUNDLE_VARIABLE) else ""
            raise ConnectionFileError(f"{variable}{error}") from error
    if (cert := tls.cert) is not None:
        paths = (cert,) if tls.key is None else (cert, tls.key)
        # Without a pass phrase it would be asked for on the terminal.
        _load("certificate and key", paths, lambda *_: context.load_cert_chain(cert, tls.key, password=""))


def _load_authorities(context: ssl.SSLContext, bundle: Path) -> None:
    # By the file's name: as text it would have to be ASCII, and bundles have comments in UTF-8.
    _load("authority", (bundle,), lambda _: context.load_verify_locations(cafile=bundle))


def _load(what: str, paths: tuple[Path, ...], load: Callable[..., None]) -> None:
    contents = [_read(path) for path in paths]
    try:
        load(*contents)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = str(error).partition(" (_ssl.c")[0]
        names = ", ".join(map(str, paths))
        raise ConnectionFileError(f"{names}: no usable {what} ({reason}); expected PEM files that fit") from error


def authorization(token: str) -> tuple[tuple[str, str], ...]:
    """Metadata of every call; none without a token."""
    return (("authorization", f"Bearer {token}"),) if token else ()


def read_token(path: Path) -> str:
    """The token in a file.

    Raises:
        ConnectionFileError: It cannot be read, or holds no token.
    """
    token = _read(path).decode("ascii", errors="replace").strip()
    if not token or not token.isprintable() or not token.isascii() or " " in token:
        raise ConnectionFileError(f"{path}: saw no token, expected one word of ASCII in the file")
    return token


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConnectionFileError(f"{path}: cannot be read ({error.strerror}); name a readable file") from error
    if len(content) > _MAX_FILE_BYTES:  # a device that never ends, perhaps
        raise ConnectionFileError(f"{path}: saw more than {_MAX_FILE_BYTES} bytes; name another file")
    return content
