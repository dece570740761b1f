"""A private lease process: the lease daemon for one client and one GPU, on an inherited socket.

Direct control and zeusd are made of it. It first restores what one before it left, and outlives its client by just the
time that a restore takes. So that it can, it leaves the job's process tree and control group where that is possible.

    python -m perseus_dist.device.lease.process FD direct|zeusd GPU LEASE_S FOLDER [ZEUSD_SOCKET]
"""

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from perseus_dist.device.lease.clockd import UNBOUNDED_MHZ, make_nvml_setter, serve_one
from perseus_dist.device.lease.detach import detach, leave_job
from perseus_dist.device.lease.file import prepare_lease_folder
from perseus_dist.device.lease.lossy_log import LossyHandler
from perseus_dist.device.lease.server import LeaseServer
from perseus_dist.device.nvml.clock_setter import ClockSetter
from perseus_dist.device.nvml.nvml import Gpu
from perseus_dist.device.rights import owns_simulated_gpus


def main(argv: list[str]) -> None:
    """Serve the one lease."""
    descriptor, name, gpu_uuid, lease_s, folder = argv[:5]
    detach()
    logging.basicConfig(
        format="%(asctime)s perseus-dist lease: %(message)s", level=logging.WARNING, handlers=[LossyHandler()]
    )
    connected = socket.socket(fileno=int(descriptor))
    prepare_lease_folder(Path(folder))
    reach = leave_job()
    server = LeaseServer(
        holder=f"{name} control (process {os.getpid()})",
        folder=Path(folder),
        lease_s=float(lease_s),
        bounds_mhz=UNBOUNDED_MHZ,
        make_setter=_setter(name, argv[5:]),
        # Locks of simulated GPUs end with the simulation.
        caveat=_caveat(name, reach) if reach and not owns_simulated_gpus(os.environ) else "",
    )
    asyncio.run(serve_one(connected, server, gpu_uuid))


def _caveat(name: str, reach: str) -> str:
    return (
        f"{name} control cannot outlive {reach}: a SIGKILL of all of it leaves clocks locked until "
        "'perseus-dist release' on the node; 'perseus-dist clockd' on the node has no such gap"
    )


def _setter(name: str, arguments: list[str]) -> Callable[[Gpu], ClockSetter]:
    if name != "zeusd":
        return make_nvml_setter
    from perseus_dist.device.nvml.zeusd import ZeusdSetter

    return lambda gpu: ZeusdSetter(arguments[0], gpu, os.environ)


if __name__ == "__main__":
    main(sys.argv[1:])
