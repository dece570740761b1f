"""Whether the next stream goes by way of the node's relay, or to the planner itself. Pure; time is an argument.

```
 by relay --(the relay fails)--> direct --(its stream ends, or a minute later the relay answers)--> by relay
    |                              ^
    +--(it finds no planner for GRACE_S; back at once if there is none to be found directly either)
```
"""

import math
import os
import random
from pathlib import Path

GRACE_S = 5.0
"""The planner may be gone as long as this before a relay that says so is taken for the culprit."""

_FIRST_RETRY_S = 60.0
_LONGEST_RETRY_S = 1800.0
_OTHERS_MAY_WRITE = 0o002


class RelayRoute:
    """Remembers how the relay has done.

    Args:
        spread: Of the waiting times before the relay is tried again, so that ranks do not come back all at once.
    """

    def __init__(self, spread: float | None = None) -> None:
        self._spread = random.uniform(0.5, 1.5) if spread is None else spread
        self._retry_s = _FIRST_RETRY_S
        self._not_before_s = -math.inf
        self._planner_gone_s: float | None = None  # since when, by the relay's word
        self._is_suspect = False  # whether that is all that is wrong with it

    def is_relayed(self, now_s: float) -> bool:
        """Whether the next stream goes by way of the relay."""
        return now_s >= self._not_before_s

    def retry_in_s(self, now_s: float) -> float:
        """[s] until the relay is to be tried again; 0 when it may be."""
        return max(self._not_before_s - now_s, 0.0)

    def note_accepted(self) -> None:
        """The planner has taken the rank in by way of the relay."""
        self._retry_s, self._planner_gone_s = _FIRST_RETRY_S, None

    def note_failure(self, now_s: float) -> None:
        """The relay is not there, has died, hangs, or refuses."""
        self._not_before_s = now_s + self._spread * self._retry_s
        self._retry_s = min(2 * self._retry_s, _LONGEST_RETRY_S)
        self._planner_gone_s, self._is_suspect = None, False

    def note_planner_gone(self, now_s: float) -> None:
        """The relay says that it has no planner. Beyond ``GRACE_S`` the next stream is a direct one."""
        if self._planner_gone_s is None:
            self._planner_gone_s = now_s
        elif now_s - self._planner_gone_s >= GRACE_S:
            self.note_failure(now_s)
            self._is_suspect = True

    def note_no_direct_way(self) -> None:
        """Neither has this rank found the planner: the relay is tried again first."""
        if self._is_suspect:
            self._not_before_s, self._retry_s, self._is_suspect = -math.inf, _FIRST_RETRY_S, False


def why_not(path: Path, *, has_token: bool) -> str:
    """Why the socket at a path is not to be trusted with a stream and its token, in a sentence; empty if it is.

    Args:
        path: Of the socket.
        has_token: Whether the rank has one; without it the planner would take it for the relay's user.
    """
    try:
        socket, folder = path.stat(), path.parent.stat()
    except OSError as error:
        return f"it is not there ({error.strerror})"
    if folder.st_mode & _OTHERS_MAY_WRITE:
        return "everyone may write to its folder"
    if not has_token and socket.st_uid != os.geteuid():
        return f"it is user {socket.st_uid}'s, and this job has no token"
    return ""
