"""Calls that are answered with an error: which gRPC status, which sentence, which details."""

from collections.abc import Sequence

import grpc
from google.protobuf.any_pb2 import Any
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from perseus_dist.planner.access.audit import patterns_text
from perseus_dist.planner.access.auth import CERTIFICATE, USER, Caller
from perseus_dist.planner.access.grants import Role
from perseus_dist.rpc.connection import OWNER_KEY
from perseus_dist.rpc.violations import InvalidMessageError

_OWNERS = ((USER, "another user's"), (CERTIFICATE, "another certificate's"))

_RIGHTS = frozenset({grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED})
_NOT_RECORDED = frozenset({grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})

Metadata = tuple[tuple[str, str | bytes], ...]


class RefusalError(Exception):
    """Ends a call with a status of gRPC.

    ``job_id`` names the job that it is about, if there is one; ``owner`` is the address of the replica to call instead.
    """

    def __init__(
        self,
        code: grpc.StatusCode,
        reason: str,
        trailing_metadata: Metadata = (),
        *,
        job_id: str = "",
        owner: str = "",
    ) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.trailing_metadata = trailing_metadata
        self.job_id = job_id
        self.owner = owner


def is_recorded(refusal: RefusalError, *, is_change: bool) -> bool:
    """Whether a refusal belongs into the audit record.

    Args:
        refusal: Of a call.
        is_change: Whether the call was to change something.
    """
    if refusal.owner:  # the replica that is asked next records it
        return False
    return refusal.code in _RIGHTS or (is_change and refusal.code not in _NOT_RECORDED)


def invalid(error: InvalidMessageError) -> RefusalError:
    """A message whose fields break the contract: named one by one in ``google.rpc.BadRequest``."""
    details = Any()
    details.Pack(
        error_details_pb2.BadRequest(
            field_violations=[
                error_details_pb2.BadRequest.FieldViolation(field=field, description=description)
                for field, description in error.violations
            ]
        )
    )
    first = ": ".join(filter(None, error.violations[0]))
    more = f" (and {len(error.violations) - 1} more fields)" if len(error.violations) > 1 else ""
    reason = f"{first}{more}"
    status = status_pb2.Status(code=code_pb2.INVALID_ARGUMENT, message=reason, details=[details])
    trailing_metadata: Metadata = rpc_status.to_status(status).trailing_metadata
    return RefusalError(grpc.StatusCode.INVALID_ARGUMENT, reason, trailing_metadata)


def of_another(job_id: str, owner: str) -> RefusalError:
    """A job that is not open to the caller.

    Args:
        job_id: Of the job.
        owner: Whom it belongs to, as ``auth.Caller`` has it.
    """
    whose = next((whose for begin, whose in _OWNERS if owner.startswith(begin)), "another token's")
    reason = f"job {job_id} is {whose}; use a job name of your own, or the token that opens it, or the operator's"
    return RefusalError(grpc.StatusCode.PERMISSION_DENIED, reason, job_id=job_id)


def not_allowed(caller: Caller, needed: Role, job_id: str = "") -> RefusalError:
    """A call that the caller's rights do not include, although the job, if any, is one that it may see."""
    on_job = f" on job {job_id}" if job_id else ""
    reason = f"{caller.identity} may not do this{on_job}: it takes the role {needed.word}; ask an administrator"
    return RefusalError(grpc.StatusCode.PERMISSION_DENIED, reason, job_id=job_id)


def not_covered(caller: Caller, jobs: Sequence[str]) -> RefusalError:
    """A policy for jobs that the caller's rights do not all include.

    Args:
        caller: Who calls.
        jobs: Patterns of the policy's jobs; none for all jobs.
    """
    named = ", ".join(jobs)
    needed = f"{caller.identity} may not do this: a policy for {named or 'all jobs'} takes the role operate for each"
    if own := sorted({pattern for grant in caller.grants if grant.role >= Role.OPERATE for pattern in grant.jobs}):
        reason = f"{needed}, and it has that for {', '.join(own)}; name jobs among those, or ask an administrator"
    else:
        reason = f"{needed}; ask an administrator"
    return RefusalError(grpc.StatusCode.PERMISSION_DENIED, reason, job_id=patterns_text(jobs))


def check_rights(caller: Caller, role: Role, job_id: str, owner: str) -> None:
    """End a call that the caller may not make.

    Args:
        caller: Who makes it.
        role: That includes the call.
        job_id: Of the job.
        owner: Whom the job belongs to.

    Raises:
        RefusalError: The caller may not.
    """
    if caller.may(role, job_id, owner):
        return
    raise not_allowed(caller, role, job_id) if caller.may(Role.VIEW, job_id, owner) else of_another(job_id, owner)


def already_exists(reason: str) -> RefusalError:
    """A name that is taken."""
    return RefusalError(grpc.StatusCode.ALREADY_EXISTS, reason)


def unauthenticated(reason: str) -> RefusalError:
    """No token where one is needed."""
    return RefusalError(grpc.StatusCode.UNAUTHENTICATED, reason)


def not_found(reason: str, job_id: str = "") -> RefusalError:
    """No such job, or no such name."""
    return RefusalError(grpc.StatusCode.NOT_FOUND, reason, job_id=job_id)


def not_now(reason: str, job_id: str = "") -> RefusalError:
    """The job's state does not allow it, or there is nothing yet."""
    return RefusalError(grpc.StatusCode.FAILED_PRECONDITION, reason, job_id=job_id)


def too_many(reason: str) -> RefusalError:
    """A bound is reached."""
    return RefusalError(grpc.StatusCode.RESOURCE_EXHAUSTED, reason)


def moved(reason: str, owner: str) -> RefusalError:
    """Another replica is to be called, at an address."""
    return RefusalError(grpc.StatusCode.FAILED_PRECONDITION, reason, ((OWNER_KEY, owner),), owner=owner)


def ending(reason: str) -> RefusalError:
    """The refusal of a planner that is about to end."""
    return RefusalError(grpc.StatusCode.UNAVAILABLE, reason)
