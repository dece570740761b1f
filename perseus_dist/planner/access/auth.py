"""Who may open which job: tokens, of which the planner keeps hashes alone, or users of this machine."""

import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from perseus_dist.errors import PerseusError
from perseus_dist.planner.access.private_file import write_private
from perseus_dist.rpc.connection import read_token

USER = "uid:"
"""Begins the name of an owner that is a user of this machine, and no token."""

_SCHEME = "bearer "
_OTHERS = 0o077


class TokenFileError(PerseusError):
    """An operator's token that cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who calls.

    Attributes:
        token_sha256: Hexadecimal; empty without a token.
        is_operator: Whether it is the operator's.
        uid: User id, where the planner needs no token and the call comes from its own machine.
    """

    token_sha256: str
    is_operator: bool
    uid: int | None = None

    @property
    def owner(self) -> str:
        """Whom a job that this caller registers belongs to: the token, else the user; empty for anybody."""
        return self.token_sha256 or self._user

    def may_open(self, owner: str) -> bool:
        """Whether a job is open to this caller."""
        is_own = owner in (self.token_sha256, self._user)  # hashes and user ids are no secrets
        return self.is_operator or not owner or is_own

    @property
    def _user(self) -> str:
        return "" if self.uid is None else f"{USER}{self.uid}"


def hash_token(token: str) -> str:
    """The hash of a token that is stored and compared."""
    return sha256(token.encode()).hexdigest()


def caller_from_metadata(metadata: Iterable[tuple[str, str | bytes]], operator_sha256: str) -> Caller:
    """Read ``authorization: Bearer TOKEN``; anything else counts as no token."""
    for key, value in metadata:
        if key == "authorization" and isinstance(value, str) and value[: len(_SCHEME)].lower() == _SCHEME:
            token_sha256 = hash_token(value[len(_SCHEME) :].strip())
            return Caller(
                token_sha256=token_sha256,
                is_operator=bool(operator_sha256) and hmac.compare_digest(token_sha256, operator_sha256),
            )
    return Caller(token_sha256="", is_operator=False)


def new_token() -> str:
    """A token that cannot be guessed."""
    return secrets.token_urlsafe(32)


def load_operator_token(path: Path) -> str:
    """The operator's token; made on the first start, readable by the planner's user alone.

    Raises:
        TokenFileError: Others may read it.
        ConnectionFileError: It cannot be read, or holds no token.
        OutputError: It cannot be written.
    """
    if not path.exists():
        write_private(path, f"{new_token()}\n")
    if path.stat().st_mode & _OTHERS:
        raise TokenFileError(f"{path}: others may read this token; run 'chmod 600 {path}', or delete it for a new one")
    return read_token(path)
