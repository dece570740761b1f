"""Metrics of a running planner: TLS, passwords, hostile clients, and options that do not fit together."""

import http.client
import json
import os
import socket
import ssl
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import bcrypt
import pytest
import trustme
from planner_process import planner
from scraping import basic, get
from waiting import wait_until

from perseus_dist.cli import main
from perseus_dist.planner.metrics import endpoint
from perseus_dist.planner.metrics.basic_auth import PasswordFile, PasswordFileError

LINE = "perseus_open_streams 0.0"
COST = 4  # the least


def hashed(password: str) -> str:
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(COST)).decode()


class Certificate:
    """Of localhost, in a folder; another one at each ``renew``."""

    def __init__(self, folder: Path) -> None:
        self.cert, self.key = folder / "metrics.pem", folder / "metrics.key"
        self.renew()

    def renew(self) -> None:
        ca = trustme.CA()
        leaf = ca.issue_cert("localhost")
        for path, blob in ((self.cert, leaf.cert_chain_pems[0]), (self.key, leaf.private_key_pem)):
            blob.write_to_path(f"{path}.new")
            os.replace(f"{path}.new", path)  # noqa: PTH105  # both names are text
        self.trust = ssl.create_default_context()
        ca.configure_trust(self.trust)


def test_tls_and_a_password_refuse_what_they_must(tmp_path: Path) -> None:
    certificate, passwords = Certificate(tmp_path), tmp_path / "scrapers"
    passwords.write_text(f"# who may scrape\nprometheus:{hashed('secret')}\n")
    options = ["--metrics-tls-cert", str(certificate.cert), "--metrics-tls-key", str(certificate.key)]
    options += ["--metrics-password-file", str(passwords)]
    with planner(tmp_path, "--metrics", "127.0.0.1:0", *options) as running:
        address = running.told["metrics_address"]
        right = basic("prometheus", "secret")
        before = certificate.trust
        assert LINE in get(address, authorization=right, tls=before).splitlines()
        assert LINE in get(address, authorization=right, tls=before).splitlines()  # remembered
        for wrong in ("", basic("prometheus", "Secret"), basic("other", "secret"), "Basic ?", "Bearer secret"):
            assert get(address, authorization=wrong, tls=before) == "401"
        assert get(address, authorization=basic("prometheus", "x" * 100), tls=before) == "401"
        assert get(address, authorization=right, path="/", tls=before) == "404"
        with pytest.raises((http.client.HTTPException, OSError)):
            get(address, authorization=right)  # plain text

        certificate.renew()
        assert LINE in get(address, authorization=right, tls=certificate.trust).splitlines()
        with pytest.raises(ssl.SSLError):
            get(address, authorization=right, tls=before)
        certificate.cert.write_text("no certificate")
        assert LINE in get(address, authorization=right, tls=certificate.trust).splitlines()

        passwords.write_text(f"prometheus:{hashed('other')}\n")
        assert get(address, authorization=right, tls=certificate.trust) == "401"
        assert LINE in get(address, authorization=basic("prometheus", "other"), tls=certificate.trust)
        passwords.unlink()
        assert LINE in get(address, authorization=basic("prometheus", "other"), tls=certificate.trust)


@contextmanager
def idle_clients(address: str, count: int) -> Iterator[None]:
    host, _, port = address.rpartition(":")
    clients = [socket.create_connection((host, int(port))) for _ in range(count)]
    try:
        yield
    finally:
        for client in clients:
            client.close()


def test_silent_clients_hold_up_no_other_and_do_not_stop_the_planner(tmp_path: Path) -> None:
    certificate = Certificate(tmp_path)
    options = ["--metrics-tls-cert", str(certificate.cert), "--metrics-tls-key", str(certificate.key)]
    with planner(tmp_path, "--metrics", "127.0.0.1:0", *options) as running:
        address = running.told["metrics_address"]
        with idle_clients(address, endpoint.MAX_CONNECTIONS // 2):
            assert LINE in get(address, tls=certificate.trust)
        with idle_clients(address, 2 * endpoint.MAX_CONNECTIONS):
            pass

        def is_served() -> bool:
            try:
                return LINE in get(address, tls=certificate.trust)
            except (OSError, http.client.HTTPException):
                return False

        wait_until(is_served)
        with idle_clients(address, 2):
            assert running.end() == 0


def test_a_host_by_name_and_over_ipv6(tmp_path: Path) -> None:
    (tmp_path / "six").mkdir()
    with planner(tmp_path, "--metrics", "localhost:0") as running:
        assert LINE in get(running.told["metrics_address"])
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6")
    with planner(tmp_path / "six", "--metrics", "[::1]:0") as running:
        assert json.dumps(running.told["metrics_address"]).startswith('"[::1]:')
        assert LINE in get(running.told["metrics_address"])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--metrics", "0.0.0.0:0"], "is no loopback address"),
        (["--metrics", "nonsense"], "--metrics: 'nonsense' is no address"),
        (["--metrics", "127.0.0.1:0", "--metrics-port", "0"], "not allowed with"),
        (["--metrics-password-file", "x"], "need --metrics HOST:PORT"),
        (["--metrics", "127.0.0.1:0", "--metrics-tls-cert", "x.pem"], "expected both or neither"),
        (["--metrics", "127.0.0.1:0", "--metrics-tls-cert", "x", "--metrics-tls-key", "y"], "no usable certificate"),
        (["--metrics", "127.0.0.1:0", "--metrics-password-file", "x"], "x: cannot be read"),
        (["--metrics", "192.0.2.1:0", "--insecure"], "metrics cannot be served there"),
        (["--metrics", "no-such-host.invalid:0", "--insecure"], "metrics cannot be served there"),
    ],
)
def test_options_that_cannot_work_are_refused_in_one_line(
    options: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    try:
        code = main(["planner", "--bind", "127.0.0.1:0", *options])
    except SystemExit as stop:
        code = int(stop.code or 0)
    assert code == (1 if "served there" in told else 2)
    assert told in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "prometheus",
        "prometheus:secret",
        "a b:$2b$04$" + 53 * "a",
        "user:$2b$31$" + 53 * "a",
        b"\xff\xfe",
        "a:$1$x",
    ],
)
def test_a_password_file_that_is_none_is_refused(tmp_path: Path, content: str | bytes) -> None:
    path = tmp_path / "scrapers"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(PasswordFileError, match="htpasswd -nB USER"):
        PasswordFile(path)


def test_a_hash_as_htpasswd_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "scrapers"
    path.write_text("prometheus:" + hashed("secret").replace("$2b$", "$2y$"))
    passwords = PasswordFile(path)
    assert passwords.admits(basic("prometheus", "secret"))
    assert not passwords.admits(basic("prometheus", "secret2"))
    assert not passwords.admits("Basic " + b64encode(b"prometheus:sec\0ret").decode())
    assert not passwords.admits("Basic \xff")
