"""Options of the planner's metrics: where they are served, with which certificate, to whom."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from perseus_dist.cli.address_option import address
from perseus_dist.cli.number_options import whole
from perseus_dist.errors import PerseusError

if TYPE_CHECKING:
    from perseus_dist.planner.access.address import Address
    from perseus_dist.planner.metrics.endpoint import EndpointConfig


class MetricsOptionsError(PerseusError):
    """Options of metrics that do not fit together."""


def add_metrics_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the metrics endpoint to a command's parser."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--metrics",
        type=address,
        metavar="HOST:PORT",
        help="serve Prometheus metrics there; other addresses than loopback need --metrics-tls-cert or --insecure",
    )
    where.add_argument(
        "--metrics-port",
        type=whole(0, 65_535, "a port from 0 to 65535"),
        metavar="PORT",
        help="serve Prometheus metrics on 127.0.0.1; 0: any",
    )
    parser.add_argument(
        "--metrics-tls-cert", type=Path, metavar="PEM", help="certificate of the metrics; read again when it changes"
    )
    parser.add_argument("--metrics-tls-key", type=Path, metavar="PEM", help="its key")
    parser.add_argument(
        "--metrics-password-file",
        type=Path,
        metavar="FILE",
        help="ask for a user and a password (basic authentication): lines USER:HASH, as 'htpasswd -nB USER' prints; "
        "read again when it changes",
    )


def check_metrics_options(args: argparse.Namespace) -> None:
    """Check that they fit together, without a look at the files that they name.

    Raises:
        PerseusError: They do not.
    """
    cert, key, passwords = args.metrics_tls_cert, args.metrics_tls_key, args.metrics_password_file
    bind = _place(args)
    if bind is None:
        if cert or key or passwords:
            raise MetricsOptionsError("--metrics-tls-cert, -key and --metrics-password-file need --metrics HOST:PORT")
        return
    if (cert is None) != (key is None):
        raise MetricsOptionsError("saw one of --metrics-tls-cert and --metrics-tls-key, expected both or neither")
    if not bind.is_loopback and cert is None and not args.insecure:
        raise MetricsOptionsError(
            f"--metrics {bind} is no loopback address: other machines could read passwords and jobs' names on the way. "
            "Give --metrics-tls-cert and --metrics-tls-key, or --insecure on a network that you trust"
        )


def metrics_endpoint(args: argparse.Namespace) -> "EndpointConfig | None":
    """Where metrics are to be served; files are looked at now, before anything is written.

    Raises:
        PerseusError: Options do not fit together, or a file cannot be used.
    """
    check_metrics_options(args)
    if (bind := _place(args)) is None:
        return None
    from perseus_dist.planner.metrics.endpoint import EndpointConfig

    cert, key, passwords = args.metrics_tls_cert, args.metrics_tls_key, args.metrics_password_file
    config = EndpointConfig(bind=bind, cert=cert, key=key, password_file=passwords)
    config.certificate()
    config.admits()
    return config


def _place(args: argparse.Namespace) -> "Address | None":
    from perseus_dist.planner.access.address import Address, parse_address

    if args.metrics is not None:
        return parse_address(args.metrics)
    return None if args.metrics_port is None else Address("127.0.0.1", args.metrics_port)
