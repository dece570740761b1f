"""The planner's address, credentials and refusals, shared by operators' commands."""

import argparse
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from perseus_dist.cli.jobs.call_troubles import connection_trouble
from perseus_dist.cli.jobs.replica_calls import ReplicaCalls
from perseus_dist.errors import PerseusError
from perseus_dist.planner.access.address import AddressError, parse_address
from perseus_dist.planner.store.state_dir import OPERATOR_TOKEN
from perseus_dist.rpc.connection import CHANNEL_OPTIONS, ClientTls, authorization, channel_credentials, read_token
from perseus_dist.rpc.node_jobs import running_jobs
from perseus_dist.rpc.state_folder import default_state_dir

if TYPE_CHECKING:
    import grpc

    from perseus_dist.rpc.v1.planner_pb2_grpc import PlannerStub

DEFAULT_PLANNER = "127.0.0.1:50151"
PLANNER_VARIABLE = "PERSEUS_PLANNER"
TOKEN_FILE_VARIABLE = "PERSEUS_TOKEN_FILE"
TIMEOUT_S = 15.0
_NAMES_S = 3.0


class PlannerCallError(PerseusError):
    """The planner cannot be reached, or refuses."""


class PlannerAwayError(PlannerCallError):
    """No planner answers at the address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A planner to call.

    Attributes:
        address: ``HOST:PORT``; of replicas, several with commas between.
        token: Empty for none.
        is_embedded: Whether it runs inside a job of this node, and ends with it.
        is_named: Whether the user or the environment named its address.
    """

    address: str
    token: str
    is_embedded: bool = False
    is_named: bool = False


_WHICH = f"default: ${PLANNER_VARIABLE}; else the job's own planner if it runs on this node, or {DEFAULT_PLANNER}"


NODE_PLANNER = f"default: ${PLANNER_VARIABLE}, else {DEFAULT_PLANNER}"
"""The help of ``--planner`` where a command is about no job."""


def add_planner_arguments(parser: argparse.ArgumentParser, which: str = _WHICH) -> None:
    """Add the options that find the planner; ``which`` is the help of ``--planner``."""
    group = parser.add_argument_group("planner")
    group.add_argument("--planner", metavar="HOST:PORT", help=f"{which}; of replicas, one or more with commas between")
    group.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help=f"the job's or the operator's token; default: ${TOKEN_FILE_VARIABLE}, or the one in the default "
        "--state-dir of 'perseus-dist planner'; a job's own planner on this node needs none",
    )
    group.add_argument("--tls", action="store_true", help="speak TLS, and trust the system's authorities")
    group.add_argument("--tls-ca", type=Path, metavar="PEM", help="speak TLS, and trust this authority alone")
    group.add_argument("--tls-cert", type=Path, metavar="PEM", help="our certificate, for a planner that asks for one")
    group.add_argument("--tls-key", type=Path, metavar="PEM", help="its key")
    parser.set_defaults(find_token=token_path)


def find_planner(args: argparse.Namespace) -> Endpoint:
    """The planner of a job: the one that was named, else the one that the job embeds, else the node's.

    Raises:
        PlannerCallError: Several planners on this node serve a job of that name, or its planner is just starting.
        ConnectionFileError: The token cannot be read.
    """
    named = args.planner or os.environ.get(PLANNER_VARIABLE)
    if named or client_tls(args):
        return named_planner(args, named)
    jobs = [job for job in running_jobs() if job.job_id == args.job]
    planners = [planner for job in jobs if (planner := job.read_planner()) is not None]
    if len(planners) > 1:
        addresses = ", ".join(planner.address for planner in planners)
        raise PlannerCallError(
            f"job {args.job}: {len(planners)} jobs of this name run on this node, with planners at {addresses}; name "
            "one with --planner"
        )
    if planners:
        return Endpoint(address=planners[0].address, token=planners[0].token, is_embedded=True)
    if jobs:
        raise PlannerCallError(f"job {args.job}: its planner is starting; try again in a moment")
    return named_planner(args, None)


def node_planner(args: argparse.Namespace) -> Endpoint:
    """The planner that was named, else the node's: for calls that are about no job.

    Raises:
        ConnectionFileError: The token cannot be read.
    """
    return named_planner(args, args.planner or os.environ.get(PLANNER_VARIABLE))


def find_planners(args: argparse.Namespace) -> list[Endpoint]:
    """All planners whose jobs are to be listed: the one that was named, else all of this user on this node.

    Raises:
        ConnectionFileError: The token cannot be read.
    """
    named = args.planner or os.environ.get(PLANNER_VARIABLE)
    if named or client_tls(args):
        return [named_planner(args, named)]
    return [named_planner(args, None), *embedded_planners()]


def embedded_planners() -> list[Endpoint]:
    """Those of this user's jobs on this node that embed their planner."""
    found = [planner for job in running_jobs() if (planner := job.read_planner()) is not None]
    return [Endpoint(address=planner.address, token=planner.token, is_embedded=True) for planner in found]


@contextmanager
def planner_calls(
    args: argparse.Namespace, endpoint: Endpoint | None = None
) -> Iterator[tuple["PlannerStub", tuple[tuple[str, str], ...]]]:
    """The planner's methods, and the metadata to call them with.

    Args:
        args: Of the command; ``job`` names the job unless an endpoint is given.
        endpoint: Where to call; None finds the job's planner.

    Raises:
        PlannerCallError: gRPC is not installed, the planner cannot be reached, or a call in the block was refused.
        ConnectionFileError: The token or a certificate cannot be read.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # gRPC's own lines would stand beside our one
    try:
        import grpc

        import perseus_dist.rpc.v1.planner_pb2_grpc  # noqa: F401
    except ImportError as error:
        raise PlannerCallError(f"{error.name} is not installed: run pip install 'perseus-dist[planner]'") from error
    tls = client_tls(args)
    endpoint = endpoint or find_planner(args)
    credentials = None if tls is None else channel_credentials(tls)

    def open_channel(address: str) -> grpc.Channel:
        if credentials is not None:
            return grpc.secure_channel(address, credentials, options=CHANNEL_OPTIONS)
        return grpc.insecure_channel(address, options=CHANNEL_OPTIONS)

    with closing(ReplicaCalls(endpoint.address.split(","), open_channel)) as calls:
        planner = cast("PlannerStub", calls)
        try:
            yield planner, authorization(endpoint.token)
        except grpc.RpcError as error:
            raise _refusal(args, endpoint, error, planner) from error


def client_tls(args: argparse.Namespace) -> ClientTls | None:
    """The command's options of TLS; None for plain text.

    Raises:
        PlannerCallError: A certificate without its key, or the reverse.
    """
    if (args.tls_cert is None) != (args.tls_key is None):
        raise PlannerCallError("saw one of --tls-cert and --tls-key, expected both or neither")
    if not (args.tls or args.tls_ca or args.tls_cert):
        return None
    return ClientTls(ca=args.tls_ca, cert=args.tls_cert, key=args.tls_key)


def named_planner(args: argparse.Namespace, named: str | None) -> Endpoint:
    """The planner at an address, and the token for it; without an address the node's.

    Raises:
        AddressError: One of the addresses is none.
        ConnectionFileError: The token cannot be read.
    """
    address = parse_addresses(named or DEFAULT_PLANNER)
    if args.token_file is None and named is not None:
        planners = [planner for job in running_jobs() if (planner := job.read_planner()) is not None]
        for planner in planners:
            if planner.address == address:
                return Endpoint(address=address, token=planner.token, is_embedded=True, is_named=True)
    return Endpoint(address=address, token=_token(args), is_named=named is not None)


def parse_addresses(text: str) -> str:
    """The address of a planner, or those of replicas with commas between, without spaces.

    Raises:
        AddressError: One of them is none.
    """
    try:
        return ",".join(str(parse_address(one.strip())) for one in text.split(","))
    except AddressError as error:
        if "," not in text:
            raise
        raise AddressError(f"{text!r}: {error}, or several with commas between") from None


def token_path(args: argparse.Namespace) -> Path | None:
    """The file with the token: the one that was named, else that of this user's own planner where there is one."""
    named = args.token_file or os.environ.get(TOKEN_FILE_VARIABLE)
    if named:
        return Path(named)
    default = default_state_dir() / OPERATOR_TOKEN
    with suppress(OSError):
        return default if default.exists() else None
    return None


def _token(args: argparse.Namespace) -> str:
    path = token_path(args)
    return "" if path is None else read_token(path)


def _refusal(
    args: argparse.Namespace, endpoint: Endpoint, error: "grpc.RpcError", planner: "PlannerStub"
) -> PlannerCallError:
    import grpc

    address, code, details = endpoint.address, error.code(), error.details()
    job_id = getattr(args, "job", None)
    if code is grpc.StatusCode.UNAVAILABLE:
        names = _names_of_running_jobs()
        if job_id is not None and names and not endpoint.is_named and not endpoint.is_embedded:
            return PlannerAwayError(
                f"there is no job {job_id} on this node, and no planner at {address}; jobs of yours here: {names}"
            )
        if job_id is not None and not endpoint.is_named and not endpoint.is_embedded:
            return PlannerAwayError(
                f"there is no job {job_id} of yours with a planner of its own on this node, and no planner answers at "
                f"{address}; name the job's planner with --planner, or start 'perseus-dist planner'"
            )
        if not endpoint.is_named and not endpoint.is_embedded:
            return PlannerAwayError(
                f"{address}: no planner answers, and no job of yours on this node has one of its own; start "
                "'perseus-dist planner', or name it with --planner"
            )
        last = address.rpartition(",")[2]
        if (trouble := connection_trouble(last, client_tls(args))) is not None:
            return PlannerAwayError(f"{address}: {trouble.what}; {trouble.remedy}")
        return PlannerAwayError(
            f"{address}: no planner answers ({details}); start 'perseus-dist planner', or name it with --planner"
        )
    if code is grpc.StatusCode.NOT_FOUND and job_id is not None:
        names = _names_at(endpoint, planner)
        return PlannerCallError(f"{address}: there is no job {job_id}; jobs there are: {names or 'none'}")
    # A server that does not know the method may reset the stream before the client has sent all of its message.
    was_reset = code is grpc.StatusCode.INTERNAL and "RST_STREAM" in (details or "")
    if code is grpc.StatusCode.UNIMPLEMENTED or was_reset:
        return PlannerCallError(f"{address}: this is no planner, or an older one ({details}); correct the address")
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return PlannerCallError(f"{address}: there is no answer; correct the address, or look at the planner's log")
    if code is grpc.StatusCode.UNAUTHENTICATED and not endpoint.token:
        return PlannerCallError(f"{address}: the planner wants a token; name its file with --token-file")
    return PlannerCallError(f"{address}: {details}")


def _names_of_running_jobs() -> str:
    return ", ".join(dict.fromkeys(job.job_id for job in running_jobs()))


def _names_at(endpoint: Endpoint, planner: "PlannerStub") -> str:
    """The jobs that may have been meant: those of the planner, and, unless it was named, those of this node."""
    import grpc

    from perseus_dist.rpc.v1 import planner_pb2 as pb

    names: list[str] = []
    with suppress(grpc.RpcError):
        answer = planner.ListJobs(pb.ListJobsRequest(), timeout=_NAMES_S, metadata=authorization(endpoint.token))
        names = [job.job_id for job in answer.jobs]
    if not endpoint.is_named:
        names += [job.job_id for job in running_jobs()]
    return ", ".join(dict.fromkeys(names))
