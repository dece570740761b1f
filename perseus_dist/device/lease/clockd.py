"""The lease daemon of a node: restores what the one before left, serves, and restores everything at its end."""

import asyncio
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

from perseus_dist import systemd
from perseus_dist.device.lease.file import prepare_lease_folder
from perseus_dist.device.lease.server import LeaseServer
from perseus_dist.device.lease.wire import MAX_LINE_BYTES
from perseus_dist.device.nvml.clock_setter import ClockSetter, NvmlSetter
from perseus_dist.device.nvml.nvml import Gpu, Nvml, NvmlError
from perseus_dist.device.rights import find_missing_right
from perseus_dist.errors import PerseusError, TransientError
from perseus_dist.unix_socket import group_number, is_socket_taken, unix_address

_log = logging.getLogger(__name__)

DEFAULT_LEASE_S = 2.0
UNBOUNDED_MHZ = (1, 100_000)
# A GPU that hangs or is lost must neither keep the daemon from serving the others, nor from ending.
_RESTORE_AT_START_S = 5.0
_RESTORE_AT_END_S = 5.0
_DRIVER_PATIENCE_S = 5.0


class ClockdError(PerseusError):
    """The daemon cannot serve."""


class NotNowError(ClockdError, TransientError):
    """The daemon cannot serve while the driver is not there, or another one serves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockdConfig:
    """Configuration of the daemon.

    Attributes:
        socket_path: Where it listens.
        folder: Of the lease files.
        group: Whose members may connect, by name or number; None for root's.
        lease_s: A client silent for so long has lost its lease.
        bounds_mhz: Lowest and highest clock that the operator allows.
    """

    socket_path: Path
    folder: Path
    group: str | None = None
    lease_s: float = DEFAULT_LEASE_S
    bounds_mhz: tuple[int, int] = UNBOUNDED_MHZ


def check_usable(environ: Mapping[str, str]) -> None:
    """Find out, without changing anything, whether this process could set clocks at all.

    A driver that does not answer within 5 s is not judged: a single GPU may hang it.

    Args:
        environ: Of the process.

    Raises:
        ClockdError: It could not: rights, bindings, driver or GPUs are missing.
    """
    missing = find_missing_right(environ)
    if missing:
        raise ClockdError(f"clockd cannot set clocks: {missing}; start it as the node's root, outside of containers")
    faults: list[str] = []

    def look() -> None:
        try:
            if not Nvml().uuids():
                faults.append("NVML shows no GPU here")
        except NvmlError as error:
            faults.append(str(error))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(_DRIVER_PATIENCE_S)
    if faults:
        raise NotNowError(f"clockd cannot set clocks: {faults[0]}")


def run_clockd(config: ClockdConfig, on_serving: Callable[[], None] = lambda: None) -> list[str]:
    """Serve until SIGTERM or SIGINT.

    Args:
        config: How.
        on_serving: Called once it listens.

    Returns:
        GPUs whose clocks could not be restored in time; their lease files name them for the next start.

    Raises:
        ClockdError: Another one listens already, or the socket cannot be made.
        LeaseFileError: The folder of the lease files cannot be used.
    """
    prepare_lease_folder(config.folder)
    return asyncio.run(_serve(config, on_serving))


async def serve_one(connected: socket.socket, server: LeaseServer, gpu_uuid: str) -> None:
    """Restore what a dead holder left of a GPU, then serve a single lease on a connected socket.

    Returns when the lease is over and the clocks are restored, however long that takes; 5 s after a SIGTERM at most.
    """
    reader, writer = await asyncio.open_unix_connection(sock=connected, limit=MAX_LINE_BYTES)
    server.restore_touched(gpu_uuid)
    serving = asyncio.ensure_future(_serve_restored(server, reader, writer))
    await _until_signal_or(serving)
    server.drop_all()
    await server.wait_until_free(_RESTORE_AT_END_S)
    serving.cancel()
    with suppress(asyncio.CancelledError):
        await serving


async def _serve_restored(server: LeaseServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await server.wait_until_free(_RESTORE_AT_START_S)
    await server.serve(reader, writer)
    await server.wait_until_free(None)


async def _serve(config: ClockdConfig, on_serving: Callable[[], None]) -> list[str]:
    server = LeaseServer(
        holder=f"clockd (process {os.getpid()})",
        folder=config.folder,
        lease_s=config.lease_s,
        bounds_mhz=config.bounds_mhz,
        make_setter=make_nvml_setter,
    )
    if server.restore_touched() and not await server.wait_until_free(_RESTORE_AT_START_S):
        _log.error("not restored yet: %s; going on with the other GPUs", ", ".join(server.held))
    listening = _listen(config)
    # Connections end with their leases: none is cut off before its clocks are restored.
    acceptor = await asyncio.start_unix_server(partial(_serve_to_the_end, server), sock=listening, limit=MAX_LINE_BYTES)
    stopped = _heed_signals()  # before anybody knows that it serves
    _log.info("listening on %s, lease %.1f s", config.socket_path, config.lease_s)
    systemd.notify("READY=1")
    on_serving()
    turns = count()  # of this loop, which grants, hears and ends leases
    watchdog = asyncio.ensure_future(systemd.keep_watchdog_quiet(lambda: next(turns) if acceptor.is_serving() else -1))
    try:
        await stopped
    finally:
        systemd.notify("STOPPING=1")
        watchdog.cancel()
        acceptor.close()
        with suppress(OSError):
            config.socket_path.unlink()
        server.drop_all()
        await server.wait_until_free(_RESTORE_AT_END_S)
    return server.held


async def _serve_to_the_end(server: LeaseServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve a connection; one that is open when clockd ends is cancelled, which asyncio's streams would log."""
    with suppress(asyncio.CancelledError):
        await server.serve(reader, writer)


def make_nvml_setter(gpu: Gpu) -> ClockSetter:
    """The writer of a process that has the rights."""
    return NvmlSetter(gpu)


def _listen(config: ClockdConfig) -> socket.socket:
    path = str(config.socket_path)
    try:
        is_taken = is_socket_taken(config.socket_path)
    except OSError as error:
        raise ClockdError(f"{path}: {error.strerror}; name a path for a socket with --socket") from None
    if is_taken:
        raise NotNowError(f"{path}: another process listens there already; stop it first, or name another --socket")
    try:
        group = None if config.group is None else group_number(config.group)
    except KeyError:
        why = f"--group {config.group}: there is no such group; make it with groupadd, or name its number"
        raise ClockdError(why) from None
    listening = socket.socket(socket.AF_UNIX)
    try:
        before = os.umask(0o177)  # the owner alone, until the group is set
        try:
            with unix_address(path) as address:
                listening.bind(address)
        finally:
            os.umask(before)
        try:
            if group is not None:
                os.chown(path, -1, group)
            config.socket_path.chmod(0o660)
            listening.listen(64)
        except OSError:
            config.socket_path.unlink(missing_ok=True)
            raise
    except OSError as error:
        listening.close()
        raise ClockdError(f"{path}: cannot listen there ({error.strerror}); name another --socket") from None
    return listening


async def _until_signal_or(*others: "asyncio.Future[None]") -> None:
    await asyncio.wait([_heed_signals(), *others], return_when=asyncio.FIRST_COMPLETED)


def _heed_signals() -> "asyncio.Future[None]":
    """Done once the process is asked to end."""
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[None] = loop.create_future()

    def stop() -> None:
        if not stopped.done():
            stopped.set_result(None)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    return stopped
