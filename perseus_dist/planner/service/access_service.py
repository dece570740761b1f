"""Administrators' calls: named tokens, and the audit record."""

from typing import TypedDict

from perseus_dist.planner.access.access import Access
from perseus_dist.planner.access.audit import AuditRecord
from perseus_dist.planner.access.auth import Caller
from perseus_dist.planner.access.grants import Grant, Role
from perseus_dist.planner.access.refusal import not_allowed, not_now
from perseus_dist.planner.runtime.counters import Counters
from perseus_dist.planner.service.rpc_guard import Context, RpcGuard
from perseus_dist.planner.store.shared_rights import SharedRightsError
from perseus_dist.rpc import limits
from perseus_dist.rpc.codec import parse
from perseus_dist.rpc.fields import check_count, check_job_id, check_job_pattern
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.rpc.violations import Checker

MAX_RECORDS_AT_ONCE = 1000
_MAX_VALID_FOR_S = 100 * 365 * 86_400.0
_MAX_TIME_S = 1e12
_ROLES = {role.word: role for role in Role}
_RESERVED = ("operator", "unknown")


class _Wanted(TypedDict):
    """Arguments of ``Audit.search``."""

    after_id: int
    since_s: float
    job: str
    limit: int


class AccessService:
    """Serves ``CreateToken``, ``ListTokens``, ``RevokeToken`` and ``ReadAudit``."""

    def __init__(self, access: Access, guard: RpcGuard, counters: Counters) -> None:
        self._access = access
        self._guard = guard
        self._counters = counters

    async def create_token(self, data: bytes, context: Context) -> bytes:
        """A new token, which the caller alone gets to know, or a certificate's role."""
        caller = self._called("CreateToken", context)
        request, check = parse(pb.CreateTokenRequest, data), Checker()
        name = check_job_id(check, "name", request.name)
        if name in _RESERVED:
            check.violated("name", name, "another name: the audit record calls others so")
        role = _ROLES.get(check.choice("role", request.role, _ROLES), Role.VIEW)
        if len(request.jobs) > limits.MAX_PATTERNS or (request.jobs and role is Role.ADMIN):
            expected = (
                "none: an administrator's role is for all jobs"
                if role is Role.ADMIN
                else f"up to {limits.MAX_PATTERNS}"
            )
            check.violated("jobs", f"{len(request.jobs)} patterns", expected)
        for index, pattern in enumerate(request.jobs[: limits.MAX_PATTERNS]):
            check_job_pattern(check, f"jobs[{index}]", pattern)
        certificate = check.text("certificate", request.certificate, limits.MAX_NAME_LENGTH)
        valid_for_s = check.number("valid_for_s", request.valid_for_s, _MAX_VALID_FOR_S)
        check.finish()
        grant, token = self._access.draft(
            caller,
            name=name,
            role=role,
            jobs=tuple(request.jobs),
            certificate=certificate,
            valid_for_s=valid_for_s or None,
        )
        if (shared := self._guard.shared_grants) is None:
            self._access.add(caller, grant)
        else:
            await shared.add(caller, grant)
        return pb.CreateTokenResponse(grant=_grant_to_wire(grant), token=token).SerializeToString()

    async def list_tokens(self, data: bytes, context: Context) -> bytes:
        """All of them, revoked ones included, without what would open anything."""
        self._called("ListTokens", context)
        parse(pb.ListTokensRequest, data)
        shared = self._guard.shared_grants
        grants = self._access.grants() if shared is None else await shared.grants()
        return pb.ListTokensResponse(grants=map(_grant_to_wire, grants)).SerializeToString()

    async def revoke_token(self, data: bytes, context: Context) -> bytes:
        """From now on it counts no more."""
        caller = self._called("RevokeToken", context)
        request, check = parse(pb.RevokeTokenRequest, data), Checker()
        check_job_id(check, "name", request.name)
        check.finish()
        shared = self._guard.shared_grants
        revoked = (
            self._access.revoke(caller, request.name) if shared is None else await shared.revoke(caller, request.name)
        )
        return _grant_to_wire(revoked).SerializeToString()

    async def read_audit(self, data: bytes, context: Context) -> bytes:
        """Records in their order, at most a thousand at once; where planners share a database, those of all."""
        self._called("ReadAudit", context)
        request, check = parse(pb.ReadAuditRequest, data), Checker()
        after_id = check_count(check, "after_id", request.after_id)
        since_s = check.number("since_s", request.since_s, _MAX_TIME_S)
        if request.job:
            check_job_id(check, "job", request.job)
        limit = check.integer("limit", request.limit, 1, MAX_RECORDS_AT_ONCE)
        check.finish()
        wanted: _Wanted = {"after_id": after_id, "since_s": since_s, "job": request.job, "limit": limit}
        missing = ""
        if request.own or (shared := self._guard.shared_audit) is None:
            records = await self._access.audit.search(**wanted)
        else:
            try:
                records = await shared.read(**wanted)
            except SharedRightsError as error:
                if after_id:  # an id of the database's
                    raise not_now(f"records of all planners on the database cannot be read on: {error}") from None
                records = await self._access.audit.search(**wanted)
                missing = f"only what this planner has recorded, not what others on its database have: {error}"
        return pb.ReadAuditResponse(records=map(_record_to_wire, records), missing=missing).SerializeToString()

    def _called(self, method: str, context: Context) -> Caller:
        self._counters.calls[method] += 1
        caller = self._guard.caller(context)
        if not caller.is_admin:
            raise not_allowed(caller, Role.ADMIN)
        return caller


def _grant_to_wire(grant: Grant) -> pb.TokenGrant:
    return pb.TokenGrant(
        name=grant.name,
        role=grant.role.word,
        jobs=grant.jobs,
        certificate=grant.certificate,
        created_s=grant.created_s,
        created_by=grant.created_by,
        expires_s=grant.expires_s or 0.0,
        revoked_s=grant.revoked_s or 0.0,
        revoked_by=grant.revoked_by,
    )


def _record_to_wire(record: AuditRecord) -> pb.AuditRecord:
    return pb.AuditRecord(
        id=record.record_id,
        time_s=record.time_s,
        identity=record.identity,
        peer=record.peer,
        action=record.action,
        job=record.job,
        before=record.before,
        after=record.after,
        outcome=record.outcome,
        replica=record.replica,
    )
