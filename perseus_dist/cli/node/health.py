"""``perseus-dist health``: whether a planner, clockd or a planning worker serves, as an exit code for probes."""

import argparse
import json
import os
import stat
import sys
import time
from pathlib import Path

from perseus_dist.cli.number_options import real
from perseus_dist.errors import PerseusError

_DEFAULT_PLANNER = "127.0.0.1:50151"
_PLANNER_VARIABLE = "PERSEUS_PLANNER"
_ALIVE_S = 30.0  # a planning worker touches its file every two seconds, and its machine may be busy

_EPILOG = """\
example:
  perseus-dist health
  perseus-dist health --planner planner.example:50151 --tls-ca ca.pem
  perseus-dist health --planner 127.0.0.1:50151 --tls-ca ca.pem --tls-server-name planner.example
  perseus-dist health --planner planner-0.example:50151,planner-1.example:50151 --tls
  perseus-dist health --clockd /run/perseus-dist/clockd.sock
  perseus-dist health --planning-worker /tmp/alive

Asks a planner by the standard gRPC health protocol, which needs no token, or the lease daemon at a socket, of which it
takes no lease. For exec probes of Kubernetes, whose own gRPC probes speak no TLS, and for load balancers and monitors.
A planning worker listens nowhere: it serves while it touches the file of its --alive-file.

Replicas of one planner, with commas between, are asked one by one: the planner serves if one of them does.

The exit code is 0 if it serves; 1 if it does not, or cannot be reached; 2 if the arguments cannot be used.
"""


class HealthOptionsError(PerseusError):
    """Options that do not fit together, or an address that is none."""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "health",
        help="say whether a planner, clockd or a planning worker serves",
        description="Ask whether a planner, the lease daemon of this node, or a planning worker serves.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--planner", metavar="HOST:PORT[,...]", help=f"default: ${_PLANNER_VARIABLE}, else {_DEFAULT_PLANNER}"
    )
    which.add_argument("--clockd", metavar="SOCKET", help="ask the lease daemon that listens there")
    which.add_argument(
        "--planning-worker", type=Path, metavar="FILE", help="look when a planning worker has touched its file"
    )
    parser.add_argument(
        "--timeout-s",
        type=real(0.1, 60.0, "seconds from 0.1 to 60"),
        default=3.0,
        metavar="S",
        help="how long to wait for the answer (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    tls = parser.add_argument_group("TLS towards a planner")
    tls.add_argument("--tls", action="store_true", help="speak TLS, and trust the system's authorities")
    tls.add_argument("--tls-ca", type=Path, metavar="PEM", help="speak TLS, and trust this authority alone")
    tls.add_argument("--tls-cert", type=Path, metavar="PEM", help="our certificate, for a planner that asks for one")
    tls.add_argument("--tls-key", type=Path, metavar="PEM", help="its key")
    tls.add_argument(
        "--tls-server-name", metavar="NAME", help="the name in the planner's certificate, where it is not HOST"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Ask, and say in one line what came of it.

    Returns:
        0 if it serves, else 1.

    Raises:
        HealthOptionsError: The options do not fit together.
        ConnectionFileError: A certificate cannot be read.
    """
    speaks_tls = bool(args.tls or args.tls_ca or args.tls_cert)
    if (args.tls_cert is None) != (args.tls_key is None):
        raise HealthOptionsError("saw one of --tls-cert and --tls-key, expected both or neither")
    if args.tls_server_name is not None and not speaks_tls:
        raise HealthOptionsError("--tls-server-name needs --tls or --tls-ca")
    if args.planning_worker is not None:
        if speaks_tls:
            raise HealthOptionsError("--planning-worker looks at a file: expected no TLS options beside it")
        subject, fault = f"planning worker of {args.planning_worker}", _find_silence(args.planning_worker)
    elif args.clockd is not None:
        if speaks_tls:
            raise HealthOptionsError("--clockd asks at a UNIX socket: expected no TLS options beside it")
        from perseus_dist.device.lease.health import find_clockd_fault

        subject, fault = f"clockd at {args.clockd}", find_clockd_fault(args.clockd, args.timeout_s)
    else:
        addresses = args.planner or os.environ.get(_PLANNER_VARIABLE) or _DEFAULT_PLANNER
        if "," in addresses:
            return _ask_replicas([one.strip() for one in addresses.split(",")], args, speaks_tls=speaks_tls)
        subject = f"planner at {addresses}"
        fault = _find_planner_fault(addresses, args, speaks_tls=speaks_tls)
    if args.json:
        print(json.dumps({"subject": subject, "serves": not fault, "fault": fault}))
    elif fault:
        print(f"{subject} does not serve: {fault}", file=sys.stderr)
    else:
        print(f"{subject} serves")
    return 1 if fault else 0


def _find_silence(alive_file: Path) -> str:
    try:
        found = alive_file.stat()
    except FileNotFoundError as error:
        return f"it has not begun ({error.strerror})"
    except (OSError, ValueError) as error:
        return f"its file cannot be looked at ({getattr(error, 'strerror', None) or error})"
    if not stat.S_ISREG(found.st_mode):
        return "this is no regular file; name the worker's --alive-file"
    silent_s = time.time() - found.st_mtime
    return f"it has been silent for {silent_s:.0f} s" if silent_s > _ALIVE_S else ""


def _ask_replicas(addresses: list[str], args: argparse.Namespace, *, speaks_tls: bool) -> int:
    """Ask each replica; jobs are served as long as one of them serves."""
    for address in addresses:
        _check_address(address)
    faults = {address: _find_planner_fault(address, args, speaks_tls=speaks_tls) for address in addresses}
    serves = not all(faults.values())
    if args.json:
        replicas = [
            {"subject": f"planner at {address}", "serves": not fault, "fault": fault}
            for address, fault in faults.items()
        ]
        fault = "" if serves else "no replica serves"
        print(
            json.dumps(
                {"subject": f"planner at {','.join(faults)}", "serves": serves, "fault": fault, "replicas": replicas}
            )
        )
    else:
        for address, fault in faults.items():
            if fault:
                print(f"planner at {address} does not serve: {fault}", file=sys.stderr)
            else:
                print(f"planner at {address} serves")
    return 0 if serves else 1


def _check_address(address: str) -> None:
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isascii() and port.isdecimal() and 0 < int(port) < 1 << 16):
        raise HealthOptionsError(f"--planner {address}: expected HOST:PORT, as in {_DEFAULT_PLANNER}")


def _find_planner_fault(address: str, args: argparse.Namespace, *, speaks_tls: bool) -> str:
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # gRPC's own lines would stand beside our one
    import grpc

    from perseus_dist.cli.jobs.call_troubles import connection_trouble
    from perseus_dist.rpc.connection import CHANNEL_OPTIONS, ClientTls, channel_credentials
    from perseus_dist.rpc.health import find_service_fault

    _check_address(address)
    options = [*CHANNEL_OPTIONS, ("grpc.enable_http_proxy", 0)]  # whether the planner serves, not a proxy on the way
    tls = ClientTls(ca=args.tls_ca, cert=args.tls_cert, key=args.tls_key) if speaks_tls else None
    if tls is None:
        channel = grpc.insecure_channel(address, options)
    else:
        if args.tls_server_name is not None:
            options.append(("grpc.ssl_target_name_override", args.tls_server_name))
        channel = grpc.secure_channel(address, channel_credentials(tls), options)
    with channel:
        fault = find_service_fault(channel, args.timeout_s)
    if not fault.startswith("UNAVAILABLE"):
        return fault
    trouble = connection_trouble(address, tls, server_name=args.tls_server_name, timeout_s=args.timeout_s)
    return fault if trouble is None else f"{trouble.what}; {trouble.remedy}"
