"""The port of an embedded planner for the other nodes of its job."""

import ssl
from dataclasses import replace
from pathlib import Path

import pytest

from perseus_dist.planner.access.address import AddressError, parse_host
from perseus_dist.planner.access.own_address import own_address
from perseus_dist.planner.access.shared_port import keep_shared_port, load_shared_port


@pytest.mark.parametrize("host", ["10.77.3.1", "fd00::1"])
def test_the_certificate_is_of_the_address_and_trusted_by_itself(tmp_path: Path, host: str) -> None:
    shared = load_shared_port(tmp_path, host)
    assert shared.port == 0
    trusting = ssl.create_default_context(cadata=shared.certificate)
    assert len(trusting.get_ca_certs()) == 1
    (tmp_path / "pem").write_text(shared.certificate + shared.key)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tmp_path / "pem")
    assert replace(shared, port=7).address == ("10.77.3.1:7" if "." in host else "[fd00::1]:7")


def test_a_planner_that_takes_anothers_place_is_found_and_believed(tmp_path: Path) -> None:
    first = replace(load_shared_port(tmp_path, "10.77.3.1"), port=4711)
    keep_shared_port(tmp_path, first)
    assert load_shared_port(tmp_path, "10.77.3.1") == first
    assert (tmp_path / "shared.json").stat().st_mode & 0o777 == 0o600
    other = load_shared_port(tmp_path, "10.77.3.2")
    assert (other.host, other.port) == ("10.77.3.2", 0)
    assert other.certificate != first.certificate


def test_what_is_kept_and_damaged_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "shared.json").write_text("{")
    assert load_shared_port(tmp_path, "10.77.3.1").port == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "0.0.0.0", "no such host", "", "x" * 300])
def test_a_host_that_leads_nowhere_is_refused(host: str) -> None:
    with pytest.raises(AddressError, match="no address of this host"):
        own_address(host)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("node-0", "node-0", 0),
        ("node-0:50152", "node-0", 50152),
        ("10.0.0.1", "10.0.0.1", 0),
        ("fd00::1", "[fd00::1]", 0),
        ("[fd00::1]", "[fd00::1]", 0),
        ("[fd00::1]:7", "[fd00::1]", 7),
    ],
)
def test_a_host_with_or_without_a_port(text: str, host: str, port: int) -> None:
    address = parse_host(text)
    assert (address.host, address.port) == (host, port)


@pytest.mark.parametrize("text", ["", ":7", "node-0:", "node-0:70000", "node 0", "a:b:c"])
def test_what_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(AddressError, match="is no host"):
        parse_host(text)


def test_a_port_that_was_asked_for_is_taken(tmp_path: Path) -> None:
    keep_shared_port(tmp_path, replace(load_shared_port(tmp_path, "10.77.3.1"), port=4711))
    assert load_shared_port(tmp_path, "10.77.3.1", 4711).port == 4711
    assert load_shared_port(tmp_path, "10.77.3.1", 4712).port == 4712
