"""Who looks at the page, and what they may: one function for looking, one for changing."""

import hmac
import pwd
import secrets
from contextlib import suppress
from dataclasses import dataclass, replace

from starlette.requests import Request

from perseus_dist.planner.access.access import Access
from perseus_dist.planner.access.address import Address
from perseus_dist.planner.access.auth import Caller, hash_token
from perseus_dist.planner.access.grants import Role
from perseus_dist.planner.access.peer import peer_uid
from perseus_dist.planner.access.refusal import unauthenticated
from perseus_dist.planner.runtime.job_actor import JobActor
from perseus_dist.planner.runtime.operator_calls import owner_of
from perseus_dist.planner.web.connections import certificate_names
from perseus_dist.planner.web.sessions import Sessions


def may_view(caller: Caller, actor: JobActor) -> bool:
    """Whether a job is shown to a caller."""
    return caller.may(Role.VIEW, actor.job.job_id, owner_of(actor))


def may_change(caller: Caller, actor: JobActor) -> bool:
    """Whether a caller may set a job's target; ``OperatorCalls`` judges those who try."""
    return caller.may(Role.OPERATE, actor.job.job_id, owner_of(actor))


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """A request's caller.

    Attributes:
        session_id: Of a login; empty without one.
        has_header: Whether the token came in a header, which no other site can make a browser send.
    """

    caller: Caller
    session_id: str = ""
    has_header: bool = False

    @property
    def is_known(self) -> bool:
        """Whether jobs may be open to the caller: by a token, or as a user of this machine."""
        return bool(self.caller.owner) or self.caller.is_operator

    @property
    def label(self) -> str:
        """The caller in a few words, for the page's head."""
        if not self.caller.token_sha256 and self.caller.uid is not None:
            with suppress(KeyError):
                return f"user {pwd.getpwuid(self.caller.uid).pw_name}"
        return self.caller.identity


class WebAccess:
    """Finds the caller of a request by the rules of gRPC: token and certificate, else a loopback connection's user."""

    def __init__(self, *, access: Access, needs_token: bool, address: Address, sessions: Sessions) -> None:
        """Begin.

        Args:
            access: Tokens and rights.
            needs_token: Whether a user id alone does not identify a caller.
            address: Where the page is served.
            sessions: Of those who entered a token.
        """
        self._access = access
        self._needs_token = needs_token
        self._address = address
        self._key = secrets.token_bytes(32)
        self.sessions = sessions

    def visitor(self, request: Request) -> Visitor:
        """The caller of a request, with the rights that count now.

        Raises:
            RefusalError: The token was revoked, or has expired.
        """
        uid = self.uid_of(request)
        header = request.headers.get("authorization")
        if header is not None:
            caller = self._access.caller([("authorization", header)], certificate_names(request), peer_of(request))
            return Visitor(caller=self._as_user(caller, uid), has_header=bool(caller.token_sha256))
        session_id = request.cookies.get(self.sessions.cookie, "")
        session = self.sessions.find(session_id, uid)
        token_sha256 = session.token_sha256 if session else ""
        caller = self._access.caller_of_token(token_sha256, certificate_names(request), peer_of(request))
        return Visitor(caller=self._as_user(caller, uid), session_id=session_id if session else "")

    def without_token(self, request: Request) -> Visitor:
        """The same whatever token came along: for those whose token counts no more."""
        caller = self._access.caller_of_token("", certificate_names(request), peer_of(request))
        return Visitor(caller=self._as_user(caller, self.uid_of(request)))

    def caller_of(self, token: str, request: Request) -> Caller:
        """The caller who enters a token, with the token's rights alone.

        Raises:
            RefusalError: The token was revoked, or has expired.
        """
        return self._access.caller_of_token(hash_token(token), (), peer_of(request))

    def record_refusal(self, caller: Caller, action: str, job_id: str, reason: str) -> None:
        """Write a refusal into the audit record."""
        self._access.audit.refused(caller.identity, caller.peer, action, job=job_id, reason=reason)

    def csrf_token(self, visitor: Visitor) -> str:
        """A token that forms carry, which another site cannot know; of this visitor, in this life of the planner."""
        of = visitor.session_id or visitor.caller.owner
        return hmac.digest(self._key, of.encode(), "sha256").hex()

    def require_form(self, visitor: Visitor, csrf_token: str) -> None:
        """Refuse a form that was not got from this page.

        Raises:
            RefusalError: Its token is another one.
        """
        if not visitor.has_header and not hmac.compare_digest(csrf_token.encode(), self.csrf_token(visitor).encode()):
            raise unauthenticated("this form is of an earlier login or of another site: load the page again")

    def uid_of(self, request: Request) -> int | None:
        """User at the other end of a loopback connection, whether or not that is enough to be known."""
        return peer_uid(peer_of(request), self._address) if self._address.is_loopback else None

    def _as_user(self, caller: Caller, uid: int | None) -> Caller:
        return caller if self._needs_token else replace(caller, uid=uid)


def peer_of(request: Request) -> str:
    """Address of the other end, as gRPC writes it."""
    if request.client is None:
        return ""
    host, port = request.client
    return f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"
