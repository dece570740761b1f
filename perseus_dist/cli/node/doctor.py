"""``perseus-dist doctor``: what is wrong on this node, with one remedy each."""

import argparse
import json
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version

from perseus_dist.device.inspection import Finding, Level, inspect_device

_EPILOG = """\
example:
  perseus-dist doctor
  perseus-dist doctor --planner planner.example:50151 --json

Looks at packages, driver, GPUs, the right to set clocks, clock daemons, other jobs, operators' locks and power caps,
and the planner. Asks clockd for a lease of each GPU and gives it back; sets nothing. Exits with 1 if something keeps
perseus-dist from working.
"""

_PLANNER_TIMEOUT_S = 3.0
_SERVING = b"\x08\x01"  # grpc.health.v1.HealthCheckResponse with status SERVING


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "doctor",
        help="say what is wrong on this node, with a remedy",
        description="Look for what keeps perseus-dist from working on this node.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--planner", metavar="ADDRESS", help="host:port of a planner that must be reachable")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Look at everything.

    Returns:
        0; 1 if a finding is a failure.
    """
    findings = [*_inspect_packages(), *inspect_device(os.environ)]
    if args.planner is not None:
        findings.append(_inspect_planner(args.planner))
    if args.json:
        print(json.dumps({"findings": [asdict(finding) for finding in findings]}))
    else:
        for finding in findings:
            print(f"{finding.level:<4}  {finding.subject}: {finding.what}")
            if finding.remedy:
                print(f"      -> {finding.remedy}")
    return 1 if any(finding.level is Level.FAIL for finding in findings) else 0


def _inspect_packages() -> Iterator[Finding]:
    needed_for = {"nvidia-ml-py": "reading and setting GPUs", "grpcio": "reaching a planner", "protobuf": "the same"}
    found = [f"perseus-dist {version('perseus-dist')}"]
    for name, purpose in needed_for.items():
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            yield Finding(
                level=Level.FAIL,
                subject="packages",
                what=f"{name} is not installed, which is needed for {purpose}",
                remedy="pip install 'perseus-dist[agent]'",
            )
    yield Finding(level=Level.OK, subject="packages", what=", ".join(found))


def _inspect_planner(address: str) -> Finding:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PLANNER_TIMEOUT_S).close()
    except (OSError, ValueError, OverflowError) as error:
        return Finding(
            level=Level.FAIL,
            subject="planner",
            what=f"{address} cannot be reached ({error})",
            remedy="start 'perseus-dist planner' there, and let this node through the firewall",
        )
    try:
        import grpc
    except ImportError:
        return Finding(level=Level.WARN, subject="planner", what=f"{address} is open; grpcio is missing to ask more")
    with grpc.insecure_channel(address) as channel:
        check: Callable[..., bytes] = channel.unary_unary("/grpc.health.v1.Health/Check")
        try:
            answer = check(b"", timeout=_PLANNER_TIMEOUT_S)
        except grpc.RpcError as error:
            return Finding(
                level=Level.WARN,
                subject="planner",
                what=f"{address} is open but does not answer plain gRPC ({error.code().name})",
                remedy="if it uses TLS, that is as it should be; otherwise something else listens there",
            )
    if answer == _SERVING:
        return Finding(level=Level.OK, subject="planner", what=f"{address} serves")
    return Finding(
        level=Level.WARN,
        subject="planner",
        what=f"{address} answers but does not serve now",
        remedy="wait until it has started, or look at its log",
    )
