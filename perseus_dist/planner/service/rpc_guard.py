"""Guard of every call: authenticates the caller, and maps failures to statuses."""

import asyncio
import logging
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any, TypeVar

import grpc

from perseus_dist.planner.access.address import Address
from perseus_dist.planner.access.auth import Caller, caller_from_metadata
from perseus_dist.planner.access.peer import peer_uid
from perseus_dist.planner.access.refusal import RefusalError, invalid, unauthenticated
from perseus_dist.planner.runtime.counters import Counters
from perseus_dist.rpc.violations import InvalidMessageError

Context = grpc.aio.ServicerContext[Any, bytes]
"""Of a call in plain bytes: what gRPC itself cannot decode, it answers with UNKNOWN."""

_Reply = TypeVar("_Reply")

_log = logging.getLogger(__name__)


class RpcGuard:
    """Reads tokens and turns what handlers raise into the contract's statuses; never UNKNOWN."""

    address: Address | None = None
    """Where the planner listens, as soon as it does."""

    def __init__(self, *, operator_sha256: str, needs_token: bool, counters: Counters) -> None:
        """Begin.

        Args:
            operator_sha256: Hash of the operator's token; empty if there is none.
            needs_token: Whether a call without any token is refused; else callers are known by their user id as well.
            counters: The planner's.
        """
        self._operator_sha256 = operator_sha256
        self._needs_token = needs_token
        self._counters = counters

    def caller(self, context: Context) -> Caller:
        """Who calls.

        Raises:
            RefusalError: A token is needed and there is none.
        """
        caller = caller_from_metadata(context.invocation_metadata() or (), self._operator_sha256)
        if self._needs_token and not caller.token_sha256:
            raise unauthenticated("this planner wants a token: send the metadata 'authorization: Bearer TOKEN'")
        if self._needs_token or self.address is None:
            return caller
        return replace(caller, uid=peer_uid(context.peer(), self.address))

    async def guard(self, context: Context, handled: Awaitable[_Reply]) -> _Reply:
        """The handler's result.

        Raises:
            grpc.aio.AbortError: The call has ended with another status than OK.
        """
        try:
            return await handled
        except RefusalError as error:
            refusal = error
        except InvalidMessageError as error:
            refusal = invalid(error)
        except (grpc.aio.BaseError, asyncio.InvalidStateError) as error:  # of a stream that died under us
            refusal = RefusalError(grpc.StatusCode.CANCELLED, f"the connection ended: {error}")
        except Exception:
            _log.exception("a call failed")
            refusal = RefusalError(grpc.StatusCode.INTERNAL, "the planner failed at this call; its log says how")
        self._counters.refused[refusal.code.name] += 1
        await context.abort(refusal.code, refusal.reason, refusal.trailing_metadata)
        raise AssertionError("abort always raises")
