"""``perseus-dist node-relay``: carry the streams of a node's ranks to the planner as one."""

import argparse
import asyncio
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from perseus_dist.cli.node.log_format import add_json_option, add_log_option, begin_log, print_served
from perseus_dist.errors import PerseusError

if TYPE_CHECKING:
    from perseus_dist.rpc.node_wire import NodeHello

_log = logging.getLogger(__name__)

_EPILOG = """\
example:
  perseus-dist node-relay --planner planner.example:50151 --tls-ca ca.pem --socket /run/user/1000/perseus/relay.sock

One per node, as a user without rights. Agents whose environment has PERSEUS_NODE_RELAY=SOCKET send their streams to
the planner this way, if their jobs name the same HOST:PORT, or one of those that it names; others, and all of them
whenever the relay is not there, connect to the planner themselves. It adds no rights: each agent is known to the
planner by its own token. Without --group it takes agents of its own user alone; with it, jobs need tokens.
"""


class RelayOptionsError(PerseusError):
    """Options that do not fit together, or an address that is none."""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "node-relay",
        help="carry the streams of this node's ranks to the planner as one",
        description="Carry the streams of this node's ranks to the planner as one, until SIGTERM.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--planner",
        required=True,
        metavar="HOST:PORT",
        help="the planner, as jobs name it; several replicas with commas between",
    )
    parser.add_argument("--socket", required=True, type=Path, metavar="PATH", help="where to listen for agents")
    parser.add_argument(
        "--group", metavar="NAME", help="group whose members may connect, or its number (default: this user alone)"
    )
    tls = parser.add_argument_group("TLS towards the planner")
    tls.add_argument("--tls", action="store_true", help="speak TLS, and trust the system's authorities")
    tls.add_argument("--tls-ca", type=Path, metavar="PEM", help="speak TLS, and trust this authority alone")
    tls.add_argument("--tls-cert", type=Path, metavar="PEM", help="our certificate, for a planner that asks for one")
    tls.add_argument("--tls-key", type=Path, metavar="PEM", help="its key")
    add_log_option(parser)
    add_json_option(parser, "socket, planners, pid, version")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM.

    Returns:
        0.

    Raises:
        RelayOptionsError: The options do not fit together.
        RelayError: The socket cannot be listened on.
        ConnectionFileError: A certificate cannot be read.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    from perseus_dist.relay.process import RelayConfig, run_relay
    from perseus_dist.rpc.connection import ClientTls, channel_credentials

    planners = tuple(dict.fromkeys(one.strip() for one in args.planner.split(",")))
    for planner in planners:
        host, colon, port = planner.rpartition(":")
        if not (colon and host and port.isascii() and port.isdecimal() and 0 < int(port) < 1 << 16):
            raise RelayOptionsError(f"--planner {args.planner}: expected HOST:PORT, as in 127.0.0.1:50151")
    if (args.tls_cert is None) != (args.tls_key is None):
        raise RelayOptionsError("saw one of --tls-cert and --tls-key, expected both or neither")
    tls = None
    if args.tls or args.tls_ca or args.tls_cert:
        tls = ClientTls(ca=args.tls_ca, cert=args.tls_cert, key=args.tls_key)
        channel_credentials(tls)  # refused here, before anything is written
    begin_log(args.log_format, text="%(asctime)s node relay: %(message)s")

    def on_serving() -> None:
        if args.json:
            print_served(command="node-relay", socket=str(args.socket), planners=planners)

    config = RelayConfig(planners=planners, socket_path=args.socket, group=args.group, tls=tls, look=_look)
    asyncio.run(run_relay(config, on_serving))
    return 0


def _look() -> "NodeHello":
    """This node, and what is wrong with its clock control as this user sees it."""
    from perseus_dist.device.inspection.control import inspect_control
    from perseus_dist.device.node_name import node_name
    from perseus_dist.messages.finding import Level
    from perseus_dist.rpc.node_wire import NodeHello

    findings = inspect_control(os.environ, ())
    return NodeHello(node_name(os.environ), tuple(one for one in findings if one.level is not Level.OK))
