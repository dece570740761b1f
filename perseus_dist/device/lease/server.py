"""The lease daemon's asyncio side: connections, heartbeats, and who holds which GPU."""

import asyncio
import logging
import os
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from perseus_dist.device.control import ClockReport
from perseus_dist.device.lease.clock_slot import (
    Freed,
    Granted,
    Lost,
    Refused,
    Reported,
    Request,
    RestoreFailed,
    SlotEvent,
)
from perseus_dist.device.lease.file import LeaseFile, LeaseFileError, touched_gpus
from perseus_dist.device.lease.wire import Message, WireError, decode_from_client, encode, encode_report
from perseus_dist.device.lease.worker import LeaseWorker
from perseus_dist.device.nvml.clock_setter import ClockSetter
from perseus_dist.device.nvml.gpu_guard import Claimant, translate_pids
from perseus_dist.device.nvml.nvml import Gpu, Nvml

_log = logging.getLogger(__name__)

MAX_CONNECTIONS = 512
MAX_CONNECTIONS_PER_USER = 128  # a node has fewer GPUs, and each job's agent asks once
# A client that does not read is cut off before it costs memory.
_MAX_UNREAD_BYTES = 64 * 1024
_PEER_CREDENTIALS = struct.Struct("3i")


class LeaseServer:
    """Serves leases on connected sockets. All methods belong to the event loop's thread."""

    def __init__(
        self,
        *,
        holder: str,
        folder: Path,
        lease_s: float,
        bounds_mhz: tuple[int, int],
        make_setter: Callable[[Gpu], ClockSetter],
        caveat: str = "",
    ) -> None:
        """Prepare; nothing is opened.

        Args:
            holder: What this process calls itself towards others.
            folder: Of the lease files.
            lease_s: A client silent for so long has lost its lease.
            bounds_mhz: Lowest and highest clock that the operator allows.
            make_setter: Who writes a GPU's clocks.
            caveat: Sent with each lease: when clocks may stay locked in spite of it. Empty for never.
        """
        self._holder = holder
        self._folder = folder
        self._lease_s = lease_s
        self._bounds_mhz = bounds_mhz
        self._make_setter = make_setter
        self._caveat = caveat
        self._nvml = Nvml()
        self._leases: dict[str, _Lease] = {}
        self._num_connections: Counter[int] = Counter()  # by user id
        self._stopping = False
        self._all_free = asyncio.Event()
        self._all_free.set()

    @property
    def held(self) -> list[str]:
        """GPUs that are leased or being restored."""
        return sorted(self._leases)

    def restore_touched(self, only: str | None = None) -> list[str]:
        """Begin to restore every GPU that a holder that died left touched.

        Args:
            only: UUID of the one GPU to look at.

        Returns:
            Their UUIDs; ``wait_until_free`` waits for them.
        """
        begun = []
        for gpu_uuid in touched_gpus(self._folder):
            if only is not None and gpu_uuid != only:
                continue
            lease_file = LeaseFile(self._folder, gpu_uuid)
            try:
                was_touched = lease_file.take(self._holder)
            except LeaseFileError:
                continue  # its holder lives
            if not was_touched:
                lease_file.give_back()
                continue
            begun.append(gpu_uuid)
            _log.warning("%s: a holder that died left its clocks locked; restoring them", gpu_uuid)
            self._open_lease(gpu_uuid, lease_file, None, "the restore of what a dead holder left", lambda _: None)
        return begun

    async def wait_until_free(self, timeout_s: float | None) -> bool:
        """Wait until no GPU is leased or being restored; False if that takes longer than ``timeout_s``."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._all_free.wait()
        return self._all_free.is_set()

    def drop_all(self) -> None:
        """End every lease, and grant no other."""
        self._stopping = True
        for lease in list(self._leases.values()):
            lease.worker.drop()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection from its begin to its end."""
        connection = _Connection(writer, self._lease_s, self._caveat)
        uid = connection.peer[1]
        self._num_connections[uid] += 1
        try:
            if self._num_connections[uid] > MAX_CONNECTIONS_PER_USER:
                connection.refuse(f"user id {uid} has {MAX_CONNECTIONS_PER_USER} connections open already", retry=True)
                return
            if self._num_connections.total() > MAX_CONNECTIONS:
                connection.refuse(f"{MAX_CONNECTIONS} connections are open already", retry=True)
                return
            await self._converse(connection, reader)
        except TimeoutError:
            if connection.worker is None:
                _log.warning("%s: asked for no lease within %.1f s, cut off", connection.who, self._lease_s)
            else:
                _log.warning("%s: silent for %.1f s, its lease is over", connection.who, self._lease_s)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        except (WireError, ValueError) as error:  # ValueError: a line beyond the limit
            _log.warning("%s: cut off: %s", connection.who, error)
            connection.refuse(str(error), retry=False)
        finally:
            self._num_connections[uid] -= 1
            if not self._num_connections[uid]:
                del self._num_connections[uid]
            if connection.worker is not None:
                connection.worker.drop()
                if not self._stopping:  # else the daemon itself waits, and not for ever
                    await connection.freed.wait()
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _converse(self, connection: "_Connection", reader: asyncio.StreamReader) -> None:
        loop = asyncio.get_running_loop()
        acquire_until_s = loop.time() + self._lease_s
        while not connection.freed.is_set():
            # Beats keep a lease, not a connection that asks for none.
            until_s = acquire_until_s if connection.worker is None else loop.time() + self._lease_s
            async with asyncio.timeout_at(until_s):
                line = await reader.readline()
            if not line.endswith(b"\n"):  # the end, perhaps in the middle of a line
                return
            message = decode_from_client(line)
            match message["op"]:
                case "acquire" if connection.worker is None:
                    if not self._acquire(connection, message):
                        return
                case "set" if connection.worker is not None:
                    connection.request(message)
                case "release":
                    return
                case "beat":
                    pass
                case op:
                    raise WireError(f"op is {op!r} at the wrong moment")

    def _acquire(self, connection: "_Connection", message: Message) -> bool:
        gpu_uuid: str = message["gpu"]
        pid, uid = connection.peer
        claimant = Claimant(pid=pid, uid=uid, own_pids=translate_pids(message["pids"], pid))
        if self._stopping:
            connection.refuse("the daemon is ending", retry=True)
        elif (other := self._leases.get(gpu_uuid)) is not None:
            delay = other.worker.describe_delay(time.monotonic_ns())
            connection.refuse(f"{gpu_uuid} is held by {other.who}{delay}", retry=True)
        else:
            connection.who = f"process {pid} (user id {uid})"
            connection.worker = self._open_lease(
                gpu_uuid, LeaseFile(self._folder, gpu_uuid), claimant, connection.who, connection.handle
            )
            return True
        return False

    def _open_lease(
        self,
        gpu_uuid: str,
        lease_file: LeaseFile,
        claimant: Claimant | None,
        who: str,
        take: "Callable[[SlotEvent], None]",
    ) -> LeaseWorker:
        loop = asyncio.get_running_loop()
        lease = _Lease(gpu_uuid, who, take)

        def deliver(event: SlotEvent) -> None:
            with suppress(RuntimeError):  # the loop has ended; the lease file remembers
                loop.call_soon_threadsafe(self._handle, lease, event)

        self._leases[gpu_uuid] = lease
        self._all_free.clear()
        gpu = self._nvml.gpu(gpu_uuid)
        lease.worker = LeaseWorker(
            gpu,
            self._make_setter(gpu),
            lease_file,
            claimant=claimant,
            holder=f"{self._holder} for {who}",
            bounds_mhz=self._bounds_mhz,
            deliver=deliver,
        )
        return lease.worker

    def _handle(self, lease: "_Lease", event: SlotEvent) -> None:
        match event:
            case Granted():
                _log.info("%s: leased to %s", lease.gpu_uuid, lease.who)
            case Refused(reason=reason):
                _log.info("%s: refused to %s: %s", lease.gpu_uuid, lease.who, reason)
            case Lost(reason=reason):
                _log.warning("%s: lease of %s ended: %s", lease.gpu_uuid, lease.who, reason)
            case RestoreFailed(reason=reason, num_failures=num_failures, retry_s=retry_s):
                _log.error(
                    "%s: CLOCKS MAY STILL BE LOCKED, restore failed (%d times), again in %.2f s: %s",
                    lease.gpu_uuid,
                    num_failures,
                    retry_s,
                    reason,
                )
            case Freed():
                _log.info("%s: free", lease.gpu_uuid)
                if self._leases.get(lease.gpu_uuid) is lease:
                    del self._leases[lease.gpu_uuid]
                if not self._leases:
                    self._all_free.set()
        lease.take(event)


class _Lease:
    """Who holds a GPU, and where the news go."""

    worker: LeaseWorker

    def __init__(self, gpu_uuid: str, who: str, take: Callable[[SlotEvent], None]) -> None:
        self.gpu_uuid = gpu_uuid
        self.who = who
        self.take = take


class _Connection:
    """One client."""

    def __init__(self, writer: asyncio.StreamWriter, lease_s: float, caveat: str) -> None:
        self._writer = writer
        self._granted = {"op": "granted", "lease_s": lease_s, "pid": os.getpid(), "caveat": caveat}
        self._clocks_mhz: frozenset[int] = frozenset()
        self.peer = _peer(writer)
        self.who = f"process {self.peer[0]} (user id {self.peer[1]})"
        self.worker: LeaseWorker | None = None
        self.freed = asyncio.Event()

    def handle(self, event: SlotEvent) -> None:
        """Pass news of the lease on to the client."""
        match event:
            case Granted(clocks_mhz=clocks_mhz):
                self._clocks_mhz = frozenset(clocks_mhz)
                self._send(encode({**self._granted, "clocks_mhz": clocks_mhz}))
            case Refused(reason=reason, retry=retry, unusable=unusable):
                self.refuse(reason, retry=retry, unusable=unusable)
            case Reported(report=report):
                self._send(encode_report(report))
            case Lost(reason=reason):
                self._send(encode({"op": "lost", "reason": reason}))
            case Freed():
                self._send(encode({"op": "restored"}))
                self.freed.set()

    def refuse(self, reason: str, *, retry: bool, unusable: bool = False) -> None:
        """Send a refusal with its reason, and whether the client may try again."""
        self._send(encode({"op": "refused", "reason": reason, "retry": retry, "unusable": unusable}))

    def request(self, message: Message) -> None:
        """Pass a wish on to the worker."""
        assert self.worker is not None
        clock_mhz, request_ns = message["clock_mhz"], message["request_ns"]
        if clock_mhz is not None and clock_mhz not in self._clocks_mhz:
            self.handle(Reported(report=_refusal(clock_mhz, request_ns)))
            return
        self.worker.request(Request(clock_mhz=clock_mhz, request_ns=request_ns))

    def _send(self, line: bytes) -> None:
        if self._writer.transport.get_write_buffer_size() > _MAX_UNREAD_BYTES:
            _log.warning("%s: does not read, cut off", self.who)
            self._writer.transport.abort()
        elif not self._writer.transport.is_closing():
            self._writer.write(line)


def _refusal(clock_mhz: int, request_ns: int) -> ClockReport:
    return ClockReport(
        requested_mhz=clock_mhz,
        observed_mhz=None,
        event_reasons=0,
        request_ns=request_ns,
        set_ns=0,
        reached_ns=None,
        error=f"{clock_mhz} MHz is not among the clocks that were granted",
    )


def _peer(writer: asyncio.StreamWriter) -> tuple[int, int]:
    """Process and user of the other end, as the kernel knows them."""
    credentials = writer.get_extra_info("socket").getsockopt(
        socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size
    )
    pid, uid, _ = _PEER_CREDENTIALS.unpack(credentials)
    return pid, uid
