"""``perseus-dist clockd``: the lease daemon of a node."""

import argparse
import logging
import os
from pathlib import Path

from perseus_dist.cli.node.log_format import add_json_option, add_log_option, begin_log, print_served
from perseus_dist.cli.number_options import real, whole
from perseus_dist.device.lease.clockd import (
    DEFAULT_LEASE_S,
    UNBOUNDED_MHZ,
    ClockdConfig,
    ClockdError,
    NotNowError,
    check_usable,
    run_clockd,
)
from perseus_dist.device.lease.connectors import DEFAULT_CLOCKD_SOCKET, clockd_socket
from perseus_dist.device.lease.file import SYSTEM_FOLDER, lease_folder
from perseus_dist.device.lease.lossy_log import LossyHandler
from perseus_dist.planning.output_file import no_folder_in
from perseus_dist.systemd import pause_before_restart

_log = logging.getLogger(__name__)

_EPILOG = f"""\
example:
  perseus-dist clockd
  perseus-dist clockd --group gpu --min-mhz 900 --max-mhz 1400

Runs as root, one per node, so that training jobs need no rights. A job's agent connects to its socket and leases the
clocks of one GPU; who else asks for it meanwhile is refused. When the lease ends, however it ends, the clocks are
unlocked. What a crash of the daemon itself leaves locked is unlocked at its next start, before it listens. Where it
could set no clocks, for want of rights, driver or nvidia-ml-py, it says so and ends.

The socket is --socket, else PERSEUS_CLOCKD_SOCKET, else {DEFAULT_CLOCKD_SOCKET}. Lease files,
which survive a crash, are in --lease-dir, else PERSEUS_LEASE_DIR, else {SYSTEM_FOLDER}.
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "clockd",
        help="lease the GPUs' clocks of this node to training jobs",
        description="Set GPU clocks for training jobs on this node, and always unlock them again.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--socket", metavar="PATH", help="where to listen")
    parser.add_argument(
        "--group", metavar="NAME", help="group whose members may connect, or its number (default: root's alone)"
    )
    parser.add_argument(
        "--lease-s",
        type=real(0.5, 60.0, "seconds from 0.5 to 60"),
        default=DEFAULT_LEASE_S,
        metavar="S",
        help="a client silent for so long loses its lease (default: %(default)s)",
    )
    low_mhz, high_mhz = UNBOUNDED_MHZ
    clock_mhz = whole(low_mhz, high_mhz, f"MHz from {low_mhz} to {high_mhz}")
    parser.add_argument("--min-mhz", type=clock_mhz, default=low_mhz, metavar="MHZ", help="lowest clock ever set")
    parser.add_argument("--max-mhz", type=clock_mhz, default=high_mhz, metavar="MHZ", help="highest clock ever set")
    add_log_option(parser)
    add_json_option(parser, "socket, lease_dir, pid, version")
    parser.add_argument("--lease-dir", type=Path, metavar="DIR", help="where lease files are kept")
    parser.set_defaults(run=run)


def check_options(args: argparse.Namespace) -> None:
    """Check that options fit together.

    Raises:
        ClockdError: They allow no clock.
    """
    if args.min_mhz > args.max_mhz:
        raise ClockdError(
            f"--min-mhz {args.min_mhz} lies above --max-mhz {args.max_mhz}: no clock could ever be set; exchange them"
        )


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM.

    Returns:
        0; 1 if clocks could not be restored in the end.

    Raises:
        ClockdError: No clock is allowed, or this process cannot set clocks, or cannot listen.
    """
    from perseus_dist.cli.settings.defaults import log_sources

    check_options(args)
    begin_log(args.log_format, text="%(asctime)s clockd: %(message)s", handler=LossyHandler())
    log_sources(args, _log)
    config = ClockdConfig(
        socket_path=Path(args.socket or clockd_socket(os.environ)),
        folder=args.lease_dir or lease_folder(os.environ),
        group=args.group,
        lease_s=args.lease_s,
        bounds_mhz=(args.min_mhz, args.max_mhz),
    )
    if (file := no_folder_in(config.folder.absolute())) is not None:
        raise ClockdError(f"--lease-dir {config.folder}: {file} is no folder; name a folder, or none for the usual one")
    _log.info("%s", config)
    try:
        check_usable(os.environ)
    except NotNowError:
        pause_before_restart(os.environ)
        raise

    def on_serving() -> None:
        if args.json:
            print_served(command="clockd", socket=str(config.socket_path), lease_dir=str(config.folder))

    left = run_clockd(config, on_serving)
    if left:
        _log.error("clocks may still be locked: %s; run 'perseus-dist release'", ", ".join(left))
    return 1 if left else 0
