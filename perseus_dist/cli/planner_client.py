"""What operators' commands share: where the planner is, who asks, and how its refusals are told."""

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from perseus_dist.errors import PerseusError
from perseus_dist.planner.state_dir import OPERATOR_TOKEN, default_state_dir
from perseus_dist.rpc.connection import CHANNEL_OPTIONS, ClientTls, authorization, channel_credentials, read_token

if TYPE_CHECKING:
    import grpc

    from perseus_dist.rpc.v1.planner_pb2_grpc import PlannerStub

DEFAULT_PLANNER = "127.0.0.1:50151"
PLANNER_VARIABLE = "PERSEUS_PLANNER"
TOKEN_FILE_VARIABLE = "PERSEUS_TOKEN_FILE"
TIMEOUT_S = 15.0


class PlannerCallError(PerseusError):
    """The planner cannot be reached, or refuses."""


def add_planner_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that find the planner."""
    group = parser.add_argument_group("planner")
    group.add_argument(
        "--planner", metavar="HOST:PORT", help=f"default: ${PLANNER_VARIABLE}, or {DEFAULT_PLANNER} on this machine"
    )
    group.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help=f"the job's or the operator's token; default: ${TOKEN_FILE_VARIABLE}, or the one in the default "
        "--state-dir of 'perseus-dist planner'",
    )
    group.add_argument("--tls-ca", type=Path, metavar="PEM", help="speak TLS, and trust this authority alone")
    group.add_argument("--tls-cert", type=Path, metavar="PEM", help="our certificate, for a planner that asks for one")
    group.add_argument("--tls-key", type=Path, metavar="PEM", help="its key")


@contextmanager
def planner_calls(args: argparse.Namespace) -> Iterator[tuple["PlannerStub", tuple[tuple[str, str], ...]]]:
    """The planner's methods, and the metadata to call them with.

    Raises:
        PlannerCallError: gRPC is not installed, the planner cannot be reached, or a call in the block was refused.
        ConnectionFileError: The token or a certificate cannot be read.
    """
    try:
        import grpc

        from perseus_dist.rpc.v1.planner_pb2_grpc import PlannerStub
    except ImportError as error:
        raise PlannerCallError(f"{error.name} is not installed: run pip install 'perseus-dist[planner]'") from error
    address = args.planner or os.environ.get(PLANNER_VARIABLE) or DEFAULT_PLANNER
    metadata = authorization(_token(args))
    if (args.tls_cert is None) != (args.tls_key is None):
        raise PlannerCallError("saw one of --tls-cert and --tls-key, expected both or neither")
    if args.tls_ca or args.tls_cert:
        credentials = channel_credentials(ClientTls(ca=args.tls_ca, cert=args.tls_cert, key=args.tls_key))
        channel = grpc.secure_channel(address, credentials, options=CHANNEL_OPTIONS)
    else:
        channel = grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
    with channel:
        try:
            yield PlannerStub(channel), metadata  # type: ignore[no-untyped-call]  # generated
        except grpc.RpcError as error:
            raise PlannerCallError(_sentence(address, error)) from error


def _token(args: argparse.Namespace) -> str:
    named = args.token_file or os.environ.get(TOKEN_FILE_VARIABLE)
    if named:
        return read_token(Path(named))
    default = default_state_dir() / OPERATOR_TOKEN
    return read_token(default) if default.exists() else ""


def _sentence(address: str, error: "grpc.RpcError") -> str:
    import grpc

    code, details = error.code(), error.details()
    if code is grpc.StatusCode.UNAVAILABLE:
        return f"{address}: no planner answers ({details}); start 'perseus-dist planner', or name it with --planner"
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"{address}: the planner has not answered within {TIMEOUT_S:g} s; look at its log"
    if code is grpc.StatusCode.UNAUTHENTICATED:
        return f"{address}: the planner wants a token; name its file with --token-file"
    return f"{address}: {details}"
