"""A private lease process: the lease daemon for one client and one GPU, on an inherited socket.

Direct control and zeusd are made of it. It outlives its client by just the time that a restore takes.

    python -m perseus_dist.device.lease_process FD direct|zeusd LEASE_S FOLDER [ZEUSD_SOCKET]
"""

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from perseus_dist.device.clock_setter import ClockSetter
from perseus_dist.device.clockd import UNBOUNDED_MHZ, make_nvml_setter, serve_one
from perseus_dist.device.lease_file import prepare_lease_folder
from perseus_dist.device.lease_server import LeaseServer
from perseus_dist.device.nvml import Gpu


def main(argv: list[str]) -> None:
    """Serve the one lease."""
    descriptor, name, lease_s, folder = argv[:4]
    logging.basicConfig(format="%(asctime)s perseus-dist lease: %(message)s", level=logging.WARNING)
    connected = socket.socket(fileno=int(descriptor))
    prepare_lease_folder(Path(folder))
    asyncio.run(_serve(connected, name, float(lease_s), Path(folder), _setter(name, argv[4:])))


async def _serve(
    connected: socket.socket, name: str, lease_s: float, folder: Path, make_setter: Callable[[Gpu], ClockSetter]
) -> None:
    server = LeaseServer(
        holder=f"{name} control (process {os.getpid()})",
        folder=folder,
        lease_s=lease_s,
        bounds_mhz=UNBOUNDED_MHZ,
        make_setter=make_setter,
    )
    await serve_one(connected, server)


def _setter(name: str, arguments: list[str]) -> Callable[[Gpu], ClockSetter]:
    if name != "zeusd":
        return make_nvml_setter
    from perseus_dist.device.zeusd import ZeusdSetter

    return lambda gpu: ZeusdSetter(arguments[0], gpu, os.environ)


if __name__ == "__main__":
    main(sys.argv[1:])
