"""``perseus-dist audit``: who changed what, and who was refused."""

import argparse
import json
import re
import sys
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from perseus_dist.cli.jobs.job_arguments import name
from perseus_dist.cli.jobs.planner_client import (
    NODE_PLANNER,
    TIMEOUT_S,
    add_planner_arguments,
    node_planner,
    planner_calls,
)
from perseus_dist.cli.node.duration_option import duration_s
from perseus_dist.cli.node.token import local_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perseus_dist.library.tables import Column
    from perseus_dist.rpc.v1 import planner_pb2 as pb
    from perseus_dist.rpc.v1.planner_pb2_grpc import PlannerStub

_EPILOG = """\
example:
  perseus-dist audit
  perseus-dist audit --since 7d --job llama-70b
  perseus-dist audit --json

The planner appends a record for each job that is started, each change of a target or a policy, each report of a
straggler, each token that is made or revoked, and each call that was refused. Planners on one PostgreSQL database show
the records of all. Takes the operator's token, or one of
role admin.
"""
_AT_ONCE = 1000
_NAME = re.compile(r"[^*? ]*")
_COLUMNS: "tuple[Column, ...]" = (
    ("time", "time", "s"),
    ("identity", "identity", "s"),
    ("from", "peer", "s"),
    ("action", "action", "s"),
    ("job", "job", "s"),
    ("replica", "replica", "s"),
)


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "audit",
        help="show who changed what, and who was refused",
        description="Show the planner's record of changes and refusals.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--since", type=duration_s, metavar="TIME", help="only the last 12h, 30d, ...; default: all")
    parser.add_argument(
        "--job",
        dest="about",
        type=name,
        metavar="JOB",
        help="only what concerns this job, policies that cover it included",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    add_planner_arguments(parser, NODE_PLANNER)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the records of the audit log; the command's exit code."""
    since_s = 0.0 if args.since is None else max(0.0, time.time() - args.since)
    missing: list[str] = []
    with planner_calls(args, node_planner(args)) as (planner, metadata):
        records = list(_records(planner, metadata, since_s, args.about or "", missing))
    for sentence in missing:
        print(f"perseus-dist: {sentence}", file=sys.stderr)
    if args.json:
        for record in records:
            print(json.dumps(_document(record)))
    elif records:
        from perseus_dist.cli.annotated_table import format_annotated

        rows = [
            {
                **_document(r),
                "time": local_time(r.time_s),
                "peer": _address(r.peer),
                "job": r.job if _NAME.fullmatch(r.job) else "",  # a policy's sentence has its patterns
                "text": _sentence(r),
            }
            for r in records
        ]
        columns = _COLUMNS if any(record.replica for record in records) else [c for c in _COLUMNS if c[1] != "replica"]
        print(format_annotated(columns, rows, "text"), end="")
    else:
        print("no records")
    return 0


def _records(
    planner: "PlannerStub", metadata: tuple[tuple[str, str], ...], since_s: float, job: str, missing: list[str]
) -> "Iterator[pb.AuditRecord]":
    from perseus_dist.rpc.v1 import planner_pb2 as pb

    after_id = 0
    while True:
        own = bool(missing)
        request = pb.ReadAuditRequest(after_id=after_id, since_s=since_s, job=job, limit=_AT_ONCE, own=own)
        answer = planner.ReadAudit(request, timeout=TIMEOUT_S, metadata=metadata)
        missing += filter(None, (answer.missing,))
        records = answer.records
        yield from records
        if len(records) < _AT_ONCE:
            return
        after_id = records[-1].id


def _address(peer: str) -> str:
    """Of a call, without what gRPC adds: ``ipv6:%5B::1%5D:40000`` is ``[::1]:40000``; the page writes none of it."""
    family, _, rest = peer.partition(":")
    return unquote(rest) if family in ("ipv4", "ipv6") else peer


def _sentence(record: "pb.AuditRecord") -> str:
    """The change and its outcome, as ``slowdown=1.05, before: t_min; done``."""
    before = f"before: {record.before}" if record.before else ""
    change = ", ".join(filter(None, (record.after, before)))
    return "; ".join(filter(None, (change, record.outcome)))


def _document(record: "pb.AuditRecord") -> dict[str, Any]:
    names = ("id", "time_s", "identity", "peer", "action", "job", "before", "after", "outcome", "replica")
    return {field: getattr(record, field) for field in names}
