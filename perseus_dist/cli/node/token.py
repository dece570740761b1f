"""``perseus-dist token``: named tokens with roles, for people, scripts and clients' certificates."""

import argparse
import json
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

from perseus_dist.cli.jobs.job_arguments import name, pattern, printable
from perseus_dist.cli.jobs.planner_client import (
    NODE_PLANNER,
    TIMEOUT_S,
    add_planner_arguments,
    node_planner,
    planner_calls,
)
from perseus_dist.cli.node.duration_option import duration_s
from perseus_dist.cli.output_option import Output
from perseus_dist.errors import OutputError, PerseusError
from perseus_dist.planning.output_file import check_writable, write_output

if TYPE_CHECKING:
    from perseus_dist.library.tables import Column
    from perseus_dist.rpc.v1 import planner_pb2 as pb
    from perseus_dist.rpc.v1.planner_pb2_grpc import PlannerStub

_EPILOG = """\
example:
  perseus-dist token create dashboard --role view
  perseus-dist token list
"""
_CREATE_EPILOG = """\
example:
  perseus-dist token create dashboard --role view
  perseus-dist token create llama-team --role operate --job 'llama-*' --expires 90d --out llama-team.token
  perseus-dist token create login1 --role operate --certificate login1.example

view sees jobs, their frontiers and profiles; operate also changes targets, reports stragglers and starts jobs; admin
also makes and revokes tokens, and reads the audit record. The token is printed once: the planner keeps its hash alone.
With --certificate there is no token: the right is that of clients whose certificate bears the name, on a planner with
--tls-client-ca.
"""
_LIST_EPILOG = """\
example:
  perseus-dist token list
"""
_REVOKE_EPILOG = """\
example:
  perseus-dist token revoke llama-team

It counts no more at once, also for those who watch a job; ranks that are attached stay until their stream ends.
"""
_PRIVATE = 0o600
_ROLES = ("view", "operate", "admin")
_COLUMNS: "tuple[Column, ...]" = (
    ("name", "name", "s"),
    ("role", "role", "s"),
    ("state", "state", "s"),
    ("created", "created", "s"),
    ("by", "created_by", "s"),
)


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "token",
        help="make, list and revoke named tokens with roles",
        description="Make, list and revoke named tokens with roles. Takes the operator's token, or one of role admin.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    form = argparse.RawDescriptionHelpFormatter
    create = actions.add_parser(
        "create", help="make one", description="Make a named token.", epilog=_CREATE_EPILOG, formatter_class=form
    )
    create.add_argument("name", type=name, metavar="NAME", help="the audit record knows its bearer by it")
    create.add_argument(
        "--role", required=True, choices=_ROLES, help="what its bearer may do: each role includes the one before it"
    )
    create.add_argument(
        "--job",
        dest="patterns",
        action="append",
        default=[],
        type=pattern,
        metavar="PATTERN",
        help="only for jobs of this name, with * and ? as wildcards; may be repeated; default: all jobs",
    )
    create.add_argument("--expires", type=duration_s, metavar="TIME", help="from now, as in 12h or 30d; default: never")
    create.add_argument(
        "--certificate", type=printable, metavar="NAME", help="common name or subject alternative name of clients"
    )
    create.add_argument(
        "--out", action=Output, metavar="FILE", help="write the token into a new file, for its owner alone"
    )
    create.set_defaults(run=run_create)
    listing = actions.add_parser(
        "list", help="list all", description="List named tokens.", epilog=_LIST_EPILOG, formatter_class=form
    )
    listing.set_defaults(run=run_list)
    revoke = actions.add_parser(
        "revoke", help="revoke one", description="Revoke a named token.", epilog=_REVOKE_EPILOG, formatter_class=form
    )
    revoke.add_argument("name", type=name, metavar="NAME")
    revoke.set_defaults(run=run_revoke)
    for action in (create, listing, revoke):
        action.add_argument("--json", action="store_true", help="print one JSON object")
        add_planner_arguments(action, NODE_PLANNER)


class TokenError(PerseusError):
    """A token that would be lost, or has been."""


def run_create(args: argparse.Namespace) -> int:
    """Make one; it is revoked if its token cannot be handed over.

    Raises:
        TokenError: A file is there already, which may hold another token, or the token could not be handed over.
        OutputError: The file cannot be written.
        PlannerCallError: The planner cannot be reached, or refuses.
    """
    if args.out is not None:
        check_writable(args.out)
        if args.out.is_file() and args.out.stat().st_size:  # it may hold a token that nothing else holds
            raise TokenError(f"--out {args.out}: saw a file, expected a new one; name another, or remove that one")
    with planner_calls(args, node_planner(args)) as (planner, metadata):
        from perseus_dist.rpc.v1 import planner_pb2 as pb

        request = pb.CreateTokenRequest(
            name=args.name,
            role=args.role,
            jobs=args.patterns,
            certificate=args.certificate or "",
            valid_for_s=args.expires or 0,
        )
        made = planner.CreateToken(request, timeout=TIMEOUT_S, metadata=metadata)
        try:
            _hand_over(made, args)
        except BaseException as error:
            is_revoked = _revoke_if_possible(planner, made, metadata)
            if not isinstance(error, OSError | OutputError):
                raise
            done = "is revoked" if is_revoked else f"counts; revoke it by 'perseus-dist token revoke {args.name}'"
            raise TokenError(
                f"{args.name}: its token could not be handed over ({getattr(error, 'strerror', error)}), and {done}; "
                "make one of another name"
            ) from None
    if args.out is not None or not made.token:
        kept = f"; its token is in {args.out}" if made.token else ""
        text = f"{made.grant.name}: {made.grant.role}, {_jobs(made.grant)}{kept}"
        print(json.dumps(_document(made.grant)) if args.json else text)
    return 0


def _hand_over(made: "pb.CreateTokenResponse", args: argparse.Namespace) -> None:
    """Write or print the token, which this process alone has now."""
    if not made.token:
        return
    if args.out is not None:
        write_output(args.out, f"{made.token}\n".encode(), mode=_PRIVATE)
    else:
        print(json.dumps(_document(made.grant) | {"token": made.token}) if args.json else made.token, flush=True)


def _revoke_if_possible(
    planner: "PlannerStub", made: "pb.CreateTokenResponse", metadata: tuple[tuple[str, str], ...]
) -> bool:
    import grpc

    from perseus_dist.rpc.v1 import planner_pb2 as pb

    try:
        planner.RevokeToken(pb.RevokeTokenRequest(name=made.grant.name), timeout=TIMEOUT_S, metadata=metadata)
    except grpc.RpcError:
        return False
    return True


def run_list(args: argparse.Namespace) -> int:
    """Print all tokens' names, roles and ends; the command's exit code."""
    with planner_calls(args, node_planner(args)) as (planner, metadata):
        from perseus_dist.rpc.v1 import planner_pb2 as pb

        grants = planner.ListTokens(pb.ListTokensRequest(), timeout=TIMEOUT_S, metadata=metadata).grants
    if args.json:
        print(json.dumps({"tokens": [_document(grant) for grant in grants]}))
    elif grants:
        from perseus_dist.cli.annotated_table import format_annotated

        print(format_annotated(_COLUMNS, [_record(grant) for grant in grants], "text"), end="")
    else:
        print("no named tokens")
    return 0


def run_revoke(args: argparse.Namespace) -> int:
    """Revoke one token by its name; the command's exit code."""
    with planner_calls(args, node_planner(args)) as (planner, metadata):
        from perseus_dist.rpc.v1 import planner_pb2 as pb

        grant = planner.RevokeToken(pb.RevokeTokenRequest(name=args.name), timeout=TIMEOUT_S, metadata=metadata)
    print(json.dumps(_document(grant)) if args.json else f"{grant.name}: {_state(grant)}")
    return 0


def local_time(time_s: float) -> str:
    """A Unix time as people of this place read it."""
    return datetime.fromtimestamp(time_s).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _jobs(grant: "pb.TokenGrant") -> str:
    return ", ".join(grant.jobs) or "all jobs"


def _word(grant: "pb.TokenGrant") -> str:
    if grant.revoked_s:
        return "revoked"
    return "expired" if grant.expires_s and grant.expires_s <= time.time() else "counts"


def _state(grant: "pb.TokenGrant") -> str:
    if grant.revoked_s:
        return f"revoked {local_time(grant.revoked_s)} by {grant.revoked_by}"
    if not grant.expires_s:
        return "counts"
    word = "has expired" if grant.expires_s <= time.time() else "expires"
    return f"{word} {local_time(grant.expires_s)}"


def _record(grant: "pb.TokenGrant") -> dict[str, Any]:
    state = _state(grant) if grant.revoked_s or grant.expires_s else ""
    certificate = f"of clients whose certificate bears {grant.certificate}" if grant.certificate else ""
    return {
        "name": grant.name,
        "role": grant.role,
        "state": _word(grant),
        "created": local_time(grant.created_s),
        "created_by": grant.created_by,
        "text": "; ".join(filter(None, (f"for {_jobs(grant)}", certificate, state))),
    }


def _document(grant: "pb.TokenGrant") -> dict[str, Any]:
    return {
        "name": grant.name,
        "role": grant.role,
        "jobs": list(grant.jobs),
        "certificate": grant.certificate,
        "created_s": grant.created_s,
        "created_by": grant.created_by,
        "expires_s": grant.expires_s or None,
        "revoked_s": grant.revoked_s or None,
        "revoked_by": grant.revoked_by,
    }
