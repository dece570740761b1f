"""The planner's certificate, read again whenever its files change: rotation needs no restart."""

import logging
import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc

from perseus_dist.errors import PerseusError

_log = logging.getLogger(__name__)


class TlsError(PerseusError):
    """Certificate files that cannot be served with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTls:
    """Files in PEM.

    Attributes:
        cert, key: Who the planner is; the chain with the leaf first.
        client_ca: Who signs clients' certificates: with it, every client must show one (mTLS).
    """

    cert: Path
    key: Path
    client_ca: Path | None = None

    @property
    def files(self) -> tuple[Path, ...]:
        """Paths of certificate, key and client authority, as far as they are given."""
        return (self.cert, self.key) if self.client_ca is None else (self.cert, self.key, self.client_ca)


class FollowedFiles:
    """Files that are looked at again and again. Each change is seen once: also one to files that cannot be used."""

    def __init__(self, *paths: Path) -> None:
        self._paths = paths
        self._seen = self._signature()

    def have_changed(self) -> bool:
        """Whether one was replaced, changed, taken away or put back since the look before."""
        before, self._seen = self._seen, self._signature()
        return self._seen != before

    def _signature(self) -> tuple[tuple[int, int, int], ...] | None:
        """None while one of them is missing."""
        try:
            stats = [path.stat() for path in self._paths]
        except OSError:
            return None
        return tuple((stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in stats)


def server_credentials(tls: ServerTls) -> grpc.ServerCredentials:
    """Credentials that follow their files at every handshake; files that do not fit together are waited out.

    Raises:
        TlsError: The files cannot be served with now.
    """
    certificates = _Certificates(tls)
    return grpc.dynamic_ssl_server_credentials(
        certificates.configuration,
        certificates.reload,  # type: ignore[arg-type]  # its None, no change, is missing in the stubs
        require_client_authentication=tls.client_ca is not None,
    )


class _Certificates:
    """Called by gRPC's threads, one handshake at a time or several: a reload too many does no harm."""

    def __init__(self, tls: ServerTls) -> None:
        self._tls = tls
        self._files = FollowedFiles(*tls.files)
        self.configuration = _read(tls)

    def reload(self) -> grpc.ServerCertificateConfiguration | None:
        """The new configuration, or None where nothing has changed or what has changed cannot be used."""
        if not self._files.have_changed():
            return None
        try:
            configuration = _read(self._tls)
        except TlsError as error:
            _log.error("the certificate before stays in use: %s", error)
            return None
        _log.info("certificate read again from %s", self._tls.cert)
        return configuration


def _read(tls: ServerTls) -> grpc.ServerCertificateConfiguration:
    try:
        cert, key = tls.cert.read_bytes(), tls.key.read_bytes()
        client_ca = None if tls.client_ca is None else tls.client_ca.read_bytes()
    except OSError as error:
        raise TlsError(f"{error.filename}: cannot be read ({error.strerror}); name a PEM file") from error
    try:
        # gRPC would fail without a reason, and a key with a pass phrase would be asked for on the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.cert, tls.key, password="")
        if tls.client_ca is not None:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(tls.client_ca)
    except (OSError, ssl.SSLError) as error:
        reason = error.reason if isinstance(error, ssl.SSLError) else error.strerror
        names = ", ".join(map(str, tls.files))
        raise TlsError(
            f"{names}: no usable certificate, key and authority ({reason}); expected PEM files that fit"
        ) from error
    return grpc.ssl_server_certificate_configuration([(key, cert)], root_certificates=client_ca)
