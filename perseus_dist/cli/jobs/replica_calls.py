"""Calls on a planner that may be one of several replicas: to the address that answers, and on to the job's owner."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import grpc

    from perseus_dist.rpc.v1.planner_pb2_grpc import PlannerStub

_MAX_REDIRECTS = 4
_TAKEOVER_S = 10.0  # in which another replica has taken the jobs of a dead one
_PAUSE_S = 0.3


class ReplicaCalls:
    """Has the methods of ``PlannerStub``; each call begins at the first address.

    Args:
        addresses: Each ``HOST:PORT``; of replicas of one planner if there are several.
        open_channel: Opens a channel to an address.
    """

    def __init__(self, addresses: Sequence[str], open_channel: "Callable[[str], grpc.Channel]") -> None:
        self._addresses = addresses
        self._open_channel = open_channel
        self._stubs: dict[str, PlannerStub] = {}
        self._cleanup = ExitStack()

    def close(self) -> None:
        """Close all channels."""
        self._cleanup.close()

    def __getattr__(self, method: str) -> Callable[..., Any]:
        """The method of that name."""
        call = self._follow if method == "WatchJob" else self._ask
        return lambda request, **options: call(method, request, options)

    def _ask(self, method: str, request: object, options: dict[str, Any]) -> Any:
        import grpc

        route = _Route(self._addresses)
        while True:
            try:
                return getattr(self._stub(route.address), method)(request, **options)
            except grpc.RpcError as error:
                if not route.goes_on(error):
                    raise

    def _follow(self, method: str, request: object, options: dict[str, Any]) -> Iterator[Any]:
        """Where there are several replicas, the job's next owner goes on when one has died."""
        import grpc

        route, until_s, has_replicas = _Route(self._addresses), 0.0, len(self._addresses) > 1
        while True:
            try:
                for answer in getattr(self._stub(route.address), method)(request, **options):
                    until_s = time.monotonic() + _TAKEOVER_S
                    route.num_redirects = 0
                    yield answer
                return
            except grpc.RpcError as error:
                if route.goes_on(error):
                    has_replicas = True
                    continue
                is_away = error.code() is grpc.StatusCode.UNAVAILABLE
                if not (is_away and has_replicas and time.monotonic() < until_s):
                    raise
            time.sleep(_PAUSE_S)
            route = _Route(self._addresses)

    def _stub(self, address: str) -> "PlannerStub":
        from perseus_dist.rpc.v1.planner_pb2_grpc import PlannerStub

        if address not in self._stubs:
            channel = self._cleanup.enter_context(self._open_channel(address))
            self._stubs[address] = PlannerStub(channel)  # type: ignore[no-untyped-call]  # generated
        return self._stubs[address]


class _Route:
    """The addresses of one call, one after the other.

    Attributes:
        address: To ask next.
        num_redirects: Answers that have named another replica, since the last one that named none.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        self.address, *self._others = addresses
        self.num_redirects = 0

    def goes_on(self, error: "grpc.RpcError") -> bool:
        """Whether there is an address to ask after such an answer."""
        import grpc

        from perseus_dist.rpc.connection import OWNER_KEY

        owner = next((str(one.value) for one in error.trailing_metadata() or () if one.key == OWNER_KEY), "")
        if owner and self.num_redirects < _MAX_REDIRECTS:
            self.num_redirects += 1
            self.address = owner
            return True
        if error.code() is grpc.StatusCode.UNAVAILABLE and self._others:
            self.address = self._others.pop(0)
            return True
        return False
