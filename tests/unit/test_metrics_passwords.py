"""Passwords of scrapes: who is admitted, which files are refused, and a file that changes under a running planner."""

import base64
import logging
from pathlib import Path

import bcrypt
import pytest

from perseus_dist.planner.metrics.basic_auth import PasswordFile, PasswordFileError

HASH = bcrypt.hashpw(
    b"secret", b"$2b$04$abcdefghijklmnopqrstuu"
).decode()  # the same in all processes, whose tests are named by it
OTHER = bcrypt.hashpw(b"other", b"$2b$04$zyxwvutsrqponmlkjihgfu").decode()


def basic(credentials: bytes) -> str:
    return f"Basic {base64.b64encode(credentials).decode()}"


def change(path: Path, text: str) -> None:
    """As an editor does: another file of that name."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "passwords"
    path.write_text(f"# of Prometheus\n\nprometheus:{HASH}\n")
    return path


def test_a_user_with_the_right_password_is_admitted_again_and_again(path: Path) -> None:
    passwords = PasswordFile(path)
    assert passwords.admits(basic(b"prometheus:secret"))
    assert passwords.admits(basic(b"prometheus:secret"))
    assert passwords.admits(basic(b"prometheus:secret").replace("Basic", "BASIC"))


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer secret",
        "Basic ***",
        "Basic \u20ac",
        basic(b"prometheus"),
        basic(b"prometheus:"),
        basic(b"prometheus:wrong"),
        basic(b"prometheus:secret\0"),
        basic(b"prometheus:" + b"s" * 73),
        basic(b"\xff:secret"),
        basic(b"nobody:secret"),
    ],
)
def test_any_other_header_is_refused(path: Path, header: str) -> None:
    assert not PasswordFile(path).admits(header)


def test_a_file_that_changes_counts_at_once(path: Path) -> None:
    passwords = PasswordFile(path)
    assert passwords.admits(basic(b"prometheus:secret"))
    change(path, f"prometheus:{OTHER}\n")
    assert not passwords.admits(basic(b"prometheus:secret"))
    assert passwords.admits(basic(b"prometheus:other"))


def test_a_file_that_is_spoilt_or_gone_changes_nothing_and_is_complained_about_once(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    passwords = PasswordFile(path)
    with caplog.at_level(logging.ERROR):
        change(path, "prometheus:secret\n")
        assert passwords.admits(basic(b"prometheus:secret"))
        assert passwords.admits(basic(b"prometheus:secret"))
        assert [record.message.partition(": ")[0] for record in caplog.records] == [
            "passwords for metrics stay as they were"
        ]
        path.unlink()
        assert passwords.admits(basic(b"prometheus:secret"))
    assert "cannot be read (No such file or directory)" in caplog.records[-1].message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"prometheus:secret\n", "line 1 is not USER:HASH with a bcrypt hash of cost 4 to 15"),
        (f"prometheus:{HASH.replace('$04$', '$16$')}\n".encode(), "line 1 is not USER:HASH"),
        (f"prometheus:{HASH.replace('$04$', '$03$')}\n".encode(), "line 1 is not USER:HASH"),
        (b"# nobody\n\n", "holds no user; 'htpasswd -nB USER' prints a line for it"),
        (b"\xff\xfe", "line 1 is not USER:HASH"),
    ],
)
def test_a_file_without_users_is_refused_with_its_line(path: Path, text: bytes, expected: str) -> None:
    path.write_bytes(text)
    with pytest.raises(PasswordFileError, match=r"^\S+: ") as refused:
        PasswordFile(path)
    assert expected in str(refused.value)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PasswordFileError, match=r"cannot be read \(Is a directory\); name a file of USER:HASH lines"):
        PasswordFile(tmp_path)
