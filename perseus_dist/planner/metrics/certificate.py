"""The certificate that metrics are served with, read again when its files change."""

import logging
import ssl
import threading
from pathlib import Path

from perseus_dist.planner.access.tls import FollowedFiles, TlsError

_log = logging.getLogger(__name__)


class FollowedCertificate:
    """Gives each handshake a context of the files as they are; files that do not fit together are waited out.

    Any thread may call.
    """

    def __init__(self, cert: Path, key: Path) -> None:
        """Read the files.

        Raises:
            TlsError: They cannot be served with.
        """
        self._cert, self._key = cert, key
        self._files = FollowedFiles(cert, key)
        self._context = self._load()
        self._following = threading.Lock()

    def context(self) -> ssl.SSLContext:
        """The TLS context for one handshake, of the certificate as it is now."""
        with self._following:
            if self._files.have_changed():
                try:
                    self._context = self._load()
                    _log.info("certificate for metrics read again from %s", self._cert)
                except TlsError as error:
                    _log.error("the certificate for metrics before stays in use: %s", error)
            return self._context

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self._cert, self._key, password="")  # no prompt where the key needs one
        except (OSError, ssl.SSLError) as error:
            reason = error.reason if isinstance(error, ssl.SSLError) else error.strerror
            raise TlsError(
                f"{self._cert}, {self._key}: no usable certificate and key ({reason}); expected PEM files that fit"
            ) from error
        return context
