"""Basic authentication of scrapes: users and bcrypt hashes in a file, as ``htpasswd -B`` writes them.

bcrypt, because Prometheus's own web configuration takes the same hashes, and ``htpasswd`` makes them. It is slow on
purpose: one check runs at a time, so that guessing costs the planner no more than a core, and what was found right is
remembered, so that scrapes cost nothing. Nothing of a password is kept but a keyed hash.
"""

import base64
import binascii
import hmac
import logging
import re
import secrets
import threading
from hashlib import sha256
from pathlib import Path

import bcrypt

from perseus_dist.errors import PerseusError

_LINE = re.compile(r"(?P<user>[^:\s]+):(?P<hash>\$2[aby]\$(?P<cost>\d\d)\$[./A-Za-z0-9]{53})")
_MAX_COST = 15  # some seconds; each step doubles it
_MAX_BYTES = 72  # of a password that bcrypt looks at
_SCHEME = "basic "
_MAX_REMEMBERED = 64

_log = logging.getLogger(__name__)


class PasswordFileError(PerseusError):
    """A password file that cannot be used."""


class PasswordFile:
    """Users and their hashes, read again when the file changes; a file that cannot be used then changes nothing.

    Any thread may call.
    """

    def __init__(self, path: Path) -> None:
        """Read it.

        Raises:
            PasswordFileError: It cannot be read, or holds something else than ``user:hash`` lines.
        """
        self._path = path
        self._seen = _signature(path)
        self._users = _read(path)
        self._key = secrets.token_bytes(32)
        self._unknown = bcrypt.hashpw(secrets.token_hex(16).encode(), bcrypt.gensalt(_cost_of(self._users)))
        self._right: set[bytes] = set()
        self._checking = threading.Lock()
        self._following = threading.Lock()

    def admits(self, authorization: str) -> bool:
        """Whether an ``Authorization`` header names a user and that user's password."""
        self._follow()
        mark = hmac.digest(self._key, authorization.encode("latin-1", "replace"), sha256)
        if any(hmac.compare_digest(mark, right) for right in self._right.copy()):
            return True
        user, password = _credentials(authorization)
        if not password or len(password) > _MAX_BYTES:
            return False
        with self._checking:
            users = self._users
            # A user that there is not takes as long as one that there is.
            is_right = bcrypt.checkpw(password, users.get(user, self._unknown)) and user in users
        with self._following:
            if is_right and users is self._users and len(self._right) < _MAX_REMEMBERED:
                self._right.add(mark)
        return is_right

    def _follow(self) -> None:
        with self._following:
            seen = _signature(self._path)
            if seen == self._seen:
                return
            self._seen = seen  # also of a file that cannot be used: it is complained about once
            try:
                self._users = _read(self._path)
            except PasswordFileError as error:
                _log.error("passwords for metrics stay as they were: %s", error)
                return
            self._right.clear()
        _log.info("passwords for metrics read again from %s", self._path)


def _credentials(authorization: str) -> tuple[str, bytes]:
    """User and password; both empty where the header is something else."""
    if authorization[: len(_SCHEME)].lower() != _SCHEME:
        return "", b""
    try:
        user, colon, password = base64.b64decode(authorization[len(_SCHEME) :].strip(), validate=True).partition(b":")
        return (user.decode(), password) if colon and b"\0" not in password else ("", b"")
    except (binascii.Error, ValueError):
        return "", b""


def _signature(path: Path) -> tuple[int, int, int] | None:
    """Inode, size and time of change; None where it is gone."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def _read(path: Path) -> dict[str, bytes]:
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise _unreadable(path, error) from error
    except UnicodeDecodeError:
        lines = ["\0"]
    users = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        found = _LINE.fullmatch(line.strip())
        if found is None or not 4 <= int(found["cost"]) <= _MAX_COST:
            raise PasswordFileError(
                f"{path}: line {number} is not USER:HASH with a bcrypt hash of cost 4 to {_MAX_COST}; "
                "'htpasswd -nB USER' prints one"
            )
        users[found["user"]] = found["hash"].encode()
    if not users:
        raise PasswordFileError(f"{path}: holds no user; 'htpasswd -nB USER' prints a line for it")
    return users


def _unreadable(path: Path, error: OSError) -> PasswordFileError:
    return PasswordFileError(f"{path}: cannot be read ({error.strerror}); name a file of USER:HASH lines")


def _cost_of(users: dict[str, bytes]) -> int:
    return max(int(hashed.split(b"$")[2]) for hashed in users.values())
