"""Guard of every call: authenticates the caller, maps failures to statuses, and records who was refused."""

import asyncio
import logging
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

import grpc

from perseus_dist.planner.access.access import Access
from perseus_dist.planner.access.address import Address
from perseus_dist.planner.access.auth import Caller, hash_token
from perseus_dist.planner.access.peer import peer_uid
from perseus_dist.planner.access.refusal import RefusalError, invalid, is_recorded, unauthenticated
from perseus_dist.planner.runtime.counters import Counters
from perseus_dist.planner.runtime.shared.shared_audit import SharedAudit
from perseus_dist.planner.runtime.shared.shared_grants import SharedGrants
from perseus_dist.rpc.violations import InvalidMessageError

Context = grpc.aio.ServicerContext[Any, bytes]
"""Of a call in plain bytes: what gRPC itself cannot decode, it answers with UNKNOWN."""

_CERTIFICATE_NAMES = ("x509_common_name", "x509_subject_alternative_name")
_CHANGES = frozenset(
    {
        *("SetTarget", "ReportStraggler", "ClearStraggler", "CreateToken", "RevokeToken"),
        *("SetBudget", "ClearBudget", "SetLoadTarget", "ClearLoadTarget"),
        *("SetPricePolicy", "ClearPricePolicy"),
    }
)

_Reply = TypeVar("_Reply")

_log = logging.getLogger(__name__)


class RpcGuard:
    """Finds callers and turns what handlers raise into the contract's statuses; never UNKNOWN."""

    address: Address | None = None
    """Where the planner listens, as soon as it does."""

    shared_grants: SharedGrants | None = None
    """Named tokens of all planners on the database; None for a planner without one."""

    shared_audit: SharedAudit | None = None
    """Records of all planners on the database; None for a planner without one."""

    def __init__(self, *, access: Access, needs_token: bool, counters: Counters) -> None:
        """Begin.

        Args:
            access: Tokens and rights.
            needs_token: Whether a call needs a token, or a certificate with a role; else callers are known by their
                user id as well.
            counters: The planner's.
        """
        self.access = access
        self._needs_token = needs_token
        self._counters = counters

    def caller(self, context: Context) -> Caller:
        """Who calls.

        Raises:
            RefusalError: A token is needed and there is none, or it counts no more.
        """
        caller = self.access.caller(
            context.invocation_metadata() or (), _certificate_names(context), context.peer() or ""
        )
        if self._needs_token and not caller.token_sha256 and not caller.grants:
            raise unauthenticated("this planner wants a token: send the metadata 'authorization: Bearer TOKEN'")
        if self._needs_token or self.address is None:
            return caller
        return replace(caller, uid=peer_uid(context.peer(), self.address))

    def relay(self, context: Context) -> Caller:
        """The node relay that calls: its address, and its user where callers are known by theirs. It has no rights."""
        peer = context.peer() or ""
        is_by_user = not self._needs_token and self.address is not None
        uid = peer_uid(peer, self.address) if is_by_user and self.address is not None else None
        return Caller(token_sha256="", is_operator=False, uid=uid, peer=peer)

    def relayed_caller(self, token: str, relay: Caller) -> Caller:
        """The agent behind a node relay that has given this token, or none.

        Certificate and user are the relay's: the first never counts for an agent, the second for one without a token.

        Raises:
            RefusalError: A token is needed and there is none, or it counts no more.
        """
        if token:
            return self.access.caller_of_token(hash_token(token.strip()), peer=relay.peer)
        if self._needs_token:
            raise unauthenticated("this planner wants a token: name its file with --perseus-token-file")
        return relay

    async def guard(self, action: str, context: Context, handled: Awaitable[_Reply]) -> _Reply:
        """The handler's result.

        Args:
            action: Method of the service.
            context: Of the call.
            handled: Handles it.

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
        self._record(action, context, refusal)
        await context.abort(refusal.code, refusal.reason, refusal.trailing_metadata)
        raise AssertionError("abort always raises")

    def record(self, action: str, identity: str, peer: str, refusal: RefusalError) -> None:
        """Count a refusal; record refused changes, and calls that were refused for want of rights."""
        self._counters.refused[refusal.code.name] += 1
        if is_recorded(refusal, is_change=action in _CHANGES):
            self.access.audit.refused(identity, peer, action, job=refusal.job_id, reason=refusal.reason)

    def _record(self, action: str, context: Context, refusal: RefusalError) -> None:
        identity = "unknown"
        if is_recorded(refusal, is_change=action in _CHANGES):
            with suppress(RefusalError):
                identity = self.caller(context).identity
        self.record(action, identity, context.peer() or "", refusal)


def _certificate_names(context: Context) -> list[str]:
    """Names in the client's certificate, which the handshake has verified; none without one."""
    found = context.auth_context()
    return [name.decode(errors="replace") for key in _CERTIFICATE_NAMES for name in found.get(key, ())]
