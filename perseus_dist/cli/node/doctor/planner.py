"""The planner that a node is to work with: whether it serves, its certificate, tokens, and the relay on the way."""

import argparse
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

from perseus_dist.cli.jobs.call_troubles import certificate_end_s, connection_trouble
from perseus_dist.cli.jobs.planner_client import PlannerCallError, client_tls, named_planner, planner_calls
from perseus_dist.cli.node.doctor.certificates import SOON_S, day_of
from perseus_dist.cli.node.doctor.jobs import job_findings
from perseus_dist.errors import PerseusError
from perseus_dist.messages.finding import Finding, Level
from perseus_dist.messages.planning_queue import PlanningQueue
from perseus_dist.planner.access.address import AddressError, parse_address
from perseus_dist.rpc.connection import ConnectionFileError, check_pem
from perseus_dist.rpc.relay_contract import RELAY_VARIABLE

if TYPE_CHECKING:
    from perseus_dist.rpc.v1 import planner_pb2 as pb
    from perseus_dist.rpc.v1.planner_pb2_grpc import PlannerStub

_PLANNER_TIMEOUT_S = 3.0
_RELAY_TIMEOUT_S = 1.0


def inspect_planner(args: argparse.Namespace, address: str) -> Iterator[Finding]:
    """Whether this planner serves and takes the token; its jobs' troubles, and tokens that end soon.

    Files of TLS and of the token that cannot be used are for ``inspect_credentials``.
    """
    try:
        parse_address(address)
    except AddressError as error:
        yield Finding(level=Level.FAIL, subject="planner", what=str(error), remedy="correct the address")
        return
    try:
        if (tls := client_tls(args)) is not None:
            check_pem(tls)
    except PerseusError:
        return
    if (trouble := connection_trouble(address, tls)) is not None:
        yield Finding(level=Level.FAIL, subject="planner", what=f"{address}: {trouble.what}", remedy=trouble.remedy)
        return
    try:
        with planner_calls(args, named_planner(args, address)) as (planner, metadata):
            from perseus_dist.rpc.v1 import planner_pb2 as pb

            found = planner.ListJobs(pb.ListJobsRequest(), timeout=_PLANNER_TIMEOUT_S, metadata=metadata)
            grants = _grants(planner, metadata) if found.is_admin else ()  # the audit record has refused calls
    except ConnectionFileError:
        return
    except PlannerCallError as error:
        what, _, remedy = str(error).partition("; ")
        yield Finding(level=Level.FAIL, subject="planner", what=what, remedy=remedy)
        return
    yield Finding(
        level=Level.OK, subject="planner", what=f"{address} serves; jobs that the token opens: {len(found.jobs)}"
    )
    yield from job_findings(found.jobs, f" --planner {address}")
    if found.HasField("planning_queue"):
        yield from _queue_findings(address, found.planning_queue)
    now_s = time.time()
    end_s = None if tls is None else certificate_end_s(address, tls)
    if end_s is not None and end_s <= now_s + SOON_S:
        yield Finding(
            level=Level.WARN,
            subject="planner",
            what=f"{address}: its certificate expires on {day_of(end_s)}",
            remedy="renew it; the planner reads it again by itself",
        )
    for grant in grants:
        if not grant.revoked_s and now_s < grant.expires_s <= now_s + SOON_S:
            yield Finding(
                level=Level.WARN,
                subject="tokens",
                what=f"{address}: token {grant.name!r} ({grant.role}) expires on {day_of(grant.expires_s)}",
                remedy="make another with 'perseus-dist token create', and give it to whoever uses this one",
            )


def _queue_findings(address: str, found: "pb.PlanningQueue") -> Iterator[Finding]:
    """The planning queue of the planner's database."""
    names = (field.name for field in fields(PlanningQueue))
    queue = PlanningQueue(**{name: getattr(found, name) for name in names})
    yield Finding(level=Level.OK, subject="planning queue", what=f"{address}: {queue.sentence}")
    for what, remedy in queue.troubles:
        yield Finding(level=Level.WARN, subject="planning queue", what=f"{address}: {what}", remedy=remedy)


def _grants(planner: "PlannerStub", metadata: Sequence[tuple[str, str]]) -> "Sequence[pb.TokenGrant]":
    """All tokens, for administrators."""
    import grpc

    from perseus_dist.rpc.v1 import planner_pb2 as pb

    try:
        found = planner.ListTokens(pb.ListTokensRequest(), timeout=_PLANNER_TIMEOUT_S, metadata=metadata)
    except grpc.RpcError:
        return ()
    return tuple(found.grants)


def inspect_relay(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Whether the node relay of ``PERSEUS_NODE_RELAY`` takes connections."""
    path = environ.get(RELAY_VARIABLE)
    if not path:
        return
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_RELAY_TIMEOUT_S)
            connection.connect(path)
    except OSError as error:
        yield Finding(
            level=Level.WARN,
            subject="node relay",
            what=f"{path} does not answer ({error.strerror or error}): agents go to the planner themselves",
            remedy="start 'perseus-dist node-relay' on this node, or leave out PERSEUS_NODE_RELAY",
        )
    else:
        yield Finding(level=Level.OK, subject="node relay", what=f"answers on {path}")
