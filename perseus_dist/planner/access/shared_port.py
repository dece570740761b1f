"""An embedded planner's port for the other nodes of its job: TLS, with a certificate that is made for it.

Port, certificate and key are kept beside the planner's database: a planner that takes the place of one that died is
found where that was, and is believed.
"""

import datetime as dt
import ipaddress
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from perseus_dist.planner.access.private_file import write_private
from perseus_dist.rpc.node_jobs import SHARED_PORT_FILE

_LIFETIME = dt.timedelta(days=3650)  # longer than any job; only its ranks trust the certificate
_CLOCKS_DIFFER = dt.timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPort:
    """Where other nodes reach a planner, and what it shows them.

    Attributes:
        host: Address of this node, a number.
        port: 0 takes a free one.
        certificate, key: In PEM.
    """

    host: str
    port: int
    certificate: str
    key: str

    @property
    def address(self) -> str:
        """As clients take it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def load_shared_port(folder: Path, host: str, port: int = 0) -> SharedPort:
    """The one that a planner in this folder has had, or a new one.

    Args:
        folder: The planner's state folder.
        host: Address of this node, a number.
        port: 0 for any.
    """
    try:
        found = SharedPort(**json.loads((folder / SHARED_PORT_FILE).read_text()))
        if found.host == host and port in (0, found.port):
            return found
    except (OSError, ValueError, TypeError):
        pass
    certificate, key = _make_certificate(host)
    return SharedPort(host=host, port=port, certificate=certificate, key=key)


def keep_shared_port(folder: Path, shared: SharedPort) -> None:
    """Keep it for the next planner in this folder.

    Raises:
        OutputError: The folder cannot be written to.
    """
    write_private(folder / SHARED_PORT_FILE, json.dumps(asdict(shared)))


def _make_certificate(host: str) -> tuple[str, str]:
    """A certificate of this address that signs itself, and its key, in PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "perseus-dist planner of one job")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return certificate.public_bytes(pem).decode("ascii"), private.decode("ascii")
