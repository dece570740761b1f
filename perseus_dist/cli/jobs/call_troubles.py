"""Why a planner cannot be called: its address, its certificate, ours, encryption, or the token."""

import socket
import ssl
from dataclasses import dataclass

from perseus_dist.rpc.connection import ClientTls, system_authorities

_TIMEOUT_S = 3.0
_WRONG_VERSION = frozenset({"WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING", "RECORD_LAYER_FAILURE"})
_WANTS_CERTIFICATE = ("CERTIFICATE_REQUIRED", "HANDSHAKE_FAILURE", "BAD_CERTIFICATE", "UNKNOWN_CA")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A reason and its remedy, each the part of a sentence."""

    what: str
    remedy: str


def connection_trouble(
    address: str, tls: ClientTls | None, *, server_name: str | None = None, timeout_s: float = _TIMEOUT_S
) -> Trouble | None:
    """Try what gRPC does before a call, step by step, and say which of them fails; None where all succeed.

    Args:
        address: ``HOST:PORT``.
        tls: None for plain text.
        server_name: The name in the planner's certificate, where it is not HOST.
        timeout_s: For each step.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        connection = socket.create_connection((host, int(port)), timeout=timeout_s)
    except socket.gaierror as error:
        return Trouble(what=f"the host is not known ({error.strerror})", remedy="correct the address")
    except TimeoutError:
        remedy = "correct the address, or let this node through the firewall"
        return Trouble(what=f"there is no answer within {timeout_s:g} s", remedy=remedy)
    except (OSError, ValueError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        remedy = "start 'perseus-dist planner' there, or correct the address"
        return Trouble(what=f"no planner answers ({reason})", remedy=remedy)
    with connection:
        return _plain_trouble(connection) if tls is None else _tls_trouble(connection, server_name or host, tls)


def certificate_end_s(address: str, tls: ClientTls, *, timeout_s: float = _TIMEOUT_S) -> float | None:
    """Until when a planner's certificate is valid, in seconds since the epoch; None where it cannot be had."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        with (
            socket.create_connection((host, int(port)), timeout=timeout_s) as connection,
            _client_context(tls).wrap_socket(connection, server_hostname=host) as secure,
        ):
            shown = (secure.getpeercert() or {}).get("notAfter")
    except (OSError, ValueError):
        return None
    return ssl.cert_time_to_seconds(shown) if isinstance(shown, str) else None


_CERTIFICATE_WANTED = Trouble(
    what="the planner refuses our certificate, or asks for one and got none",
    remedy="name one that the planner's authority has signed with --tls-cert and --tls-key",
)


def _tls_trouble(connection: socket.socket, host: str, tls: ClientTls) -> Trouble | None:
    context = _client_context(tls)
    try:
        with context.wrap_socket(connection, server_hostname=host) as secure:
            # A planner that misses a certificate closes after the handshake, others begin to speak HTTP/2.
            if not secure.recv(1):
                return _CERTIFICATE_WANTED
    except ssl.SSLCertVerificationError as error:
        if error.verify_code in _UNTRUSTED:
            remedy = "name the authority that has signed it with --tls-ca"
        else:
            remedy = "renew the planner's certificate, or call it by a name that stands in it"
        return Trouble(what=f"the planner's certificate is refused ({error.verify_message})", remedy=remedy)
    except ssl.SSLError as error:
        reason = error.reason or str(error)
        if reason in _WRONG_VERSION:
            what = "the planner speaks plain text, not TLS"
            return Trouble(what=what, remedy="leave out --tls and the other options of TLS")
        if any(word in reason for word in _WANTS_CERTIFICATE):
            return _CERTIFICATE_WANTED
        return Trouble(what=f"TLS fails ({reason})", remedy="look at the planner's log")
    except OSError as error:
        return Trouble(what=f"the connection breaks ({error})", remedy="look at the planner's log")
    return None


def _plain_trouble(connection: socket.socket) -> Trouble | None:
    """A server with TLS answers a handshake; one in plain text does not."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        with context.wrap_socket(connection):
            pass
    except (OSError, ValueError):
        return None
    remedy = "add --tls, or --tls-ca with the authority of the planner's certificate"
    return Trouble(what="the planner speaks TLS, and this call did not", remedy=remedy)


def _client_context(tls: ClientTls) -> ssl.SSLContext:
    context = ssl.create_default_context(
        cafile=str(tls.ca or system_authorities() or "") or None if tls.ca_pem is None else None, cadata=tls.ca_pem
    )
    if tls.cert is not None:
        context.load_cert_chain(tls.cert, tls.key, password="")
    context.set_alpn_protocols(["h2"])
    return context


_UNTRUSTED = frozenset({2, 18, 19, 20, 21})
"""OpenSSL's codes of an issuer who is not known or not trusted; others speak of dates and names."""
