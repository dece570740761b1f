"""How many refusals of each caller are recorded, so that none fills the disk or hides another's."""

from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_network
from urllib.parse import unquote

AT_ONCE = 60
PER_S = 1.0
MAX_CALLERS = 200
MAX_TOKENS_OF_HOST = 10

_IPV6_SITE_BITS = 64  # a machine may have as many addresses of its site as it likes
_UNPROVEN = ("unknown", "job token ")  # a caller makes these up
_IDLE_S = AT_ONCE / PER_S
_Key = tuple[str, str]  # host, where the identity proves nothing, and identity; either may be empty
_REST: _Key = ("", "")


@dataclass(slots=True)
class _Bucket:
    left: float
    at_s: float
    num_left_out: int = 0


class RefusalAllowance:
    """Sixty refusals at once and one a second for each caller.

    A caller is an identity that the planner knows, such as ``token ci`` or ``user 1000``. Tokens can be made up: those
    of one host are callers of their own up to a number, and one together beyond it; so are all callers beyond a number
    of those who were refused in the last minute. So memory and disk are bounded.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """Begin.

        Args:
            clock: Unix time in seconds.
        """
        self._clock = clock
        self._buckets: dict[_Key, _Bucket] = {}

    def take(self, identity: str, peer: str) -> int | None:
        """How many refusals of this caller before this one were left out; None where this one is left out too.

        Args:
            identity: As the audit record has it.
            peer: Address of the other end, as gRPC writes it.
        """
        now_s = self._clock()
        host = _host(peer) if identity.startswith(_UNPROVEN) else ""
        bucket = self._buckets.setdefault(self._key(host, identity, now_s), _Bucket(left=AT_ONCE, at_s=now_s))
        bucket.left = min(bucket.left + max(now_s - bucket.at_s, 0.0) * PER_S, AT_ONCE)
        bucket.at_s = now_s
        if bucket.left < 1.0:
            bucket.num_left_out += 1
            return None
        bucket.left -= 1.0
        left_out, bucket.num_left_out = bucket.num_left_out, 0
        return left_out

    def _key(self, host: str, identity: str, now_s: float) -> _Key:
        if (host, identity) in self._buckets:
            return host, identity
        if self._has_room(host) or (self._forget_idle(now_s) and self._has_room(host)):
            return host, identity
        together = (host, "")
        has_place = together in self._buckets or len(self._buckets) < MAX_CALLERS
        return together if has_place else _REST

    def _has_room(self, host: str) -> bool:
        if len(self._buckets) >= MAX_CALLERS:
            return False
        return not host or sum(key[0] == host for key in self._buckets) < MAX_TOKENS_OF_HOST

    def _forget_idle(self, now_s: float) -> bool:
        """Forget callers who were not refused for a minute; those of theirs that were left out count for the rest."""
        idle = [key for key, bucket in self._buckets.items() if not 0.0 <= now_s - bucket.at_s < _IDLE_S]
        num_left_out = sum(self._buckets.pop(key).num_left_out for key in idle)
        if num_left_out:
            self._buckets.setdefault(_REST, _Bucket(left=AT_ONCE, at_s=now_s)).num_left_out += num_left_out
        return bool(idle)


def _host(peer: str) -> str:
    family, _, address = unquote(peer).partition(":")
    host = address.rpartition(":")[0].strip("[]")
    if family == "ipv6":
        try:
            return f"{family}:{ip_network((host.partition('%')[0], _IPV6_SITE_BITS), strict=False)}"
        except ValueError:
            pass
    return f"{family}:{host or address}"
