"""``perseus-dist planner``: the service that jobs, agents and operators talk to."""

import argparse
import asyncio
import importlib.util
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from perseus_dist.cli.address_option import address, host
from perseus_dist.cli.node.log_format import add_json_option, add_log_option, begin_log, print_served
from perseus_dist.cli.node.metrics_options import add_metrics_options, check_metrics_options, metrics_endpoint
from perseus_dist.cli.number_options import whole
from perseus_dist.errors import PerseusError
from perseus_dist.planning.output_file import check_writable

if TYPE_CHECKING:
    from collections.abc import Callable

    from perseus_dist.planner.access.address import Address
    from perseus_dist.planner.access.tls import ServerTls
    from perseus_dist.planner.service.server import ServerConfig
    from perseus_dist.planner.store.postgres.address import PostgresAddress
    from perseus_dist.planner.store.postgres.audit_table import PostgresAuditTable
    from perseus_dist.planner.store.postgres.grant_table import PostgresGrantTable
    from perseus_dist.planner.store.postgres.postgres_facts import PostgresFacts
    from perseus_dist.planner.worker.shared.shared_planning import SharedPlanning

_log = logging.getLogger(__name__)

_MAX_PID = 1 << 22  # as proc(5) has it

_EPILOG = """\
example:
  perseus-dist planner
  perseus-dist planner --web 127.0.0.1:50152
  perseus-dist planner --bind 0.0.0.0:50151 --tls-cert planner.pem --tls-key planner.key \\
      --metrics 0.0.0.0:9464 --metrics-tls-cert planner.pem --metrics-tls-key planner.key

Everything that it acknowledges is in --state-dir, and a planner that is started again there goes on with it. The token
in the file 'operator-token' there opens every job. A job's own token is the one that its first rank came with; on a
loopback address a job that came without one belongs to the user whose process its first rank is.
"""


class PlannerOptionsError(PerseusError):
    """Options of the planner that do not fit together."""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "planner",
        help="serve plans to the agents of running jobs",
        description="Serve plans to the agents of running jobs, over gRPC, until SIGTERM.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--bind",
        type=address,
        default="127.0.0.1:50151",
        metavar="HOST:PORT",
        help="default: %(default)s; port 0 takes a free one",
    )
    parser.add_argument(
        "--state-dir",
        type=Path,
        metavar="DIR",
        help="default: $XDG_STATE_HOME/perseus-dist or ~/.local/state/perseus-dist",
    )
    add_store_options(parser, what="keep jobs, profiles and plans")
    parser.add_argument(
        "--advertise",
        type=address,
        metavar="HOST:PORT",
        help="with --store: share the jobs of the database with other planners that have this option; agents and "
        "commands reach this one at the address, which goes with the certificate",
    )
    parser.add_argument(
        "--tls-cert", type=Path, metavar="PEM", help="the planner's certificate; read again when it changes"
    )
    parser.add_argument("--tls-key", type=Path, metavar="PEM", help="its key")
    parser.add_argument(
        "--tls-client-ca", type=Path, metavar="PEM", help="ask every client for a certificate of this authority (mTLS)"
    )
    parser.add_argument(
        "--insecure", action="store_true", help="serve plain text on an address that other machines can reach"
    )
    add_metrics_options(parser)
    parser.add_argument(
        "--web",
        type=address,
        metavar="HOST:PORT",
        help="serve a page of all jobs to browsers, with the same certificate and tokens; port 0 takes a free one",
    )
    parser.add_argument(
        "--stragglers",
        choices=("act", "show"),
        default="act",
        help="act: pipelines wait for stragglers that are detected; show: stragglers are detected and told of, and "
        "pipelines wait for reported ones alone (default: %(default)s)",
    )
    parser.add_argument(
        "--signals",
        type=Path,
        metavar="DIR",
        help="folder of prices and carbon intensities, in files that 'perseus-dist policy price' names; read again "
        "when they change; one in .toml names a provider, which is asked again and again",
    )
    add_log_option(parser)
    add_json_option(parser, "address, metrics_address, web_url, store (null where all is in memory), pid, version")
    parser.add_argument("--address-file", type=Path, metavar="FILE", help="write where it listens into this JSON file")
    parser.add_argument(
        "--embedded",
        action="store_true",
        help="keep everything in memory unless --state-dir is given, end with the process that started it, and put a "
        "token into --address-file that every call needs",
    )
    parser.add_argument(
        "--parent",
        type=whole(1, _MAX_PID, "a process id"),
        metavar="PID",
        help="with --embedded: the process that starts it, for a planner whose parent has ended before it serves",
    )
    parser.add_argument(
        "--cache",
        type=Path,
        metavar="FILE",
        help="with --embedded and --job: keep the job's profile and plans in this file, and begin with what is there",
    )
    parser.add_argument("--job", default="", metavar="NAME", help="the job of --cache")
    parser.add_argument(
        "--share",
        type=host,
        metavar="HOST[:PORT]",
        help="with --embedded and --state-dir: listen for the job's other nodes too, on this node's address at HOST or "
        "on the way there, with TLS and a certificate that is made for it",
    )
    parser.set_defaults(run=run)


def add_store_options(parser: argparse.ArgumentParser, *, what: str, is_required: bool = False) -> None:
    """Add the options of a PostgreSQL database.

    Args:
        parser: Of a command.
        what: The command does in the database.
        is_required: Whether the command needs one.
    """
    parser.add_argument(
        "--store",
        type=_store_url,
        required=is_required,
        metavar="URL",
        help=f"{what} in a PostgreSQL database, postgresql://USER@HOST:PORT/DATABASE"
        f"{'' if is_required else ', instead of the state folder'}; without the password",
    )
    parser.add_argument(
        "--store-password-file",
        type=Path,
        metavar="FILE",
        help="with --store: its user's password; default: as libpq finds it, in PGPASSFILE or ~/.pgpass",
    )


def check_store(args: argparse.Namespace) -> None:
    """Check ``--store`` and its password, as far as that goes without the database.

    Raises:
        PerseusError: psycopg is missing, libpq cannot read the URL, or the password's file is of no use.
    """
    if importlib.util.find_spec("psycopg") is None:
        raise PlannerOptionsError(
            "--store needs psycopg, not installed here: run \"pip install 'perseus-dist[postgres]'\""
        )
    from perseus_dist.planner.store.postgres.connection import check_readable

    check_readable(args.store)
    store_address(args).password()


def store_address(args: argparse.Namespace) -> "PostgresAddress":
    """The database of ``--store``."""
    from perseus_dist.planner.store.postgres.address import PostgresAddress

    return PostgresAddress(args.store, args.store_password_file)


def run(args: argparse.Namespace) -> int:
    """Serve as a planner until a signal; the command's exit code."""
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # before gRPC is imported: else each failed handshake is a line
    from perseus_dist.cli.settings.defaults import log_sources
    from perseus_dist.planner.service.server import serve
    from perseus_dist.planner.store.state_dir import removed_unless_kept

    # An embedded one writes into its job's log, where the agent of rank 0 tells the job's phases.
    level = logging.WARNING if args.embedded and os.environ.get("PERSEUS_LOG") != "debug" else logging.INFO
    begin_log(args.log_format, text="%(asctime)s %(levelname)s %(message)s", level=level)
    log_sources(args, _log)
    state_dir = _state_dir(args)
    with removed_unless_kept(state_dir) as keep:
        config = _config(args, state_dir)
        facts = _open_store(args, config)
        leases, planning = (None, None) if facts is None else (facts.leases, _shared_planning(args))

        def on_serving(served: dict[str, str]) -> None:
            keep()
            if args.json:
                store = args.store or (None if config.database is None else str(config.database))
                print_served(command="planner", **served, store=store)

        rights = None if facts is None else _shared_rights(args, facts)
        asyncio.run(serve(config, facts, leases, planning, on_serving, rights))
    return 0


def _state_dir(args: argparse.Namespace) -> Path | None:
    from perseus_dist.rpc.state_folder import default_state_dir

    return args.state_dir or (None if args.embedded else default_state_dir())


def check_options(args: argparse.Namespace) -> None:
    """Check that options fit together, without a look at the files that they name.

    Raises:
        PerseusError: They do not.
    """
    from perseus_dist.planner.access.address import parse_address

    if (args.tls_cert is None) != (args.tls_key is None):
        raise PlannerOptionsError("saw one of --tls-cert and --tls-key, expected both or neither")
    if args.tls_client_ca is not None and args.tls_cert is None:
        raise PlannerOptionsError("--tls-client-ca needs --tls-cert and --tls-key")
    if args.embedded and args.address_file is None:
        raise PlannerOptionsError("--embedded needs --address-file: nobody would find the planner")
    if args.parent is not None and not args.embedded:
        raise PlannerOptionsError("--parent needs --embedded: no other planner ends with the process that started it")
    if args.cache is not None and not (args.embedded and args.job):
        raise PlannerOptionsError("--cache needs --embedded and --job: it keeps one job, of one start")
    if args.job and args.cache is None:
        raise PlannerOptionsError("--job needs --cache: it names the job whose profile and plans that file keeps")
    if args.share is not None and not (args.embedded and args.state_dir):
        raise PlannerOptionsError("--share needs --embedded and --state-dir, where its certificate is kept")
    _check_store_options(args)
    for option, text in (("--bind", args.bind), ("--web", args.web)):
        place = None if text is None else parse_address(text)
        if place is not None and not place.is_loopback and args.tls_cert is None and not args.insecure:
            raise PlannerOptionsError(
                f"{option} {place} is no loopback address: other machines could read tokens on the way. Give "
                "--tls-cert and --tls-key, or --insecure on a network that you trust"
            )
    check_metrics_options(args)


def check_files(args: argparse.Namespace) -> None:
    """Check the files of certificates, signals and metrics' passwords that options name.

    Raises:
        PerseusError: One cannot be used.
    """
    from perseus_dist.planner.access.tls import server_credentials
    from perseus_dist.planner.runtime.signals.signal_files import check_folder

    if (tls := _server_tls(args)) is not None:
        server_credentials(tls)
    if args.signals is not None:
        check_folder(args.signals)
    metrics_endpoint(args)


def _server_tls(args: argparse.Namespace) -> "ServerTls | None":
    from perseus_dist.planner.access.tls import ServerTls

    return ServerTls(cert=args.tls_cert, key=args.tls_key, client_ca=args.tls_client_ca) if args.tls_cert else None


def _config(args: argparse.Namespace, state_dir: Path | None) -> "ServerConfig":
    from perseus_dist.planner.access.address import parse_address, parse_host
    from perseus_dist.planner.access.auth import load_operator_token, new_token
    from perseus_dist.planner.job.job_policy import Policy
    from perseus_dist.planner.runtime.signals.signal_files import check_folder
    from perseus_dist.planner.service.server import ServerConfig
    from perseus_dist.planner.store.state_dir import DATABASE, OPERATOR_TOKEN, RIGHTS, make_state_dir

    bind = parse_address(args.bind)
    web = None if args.web is None else _web_address(args.web)
    check_options(args)
    if args.store is not None:
        check_store(args)
    check_files(args)  # refused here, before anything is written
    signals = None if args.signals is None else check_folder(args.signals)
    metrics = metrics_endpoint(args)
    if args.address_file is not None:
        check_writable(args.address_file)
    if state_dir is not None:
        make_state_dir(state_dir)
    # That of an embedded one is new with every start: a process that can read the address file may use it. Other nodes
    # get it once, through the store of the job, and it stays.
    if state_dir is None or (args.embedded and args.share is None):
        operator_token = new_token()
    else:
        operator_token = load_operator_token(state_dir / OPERATOR_TOKEN)
    return ServerConfig(
        bind=bind,
        database=None if state_dir is None else state_dir / DATABASE,
        operator_token=operator_token,
        rights=None if args.embedded or state_dir is None else state_dir / RIGHTS,
        needs_token=args.embedded or not bind.is_loopback,
        tls=_server_tls(args),
        metrics=metrics,
        web=web,
        address_file=args.address_file,
        embedded=args.embedded,
        parent=args.parent,
        cache=args.cache,
        job_id=args.job,
        share=None if args.share is None else parse_host(args.share),
        signals=signals,
        policy=Policy(acts_on_stragglers=args.stragglers == "act", shows_timelines=web is not None, plans_ahead=True),
    )


def _store_url(text: str) -> str:
    from perseus_dist.planner.store.postgres.address import PostgresUrlError, check_url

    try:
        return check_url(text)
    except PostgresUrlError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _check_store_options(args: argparse.Namespace) -> None:
    if args.store_password_file is not None and args.store is None:
        raise PlannerOptionsError("--store-password-file needs --store")
    if args.advertise is not None:
        _check_advertised(args)
    if args.store is not None and args.embedded:
        raise PlannerOptionsError("--store is for planners of several jobs: --embedded keeps its own database")


def _check_advertised(args: argparse.Namespace) -> None:
    from perseus_dist.planner.access.address import parse_address

    if args.store is None:
        raise PlannerOptionsError("--advertise needs --store: replicas share a PostgreSQL database")
    advertised = parse_address(args.advertise)
    if advertised.port == 0 or advertised.is_unspecified:
        raise PlannerOptionsError(
            f"--advertise {advertised}: nothing can be reached there; name this planner's own address"
        )


def _open_store(args: argparse.Namespace, config: "ServerConfig") -> "PostgresFacts | None":
    """The database of ``--store``; before the event loop runs, since this may wait for long."""
    if args.store is None or config.database is None:
        return None
    from perseus_dist.planner.store.postgres.opening import open_postgres

    return open_postgres(store_address(args), config.database.parent, args.advertise or "")


def _shared_rights(args: argparse.Namespace, facts: "PostgresFacts") -> "tuple[PostgresAuditTable, PostgresGrantTable]":
    from perseus_dist.planner.store.postgres.audit_table import PostgresAuditTable
    from perseus_dist.planner.store.postgres.grant_table import PostgresGrantTable

    address = store_address(args)
    return PostgresAuditTable(address, facts.state_id, args.advertise or ""), PostgresGrantTable(address)


def _shared_planning(args: argparse.Namespace) -> "Callable[[], SharedPlanning]":
    from perseus_dist.planner.worker.shared.queue_process import shared_queue
    from perseus_dist.planner.worker.shared.shared_planning import SharedPlanning

    return lambda: SharedPlanning(shared_queue(store_address(args)))


def _web_address(text: str) -> "Address":
    from perseus_dist.planner.access.address import parse_address

    missing = [name for name in ("jinja2", "starlette", "uvicorn") if importlib.util.find_spec(name) is None]
    if missing:
        raise PlannerOptionsError(
            f"--web needs {', '.join(missing)}, not installed here: run \"pip install 'perseus-dist[planner,web]'\""
        )
    return parse_address(text)
