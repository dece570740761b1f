"""Who may open which job, and where a planner may listen."""

import os
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from perseus_dist.cli import main
from perseus_dist.errors import OutputError
from perseus_dist.planner.access.access import Access
from perseus_dist.planner.access.address import Address, AddressError, parse_address
from perseus_dist.planner.access.auth import (
    Caller,
    TokenFileError,
    load_operator_token,
    new_token,
)
from perseus_dist.planner.access.grants import Role
from perseus_dist.planner.access.private_file import write_private
from perseus_dist.rpc.connection import ConnectionFileError, authorization, read_token

ACCESS = Access("operator")
JOB = "llama"


def caller(token: str) -> Caller:
    return ACCESS.caller(authorization(token))


def may_change(token: str, owner: str) -> bool:
    return caller(token).may(Role.OPERATE, JOB, owner)


def test_a_job_opens_for_its_own_token_and_the_operators() -> None:
    owner = caller("mine").token_sha256
    assert may_change("mine", owner)
    assert may_change("operator", owner)
    assert not may_change("other", owner)
    assert not may_change("", owner)


def test_a_job_that_came_without_a_token_is_open() -> None:
    assert may_change("", "")
    assert may_change("any", "")


def test_nobody_is_operator_without_an_operators_token() -> None:
    assert not Access("").caller(()).is_operator
    assert not Access("").caller(authorization("x")).is_operator


@pytest.mark.parametrize(
    "metadata",
    [
        (),
        (("authorization", "Basic operator"),),
        (("authorization", b"Bearer operator"),),
        (("x-authorization", "Bearer operator"),),
        (("authorization", "operator"),),
    ],
)
def test_what_is_no_bearer_token_counts_as_none(metadata: tuple[tuple[str, str | bytes], ...]) -> None:
    assert ACCESS.caller(metadata) == Caller(token_sha256="", is_operator=False)


def test_the_scheme_is_read_in_any_case() -> None:
    assert ACCESS.caller((("authorization", "bearer operator"),)).is_operator


def test_tokens_differ() -> None:
    assert new_token() != new_token()
    assert len(new_token()) >= 40


def test_the_operators_token_is_made_once_for_its_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "operator-token"
    token = load_operator_token(path)
    assert load_operator_token(path) == token == read_token(path)
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o604)
    with pytest.raises(TokenFileError, match="chmod 600"):
        load_operator_token(path)


@pytest.mark.parametrize("content", [b"", b"\n", b"two words\n", "tökén".encode(), b"a\x00b"])
def test_a_file_without_a_token_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(ConnectionFileError, match="one word of ASCII"):
        read_token(path)
    with pytest.raises(ConnectionFileError, match="cannot be read"):
        read_token(tmp_path / "missing")


def test_private_files_replace_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "address.json"
    path.write_text("old")
    path.chmod(0o644)
    write_private(path, "new")
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(OutputError, match="existing, writable folder"):
        write_private(tmp_path / "missing" / "file", "")


@pytest.mark.parametrize(
    ("text", "address", "is_loopback"),
    [
        ("127.0.0.1:50151", Address("127.0.0.1", 50151), True),
        ("127.8.9.1:0", Address("127.8.9.1", 0), True),
        ("[::1]:1", Address("[::1]", 1), True),
        ("localhost:65535", Address("localhost", 65535), True),
        ("0.0.0.0:1", Address("0.0.0.0", 1), False),
        ("[::]:1", Address("[::]", 1), False),
        ("localhost.example.org:1", Address("localhost.example.org", 1), False),
    ],
)
def test_addresses(text: str, address: Address, is_loopback: bool) -> None:  # noqa: FBT001
    assert parse_address(text) == address
    assert str(address) == text
    assert address.is_loopback == is_loopback


@pytest.mark.parametrize(
    "text", ["", "50151", ":50151", "host", "host:", "host:x", "host:65536", "::1:1", "unix:/x", "a b:1"]
)
def test_other_text_is_no_address(text: str) -> None:
    with pytest.raises(AddressError, match="expected HOST:PORT"):
        parse_address(text)


def test_a_full_disk_ends_the_planner_as_what_may_be_over_later(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "none", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("mounting a small file system takes root")
    try:
        state = tmp_path / "state"
        state.mkdir()
        with (tmp_path / "others").open("wb", buffering=0) as others, suppress(OSError):
            while others.write(bytes(4096)):
                pass
        assert main(["planner", "--bind", "127.0.0.1:0", "--state-dir", str(state)]) == 1
        said = capfd.readouterr().err
        expected = f"{state}/operator-token: cannot be written (No space left on device); make room there"
        assert said == f"perseus-dist: {expected}\n"
        assert list(state.iterdir()) == []
        (tmp_path / "others").unlink()
        assert load_operator_token(state / "operator-token")
    finally:
        subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)
