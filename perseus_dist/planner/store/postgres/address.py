"""Where a PostgreSQL database is, without its password: from a URL that libpq reads."""

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from perseus_dist.errors import PerseusError

SCHEMES = ("postgresql", "postgres")

_SECRETS = ("password", "sslpassword")
_MAX_PASSWORD_BYTES = 4096


class PostgresUrlError(PerseusError):
    """A URL or a password file that cannot be used."""


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    """A database.

    Attributes:
        url: Without a password; libpq adds what it lacks from its own variables and defaults.
        password_file: Read at each connection, so that a new password needs no restart; None leaves the password to
            libpq (``PGPASSFILE``, ``~/.pgpass``).
    """

    url: str
    password_file: Path | None = None

    def password(self) -> str | None:
        """The password; None where libpq is to find it.

        Raises:
            PostgresUrlError: The file cannot be read, or is not private.
        """
        if self.password_file is None:
            return None
        try:
            with self.password_file.open("rb") as file:
                if os.fstat(file.fileno()).st_mode & 0o007:
                    raise PostgresUrlError(
                        f"{self.password_file}: every user of this machine can use it; run 'chmod 600 "
                        f"{self.password_file}'"
                    )
                text = file.read(_MAX_PASSWORD_BYTES + 1)
        except OSError as error:
            raise PostgresUrlError(f"{self.password_file}: cannot be read ({error.strerror})") from error
        try:
            lines = text.decode().splitlines()
        except UnicodeDecodeError:
            lines = []
        if len(lines) != 1 or not lines[0] or len(text) > _MAX_PASSWORD_BYTES or "\0" in lines[0]:
            raise PostgresUrlError(f"{self.password_file}: expected one line, the password of the database's user")
        return lines[0]


def check_url(text: str) -> str:
    """A URL without a password.

    Raises:
        PostgresUrlError: It is no PostgreSQL URL, or holds a password; the error repeats neither.
    """
    try:
        url = urlsplit(text)
        query = parse_qs(url.query, keep_blank_values=True)
        has_secret = url.password is not None or any(name in query for name in _SECRETS)
    except ValueError:
        raise PostgresUrlError("cannot be read; expected postgresql://USER@HOST:PORT/DATABASE") from None
    if has_secret:
        raise PostgresUrlError(
            "holds a password, which process lists and logs show; leave it out, and name its file with "
            "--store-password-file or PGPASSFILE"
        )
    if url.scheme not in SCHEMES or "://" not in text:
        raise PostgresUrlError("saw no PostgreSQL URL; expected postgresql://USER@HOST:PORT/DATABASE")
    return text
