"""Commands say which of address, encryption, certificate or token is wrong, and the doctor says the same."""

import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from planner_process import Planner, planner

from perseus_dist.cli import main
from perseus_dist.rpc.connection import ClientTls, ConnectionFileError, channel_credentials


@dataclass(slots=True)
class Files:
    """Authorities and certificates in a folder."""

    folder: Path
    ca: trustme.CA

    def authority(self, name: str, ca: trustme.CA) -> str:
        ca.cert_pem.write_to_path(self.folder / f"{name}.pem")
        return str(self.folder / f"{name}.pem")

    def leaf(self, name: str, leaf: trustme.LeafCert) -> tuple[str, str]:
        cert, key = self.folder / f"{name}.cert", self.folder / f"{name}.key"
        leaf.private_key_pem.write_to_path(key)
        cert.write_bytes(b"".join(pem.bytes() for pem in leaf.cert_chain_pems))
        return str(cert), str(key)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("pem"), trustme.CA())


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planner]:
    with planner(tmp_path_factory.mktemp("plain")) as running:
        yield running


@pytest.fixture(scope="module")
def encrypted(files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planner]:
    cert, key = files.leaf("planner", files.ca.issue_cert("127.0.0.1"))
    with planner(tmp_path_factory.mktemp("tls"), "--tls-cert", cert, "--tls-key", key) as running:
        yield running


@pytest.fixture(scope="module")
def mutual(files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planner]:
    cert, key = files.leaf("mutual", files.ca.issue_cert("localhost", "127.0.0.1"))
    options = ("--tls-cert", cert, "--tls-key", key, "--tls-client-ca", files.authority("ca", files.ca))
    with planner(tmp_path_factory.mktemp("mtls"), *options) as running:
        yield running


@pytest.fixture(scope="module")
def expired(files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planner]:
    before = datetime.now(UTC) - timedelta(days=2)
    leaf = files.ca.issue_cert("127.0.0.1", not_before=before, not_after=before + timedelta(days=1))
    cert, key = files.leaf("expired", leaf)
    with planner(tmp_path_factory.mktemp("expired"), "--tls-cert", cert, "--tls-key", key) as running:
        yield running


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line with which ``jobs`` refuses; the doctor finds the same."""
    assert main(["jobs", *arguments]) == 2
    refusal = capsys.readouterr().err
    assert refusal.count("\n") == 1
    assert main(["doctor", "--json", *arguments]) == 1
    findings = json.loads(capsys.readouterr().out)["findings"]
    (finding,) = (finding for finding in findings if finding["subject"] == "planner")
    assert finding["level"] == "fail"
    assert f"{finding['what']}; {finding['remedy']}" in refusal
    return refusal


def test_a_wrong_address(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    assert "no planner answers (Connection refused)" in said(capsys, "--planner", f"127.0.0.1:{port}")
    assert "the host is not known" in said(capsys, "--planner", "planner.invalid:50151")


@pytest.mark.parametrize(
    "address", ["planner", "planner 1", "planner:99999", ":1", ",", "planner:1,", "dns:///planner:1"]
)
def test_what_is_no_address(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs", "--planner", address]) == 2
    assert "is no address: expected HOST:PORT" in capsys.readouterr().err
    assert main(["doctor", "--json", "--planner", address]) == 1
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert [one["level"] for one in findings if one["subject"] == "planner" and "is no address" in one["what"]]


def test_encryption_that_only_one_side_wants(
    capsys: pytest.CaptureFixture[str], plain: Planner, encrypted: Planner, mutual: Planner
) -> None:
    assert "the planner speaks plain text, not TLS" in said(capsys, "--planner", plain.address, "--tls")
    for running in (encrypted, mutual):
        assert "the planner speaks TLS, and this call did not" in said(capsys, "--planner", running.address)


def test_a_certificate_that_cannot_be_trusted(
    capsys: pytest.CaptureFixture[str], files: Files, encrypted: Planner, expired: Planner
) -> None:
    stranger, ours = files.authority("stranger", trustme.CA()), files.authority("ca", files.ca)
    for options in (("--tls",), ("--tls-ca", stranger)):
        refusal = said(capsys, "--planner", encrypted.address, *options)
        assert "the planner's certificate is refused" in refusal
        assert "name the authority that has signed it with --tls-ca" in refusal
    refusal = said(capsys, "--planner", expired.address, "--tls-ca", ours)
    assert "expired" in refusal
    assert "renew the planner's certificate" in refusal
    port = encrypted.address.rpartition(":")[2]
    assert "call it by a name that stands in it" in said(capsys, "--planner", f"localhost:{port}", "--tls-ca", ours)


def test_a_certificate_that_the_planner_asks_for(
    capsys: pytest.CaptureFixture[str], files: Files, mutual: Planner
) -> None:
    ours = files.authority("ca", files.ca)
    missing = said(capsys, "--planner", mutual.address, "--tls-ca", ours)
    assert "the planner refuses our certificate, or asks for one and got none" in missing
    cert, key = files.leaf("stranger", trustme.CA().issue_cert("agent"))
    wrong = said(capsys, "--planner", mutual.address, "--tls-ca", ours, "--tls-cert", cert, "--tls-key", key)
    assert "--tls-cert and --tls-key" in wrong


def test_a_token_that_is_missing_or_counts_no_more(
    capsys: pytest.CaptureFixture[str], tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    with planner(tmp_path_factory.mktemp("token"), "--bind", "0.0.0.0:0", "--insecure") as running:
        address = f"127.0.0.1:{running.address.rpartition(':')[2]}"
        options, operator = ("--planner", address), running.folder / "state" / "operator-token"
        assert "the planner wants a token; name its file with --token-file" in said(capsys, *options)
        create = ("token", "create", "short", "--role", "view", "--out", str(tmp_path / "token"))
        assert main([*create, *options, "--token-file", str(operator)]) == 0
        assert main(["token", "revoke", "short", *options, "--token-file", str(operator)]) == 0
        capsys.readouterr()
        assert "token short was revoked" in said(capsys, *options, "--token-file", str(tmp_path / "token"))


def test_all_is_well(capsys: pytest.CaptureFixture[str], files: Files, encrypted: Planner, mutual: Planner) -> None:
    ours = files.authority("ca", files.ca)
    cert, key = files.leaf("client", files.ca.issue_cert("agent"))
    for running, options in ((encrypted, ()), (mutual, ("--tls-cert", cert, "--tls-key", key))):
        token = str(running.folder / "state" / "operator-token")
        arguments = ("--planner", running.address, "--tls-ca", ours, "--token-file", token, *options)
        assert main(["jobs", *arguments]) == 0
        assert capsys.readouterr().out == "no jobs that this token opens\n"
        main(["doctor", "--json", *arguments])
        findings = json.loads(capsys.readouterr().out)["findings"]
        assert [finding["level"] for finding in findings if finding["subject"] == "planner"] == ["ok"]


def test_the_systems_authorities_are_trusted_with_tls_alone(
    capsys: pytest.CaptureFixture[str], files: Files, encrypted: Planner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a machine whose authorities have signed the planner's certificate."""
    monkeypatch.setenv("SSL_CERT_FILE", files.authority("ca", files.ca))
    assert main(["jobs", "--planner", encrypted.address, "--tls"]) == 0
    assert capsys.readouterr().out == "no jobs\n"


def test_a_bundle_with_comments_that_are_not_ascii_is_trusted(
    capsys: pytest.CaptureFixture[str], files: Files, encrypted: Planner
) -> None:
    """As distributions and certifi write them: a name above each certificate."""
    bundle = Path(files.authority("named", files.ca))
    bundle.write_bytes("# Főtanúsítvány\n".encode() + bundle.read_bytes())
    assert main(["jobs", "--planner", encrypted.address, "--tls-ca", str(bundle)]) == 0
    assert capsys.readouterr().out == "no jobs\n"
    assert "--tls-ca" in said(capsys, "--planner", encrypted.address, "--tls-ca", files.authority("x", trustme.CA()))


@pytest.mark.parametrize(
    ("name", "reason"), [("missing.pem", "No such file"), ("", "Is a directory"), ("text", "no usable authority")]
)
def test_a_variable_that_names_no_authorities_is_refused_by_its_name(
    files: Files, name: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gRPC would trust those that it brings along."""
    (files.folder / "text").write_text("no certificate\n")
    path = files.folder / name
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    with pytest.raises(ConnectionFileError, match=f"^SSL_CERT_FILE={path}: .*{reason}"):
        channel_credentials(ClientTls())
    channel_credentials(ClientTls(ca=Path(files.authority("ca", files.ca))))  # which needs none of the system's


def test_strangers_handshakes_fill_no_log(
    files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GRPC_VERBOSITY", raising=False)  # which commands of this process have set
    cert, key = files.leaf("quiet", files.ca.issue_cert("127.0.0.1"))
    with planner(tmp_path, "--tls-cert", cert, "--tls-key", key, "--log-format", "json") as running:
        said(capsys, "--planner", running.address)
        said(capsys, "--planner", running.address, "--tls-ca", files.authority("stranger", trustme.CA()))
        assert running.end() == 0
        assert running.process.stderr is not None
        lines = running.process.stderr.read().splitlines()
    assert {json.loads(line)["level"] for line in lines} == {"info"}


def test_health_says_what_is_wrong_as_well(
    capsys: pytest.CaptureFixture[str], files: Files, encrypted: Planner
) -> None:
    authority = files.authority("ca", files.ca)
    stranger = files.authority("stranger", trustme.CA())
    named = ["--tls-ca", authority, "--tls-server-name", "planner.example"]
    cases = [([], "speaks TLS"), (["--tls-ca", stranger], "--tls-ca"), (named, "not valid for 'planner.example'")]
    for options, reason in cases:
        assert main(["health", "--planner", encrypted.address, *options]) == 1
        told = capsys.readouterr().err
        assert reason in told
        assert "UNAVAILABLE" not in told


def test_a_certificate_without_its_key_or_a_keys_pass_phrase(files: Files) -> None:
    """As agents may name them; a pass phrase is asked for on no terminal."""
    cert, key = files.leaf("locked", files.ca.issue_cert("agent"))
    secret = load_pem_private_key(Path(key).read_bytes(), None)
    form = (Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    Path(key).write_bytes(secret.private_bytes(*form))
    for tls in (ClientTls(cert=Path(cert)), ClientTls(cert=Path(cert), key=Path(key))):
        with pytest.raises(ConnectionFileError, match=r"locked\.cert.*: no usable certificate and key"):
            channel_credentials(tls)
