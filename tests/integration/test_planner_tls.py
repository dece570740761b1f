"""TLS: who gets in with which certificate, what an expired one does, and rotation without a restart."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
from waiting import PATIENCE_S

from perseus_dist.planner.access.tls import ServerTls, TlsError, server_credentials
from perseus_dist.rpc.connection import ClientTls, channel_credentials

ECHO = "/perseus.v1.Test/Echo"
SHORT_S = 3.0


class Files:
    """An authority, and the planner's certificate from it, in files."""

    def __init__(self, folder: Path) -> None:
        self.ca = trustme.CA()
        self.ca_path, self.cert, self.key = folder / "ca.pem", folder / "cert.pem", folder / "key.pem"
        self.ca.cert_pem.write_to_path(self.ca_path)
        self.tls = ServerTls(cert=self.cert, key=self.key)
        self.write(self.ca.issue_cert("localhost"))

    def write(self, leaf: trustme.LeafCert) -> None:
        replace_file(self.key, leaf.private_key_pem.bytes())
        replace_file(self.cert, b"".join(pem.bytes() for pem in leaf.cert_chain_pems))


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def replace_file(path: Path, data: bytes) -> None:
    temporary = path.with_suffix(".new")
    temporary.write_bytes(data)
    temporary.replace(path)


@asynccontextmanager
async def server(tls: ServerTls) -> AsyncIterator[str]:
    async def echo(data: bytes, _: object) -> bytes:
        return data

    running = grpc.aio.server()
    handlers: dict[str, Any] = {"Echo": grpc.unary_unary_rpc_method_handler(echo)}
    running.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("perseus.v1.Test", handlers),))
    port = running.add_secure_port("localhost:0", server_credentials(tls))
    await running.start()
    try:
        yield f"localhost:{port}"
    finally:
        await running.stop(None)


async def echo(address: str, credentials: grpc.ChannelCredentials | None, timeout_s: float = PATIENCE_S) -> bytes:
    """One call over a connection of its own."""
    options = (("grpc.use_local_subchannel_pool", 1),)
    channel = (
        grpc.aio.insecure_channel(address, options=options)
        if credentials is None
        else grpc.aio.secure_channel(address, credentials, options=options)
    )
    async with channel:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(ECHO)
        return await call(b"hello", timeout=timeout_s)


async def refused(call: Awaitable[bytes]) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    assert error.value.code() in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}


def test_clients_that_trust_the_authority_get_in_and_others_do_not(files: Files, tmp_path: Path) -> None:
    stranger = tmp_path / "stranger.pem"
    trustme.CA().cert_pem.write_to_path(stranger)

    async def test() -> None:
        async with server(files.tls) as address:
            assert await echo(address, channel_credentials(ClientTls(ca=files.ca_path))) == b"hello"
            await refused(echo(address, channel_credentials(ClientTls(ca=stranger)), SHORT_S))
            await refused(echo(address, None, SHORT_S))

    asyncio.run(test())


def test_an_expired_certificate_is_not_trusted(files: Files) -> None:
    yesterday = datetime.now(UTC) - timedelta(days=1)
    files.write(files.ca.issue_cert("localhost", not_before=yesterday - timedelta(days=1), not_after=yesterday))

    async def test() -> None:
        async with server(files.tls) as address:
            await refused(echo(address, channel_credentials(ClientTls(ca=files.ca_path)), SHORT_S))

    asyncio.run(test())


def test_mutual_tls_lets_in_who_shows_a_certificate_of_the_authority(files: Files, tmp_path: Path) -> None:
    clients = trustme.CA()
    clients.cert_pem.write_to_path(tmp_path / "clients.pem")
    tls = ServerTls(cert=files.cert, key=files.key, client_ca=tmp_path / "clients.pem")

    def shown(ca: trustme.CA, name: str, not_after: datetime | None = None) -> grpc.ChannelCredentials:
        before = None if not_after is None else not_after - timedelta(days=1)
        leaf = ca.issue_cert("agent", not_before=before, not_after=not_after)
        cert, key = tmp_path / f"{name}.pem", tmp_path / f"{name}.key"
        leaf.private_key_pem.write_to_path(key)
        leaf.cert_chain_pems[0].write_to_path(cert)
        return channel_credentials(ClientTls(ca=files.ca_path, cert=cert, key=key))

    async def test() -> None:
        async with server(tls) as address:
            assert await echo(address, shown(clients, "ours")) == b"hello"
            await refused(echo(address, channel_credentials(ClientTls(ca=files.ca_path)), SHORT_S))
            await refused(echo(address, shown(trustme.CA(), "theirs"), SHORT_S))
            yesterday = datetime.now(UTC) - timedelta(days=1)
            await refused(echo(address, shown(clients, "old", not_after=yesterday), SHORT_S))

    asyncio.run(test())


def test_a_new_certificate_is_served_without_a_restart(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    old = channel_credentials(ClientTls(ca=files.ca_path))
    new_ca = trustme.CA()
    leaf = new_ca.issue_cert("localhost")

    async def test() -> None:
        async with server(files.tls) as address:
            assert await echo(address, old) == b"hello"
            replace_file(files.key, leaf.private_key_pem.bytes())  # not yet with its certificate
            assert await echo(address, old) == b"hello"
            files.write(leaf)
            new_ca.cert_pem.write_to_path(files.ca_path)
            assert await echo(address, channel_credentials(ClientTls(ca=files.ca_path))) == b"hello"
            await refused(echo(address, old, SHORT_S))

    asyncio.run(test())
    assert caplog.text.count("the certificate before stays in use") == 1


def test_a_certificate_that_is_missing_is_complained_about_once(
    files: Files, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trusting = channel_credentials(ClientTls(ca=files.ca_path))

    async def test() -> None:
        async with server(files.tls) as address:
            away = files.cert.rename(tmp_path / "away.pem")
            for _ in range(3):
                assert await echo(address, trusting) == b"hello"
            assert caplog.text.count(f"the certificate before stays in use: {files.cert}: cannot be read") == 1
            away.rename(files.cert)
            assert await echo(address, trusting) == b"hello"

    with caplog.at_level("INFO"):
        asyncio.run(test())
    assert caplog.text.count("stays in use") == 1
    assert caplog.text.count("certificate read again") == 1


def test_files_that_cannot_be_served_with_are_refused_at_the_start(files: Files, tmp_path: Path) -> None:
    other = trustme.CA().issue_cert("localhost")
    (tmp_path / "other.key").write_bytes(other.private_key_pem.bytes())
    for tls in (
        ServerTls(cert=files.cert, key=tmp_path / "other.key"),
        ServerTls(cert=files.key, key=files.key),
        ServerTls(cert=files.cert, key=files.key, client_ca=files.key),
        ServerTls(cert=tmp_path / "missing.pem", key=files.key),
    ):
        with pytest.raises(TlsError, match=os.sep):
            server_credentials(tls)
