"""Who calls, and what is open to them: tokens, of which the planner keeps hashes alone, certificates, or users."""

import secrets
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from perseus_dist.errors import NoRoomError, PerseusError, TransientError
from perseus_dist.planner.access.grants import Grant, Role
from perseus_dist.planner.access.private_file import write_private
from perseus_dist.rpc.connection import read_token

USER = "uid:"
"""Begins the name of an owner that is a user of this machine, and no token."""

CERTIFICATE = "certificate:"
"""Begins the name of an owner that is known by a certificate, and no token."""

_SCHEME = "bearer "
_OTHERS = 0o077
_SHOWN_DIGITS = 8


_WILDCARDS = frozenset("*?[")


class TokenFileError(PerseusError):
    """An operator's token that cannot be used."""


class NoRoomForTokenError(TransientError):
    """A disk that has no room for an operator's token, and may have later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who calls.

    Attributes:
        token_sha256: Hexadecimal; empty without a token.
        is_operator: Whether it is the operator's.
        uid: User id, where the planner needs no token and the call comes from its own machine.
        grants: Rights of its token and of its certificate that count now.
        peer: Address of the other end, as gRPC writes it.
    """

    token_sha256: str
    is_operator: bool
    uid: int | None = None
    grants: tuple[Grant, ...] = ()
    peer: str = ""

    @property
    def owner(self) -> str:
        """Whom a job that this caller registers belongs to: token, certificate, or user; empty for anybody."""
        return self.token_sha256 or self._certificate or self._user

    @property
    def identity(self) -> str:
        """The name that the audit record knows it by."""
        if self.is_operator:
            return "operator"
        for grant in self.grants:
            return f"certificate {grant.certificate}" if grant.certificate else f"token {grant.name}"
        if self.token_sha256:
            return f"job token {self.token_sha256[:_SHOWN_DIGITS]}"
        return "unknown" if self.uid is None else f"user {self.uid}"

    def may(self, role: Role, job_id: str, owner: str) -> bool:
        """Whether a call of that role is open to it.

        Args:
            role: That includes the call.
            job_id: Of the job.
            owner: Of the job, as the property of its first rank's caller had it; empty where anybody owns it.
        """
        if self.is_operator or not owner:
            return True
        is_own = owner in (self.token_sha256, self._certificate, self._user)  # hashes and user ids are no secrets
        return is_own or any(grant.role >= role and grant.covers(job_id) for grant in self.grants)

    def may_limit(self, patterns: Collection[str]) -> bool:
        """Whether it may set a power budget for all jobs of these patterns, those that are to come included.

        Args:
            patterns: Of job names; none for all jobs. Each has to be one of its grant's own, or a name that it covers.
        """
        if self.is_operator:
            return True
        grants = [grant for grant in self.grants if grant.role >= Role.OPERATE]
        if any(not grant.jobs for grant in grants):
            return True
        return bool(patterns) and all(
            any(pattern in grant.jobs or (not _WILDCARDS & {*pattern} and grant.covers(pattern)) for grant in grants)
            for pattern in patterns
        )

    @property
    def may_operate(self) -> bool:
        """Whether it may change anything at all."""
        return self.is_operator or any(grant.role >= Role.OPERATE for grant in self.grants)

    @property
    def sees_all_jobs(self) -> bool:
        """Whether every job is shown to it, those that are to come included."""
        return self.is_operator or any(not grant.jobs for grant in self.grants)

    def may_start(self, job_id: str) -> bool:
        """Whether it may register a job that is not there yet: without grants it may, else these decide."""
        return not self.grants or any(grant.role >= Role.OPERATE and grant.covers(job_id) for grant in self.grants)

    @property
    def is_admin(self) -> bool:
        """Whether it may give and take rights."""
        return self.is_operator or any(grant.role is Role.ADMIN for grant in self.grants)

    @property
    def _certificate(self) -> str:
        return next((f"{CERTIFICATE}{grant.certificate}" for grant in self.grants if grant.certificate), "")

    @property
    def _user(self) -> str:
        return "" if self.uid is None else f"{USER}{self.uid}"


def hash_token(token: str) -> str:
    """The hash of a token that is stored and compared."""
    return sha256(token.encode()).hexdigest()


def token_hash_in(metadata: Iterable[tuple[str, str | bytes]]) -> str:
    """The hash of the token in ``authorization: Bearer TOKEN``; empty where anything else stands."""
    for key, value in metadata:
        if key == "authorization" and isinstance(value, str) and value[: len(_SCHEME)].lower() == _SCHEME:
            return hash_token(value[len(_SCHEME) :].strip())
    return ""


def new_token() -> str:
    """A token that cannot be guessed."""
    return secrets.token_urlsafe(32)


def load_operator_token(path: Path) -> str:
    """The operator's token; made on the first start, readable by the planner's user alone.

    Raises:
        TokenFileError: Others may read it.
        ConnectionFileError: It cannot be read, or holds no token.
        OutputError: It cannot be written.
        NoRoomForTokenError: Its disk is full.
    """
    if not path.exists():
        try:
            write_private(path, f"{new_token()}\n")
        except NoRoomError as error:
            raise NoRoomForTokenError(str(error)) from error
    if path.stat().st_mode & _OTHERS:
        raise TokenFileError(f"{path}: others may read this token; run 'chmod 600 {path}', or delete it for a new one")
    return read_token(path)
