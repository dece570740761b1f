"""What ``doctor`` says of a node's files and ports: certificates, credentials, tokens, page, metrics, job options."""

import os
import socket
import sqlite3
from argparse import Namespace
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from perseus_dist.cli.node.doctor.certificates import inspect_certificates
from perseus_dist.cli.node.doctor.credentials import CredentialsError, check_named_files, inspect_credentials
from perseus_dist.cli.node.doctor.job_options import inspect_job_options
from perseus_dist.cli.node.doctor.rights import inspect_rights
from perseus_dist.cli.node.doctor.served import inspect_served
from perseus_dist.cli.settings.effective import Setting
from perseus_dist.messages.finding import Finding, Level
from perseus_dist.planner.access.access import Access
from perseus_dist.planner.access.address import Address
from perseus_dist.planner.metrics.endpoint import EndpointConfig, MetricsEndpoint
from perseus_dist.planner.store.state_dir import RIGHTS

NO_FILES = {"tls": False, "tls_ca": None, "tls_cert": None, "tls_key": None, "token_file": None, "planner": None}


def options(**given: object) -> Namespace:
    return Namespace(**{**NO_FILES, **given})


def setting(key: str, value: object, section: str = "planner") -> Setting:
    return Setting(section=section, key=key, dest=key.replace("-", "_"), value=value, file=Path("perseus.toml"))


def certificate(path: Path, days: float) -> Path:
    """One that ends in so many days."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "planner")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=90)).not_valid_after(now + timedelta(days=days))
    path.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))
    return path


def of_one(findings: Iterator[Finding]) -> Finding:
    (found,) = findings
    return found


@pytest.mark.parametrize(
    ("days", "level", "what"),
    [(-1.0, Level.FAIL, "has expired on "), (3.1, Level.WARN, ", in 3 days"), (60.0, Level.OK, "is valid until ")],
)
def test_a_certificate_that_ends_soon_is_found(tmp_path: Path, days: float, level: Level, what: str) -> None:
    path = certificate(tmp_path / "cert.pem", days)
    found = of_one(inspect_certificates(options(), [setting("tls-cert", path)]))
    assert found.level is level
    assert found.what.startswith(str(path))
    assert what in found.what
    assert list(inspect_certificates(options(tls_cert=path), [setting("tls-cert", path)])) == [
        replace(found, remedy="renew it" if found.remedy else "")
    ]


def test_an_authority_that_has_expired_beside_a_good_one_is_told_and_no_failure(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    good, old = (certificate(tmp_path / f"{days}.pem", days).read_bytes() for days in (60.0, -3.0))
    path.write_bytes(good + old)
    for args, settings in (
        (options(tls_ca=path), []),
        (options(), [setting("tls-client-ca", path)]),
        (options(), [setting("tls-ca", path, section="client")]),
    ):
        found = of_one(inspect_certificates(args, settings))
        assert found.level is Level.OK
        assert "; another authority in it has expired on " in found.what
    chain = of_one(inspect_certificates(options(), [setting("tls-cert", path)]))
    assert (chain.level, chain.remedy) == (Level.FAIL, "renew it; a planner reads it again by itself")
    path.write_bytes(old)
    expired = of_one(inspect_certificates(options(tls_ca=path), []))
    assert (expired.level, expired.remedy) == (Level.FAIL, "renew it")


def test_a_certificate_of_settings_that_is_none_is_a_failure_and_that_of_an_option_is_found_elsewhere(
    tmp_path: Path,
) -> None:
    path = tmp_path / "cert.pem"
    missing = of_one(inspect_certificates(options(), [setting("tls-ca", path)]))
    assert missing.what == f"{path}, that planner.tls-ca names, cannot be read (No such file or directory)"
    assert list(inspect_certificates(options(tls_ca=path), [])) == []
    path.write_text("no certificate")
    none = of_one(inspect_certificates(options(), [setting("tls-ca", path), setting("bind", "host:1")]))
    assert (none.level, none.what) == (Level.FAIL, f"{path}, that planner.tls-ca names, is no certificate")
    assert list(inspect_certificates(options(tls_ca=path), [])) == []


def test_a_token_that_others_may_read_is_a_warning(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    token.chmod(0o604)
    found = of_one(inspect_credentials(options(token_file=token)))
    assert (found.level, found.remedy) == (Level.WARN, f"chmod o= {token}")
    token.chmod(0o600)
    assert list(inspect_credentials(options(token_file=token))) == []
    assert list(inspect_credentials(options())) == []


def test_credentials_that_cannot_be_used_are_failures_with_a_remedy_each(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    tls, token = inspect_credentials(options(tls_ca=missing, token_file=missing))
    assert {tls.level, token.level} == {Level.FAIL}
    assert (tls.subject, token.subject) == ("certificates", "token")
    for found in (tls, token):
        assert str(missing) in found.what
        assert found.remedy


def test_a_file_that_the_command_line_names_is_refused_unless_there_is_a_planner(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(CredentialsError, match=r"^--tls-ca \S+: cannot be read \(No such file or directory\); name a"):
        check_named_files(options(tls_ca=missing))
    check_named_files(options(tls_ca=missing, planner="host:1"))
    check_named_files(options(tls_ca=missing, settings=[setting("tls-ca", missing, "client")]))
    there = tmp_path / "there"
    there.touch()
    check_named_files(options(tls_ca=there))


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    """Of a planner that has named tokens."""
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    Access("operator", folder / RIGHTS).close()
    return folder


def test_a_database_of_tokens_is_looked_at_in_a_copy(state_dir: Path) -> None:
    before = sorted(path.name for path in state_dir.iterdir())
    found = of_one(inspect_rights([setting("state-dir", state_dir)]))
    assert (found.level, found.what) == (Level.OK, f"{state_dir / RIGHTS} can be read")
    assert sorted(path.name for path in state_dir.iterdir()) == before


def test_a_database_of_tokens_that_is_damaged_or_of_another_version_is_a_failure(state_dir: Path) -> None:
    path = state_dir / RIGHTS
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 999")
        database.commit()
    found = of_one(inspect_rights([setting("state-dir", state_dir)]))
    assert found.level is Level.FAIL
    assert found.what.startswith(f"{path}: saw no database of rights of version ")
    path.write_bytes(b"SQLite format 3\0" + b"\xff" * 4096)
    found = of_one(inspect_rights([setting("state-dir", state_dir)]))
    assert found.level is Level.FAIL
    assert found.what.startswith(f"{path}: damaged (")
    path.unlink()
    assert list(inspect_rights([setting("state-dir", state_dir)])) == []


def test_metrics_that_are_served_answer_whoever_asks(state_dir: Path) -> None:
    def expose(_: str) -> tuple[bytes, str]:
        return b"perseus_up 1\n", "text/plain"

    endpoint = MetricsEndpoint(EndpointConfig(bind=Address("127.0.0.1", 0)), expose)
    try:
        port = int(endpoint.address.rpartition(":")[2])
        of_state = setting("state-dir", state_dir)
        for one in (setting("metrics", f"0.0.0.0:{port}"), setting("metrics-port", port)):
            found = of_one(inspect_served([of_state, one]))
            assert (found.level, found.subject) == (Level.OK, "metrics")
        tls = setting("metrics-tls-cert", Path("cert.pem"))
        found = of_one(inspect_served([of_state, setting("metrics", endpoint.address), tls]))
        assert found.level is Level.WARN
    finally:
        endpoint.close()


def test_a_page_that_is_not_served_is_a_warning_where_a_planner_keeps_its_state(
    state_dir: Path, tmp_path: Path
) -> None:
    of_state = setting("state-dir", state_dir)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        found = of_one(inspect_served([of_state, setting("web", address)]))
        assert found.level is Level.WARN
        assert found.what == (
            f"nothing answers at {address}, where the planner's settings have its page (Connection refused)"
        )
        assert found.remedy.endswith("why --web is not served")
        assert list(inspect_served([setting("state-dir", tmp_path / "none"), setting("web", address)])) == []
    assert list(inspect_served([of_state, setting("web", "127.0.0.1:0")])) == []
    assert list(inspect_served([of_state])) == []


def test_options_of_jobs_are_looked_at_as_a_job_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def found() -> list[tuple[Level, str]]:
        return [(one.level, one.what) for one in inspect_job_options(os.environ)]

    assert found() == []
    monkeypatch.setenv("PERSEUS_CACHE", str(tmp_path / "cache"))
    assert found() == [(Level.OK, f"{tmp_path / 'cache'} can be written to")]
    (tmp_path / "file").touch()
    monkeypatch.setenv("PERSEUS_CACHE", str(tmp_path / "file" / "cache"))
    ((level, what),) = found()
    assert level is Level.WARN
    assert f"cannot be made: {tmp_path / 'file'} " in what
    monkeypatch.setenv("PERSEUS_CACHE", "off")
    monkeypatch.setenv("PERSEUS_PROFILE", str(tmp_path / "none.csv"))
    ((level, what),) = found()
    assert level is Level.WARN
    assert what.startswith(f"PERSEUS_PROFILE: {tmp_path / 'none.csv'}")
