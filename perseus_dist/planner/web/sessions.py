"""Logins: a random name in a cookie for each, which the planner keeps in memory for some hours."""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from starlette.responses import Response

from perseus_dist.planner.access.refusal import too_many

LIFETIME_S = 12 * 3600.0
MAX_SESSIONS = 1024
MAX_SESSIONS_OF_TOKEN = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A login.

    Attributes:
        token_sha256: Of the token that was entered; what it opens is looked up at every request.
        uid: User whose process logged in. Cookies are sent to all ports of a host, so that on the loopback address
            another user's server might read one: there it is of use to the same user alone.
        until_s: [s] monotonic, when it ends.
    """

    token_sha256: str
    uid: int | None
    until_s: float


class Sessions:
    """Logins in force, bounded.

    Attributes:
        cookie: Its name; the port is in it, because cookies are of a host with all its ports.
    """

    def __init__(self, *, port: int, is_secure: bool, now_s: Callable[[], float] = time.monotonic) -> None:
        self.cookie = f"{'__Host-' if is_secure else ''}perseus-{port}"
        self._is_secure = is_secure
        self._now_s = now_s
        self._sessions: dict[str, Session] = {}

    def find(self, session_id: str, uid: int | None) -> Session | None:
        """A login in force; None where there is none of this name and user."""
        session = self._sessions.get(session_id)
        if session is None or session.uid != uid:
            return None
        if self._now_s() >= session.until_s:
            del self._sessions[session_id]
            return None
        return session

    def begin(self, response: Response, token_sha256: str, uid: int | None) -> None:
        """Log in: the cookie goes with a response.

        Raises:
            RefusalError: There are too many logins.
        """
        now_s = self._now_s()
        self._sessions = {name: one for name, one in self._sessions.items() if now_s < one.until_s}
        own = [name for name, one in self._sessions.items() if one.token_sha256 == token_sha256]
        for name in own[: max(0, len(own) - MAX_SESSIONS_OF_TOKEN + 1)]:  # the oldest of a token make room
            del self._sessions[name]
        if len(self._sessions) >= MAX_SESSIONS:
            raise too_many(f"{MAX_SESSIONS} logins are in force, no more can be; the oldest end within hours")
        session_id = secrets.token_urlsafe(32)
        self._sessions[session_id] = Session(token_sha256=token_sha256, uid=uid, until_s=now_s + LIFETIME_S)
        response.set_cookie(
            self.cookie,
            session_id,
            max_age=round(LIFETIME_S),
            httponly=True,
            samesite="strict",
            secure=self._is_secure,
        )

    def end(self, response: Response, session_id: str) -> None:
        """Forget a login, and have the browser drop its cookie."""
        self._sessions.pop(session_id, None)
        response.delete_cookie(self.cookie, httponly=True, samesite="strict", secure=self._is_secure)
