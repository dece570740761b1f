"""The relay's process: its socket, what bounds it, and how it leaves."""

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import grpc.aio

from perseus_dist import systemd
from perseus_dist.errors import PerseusError, TransientError
from perseus_dist.relay.agents import AgentService
from perseus_dist.relay.uplink import Uplink
from perseus_dist.rpc.connection import ClientTls
from perseus_dist.rpc.limits import MAX_AGENT_MESSAGE_BYTES, MAX_PLANNER_MESSAGE_BYTES
from perseus_dist.rpc.node_wire import NodeHello
from perseus_dist.unix_socket import LONGEST_ADDRESS_BYTES, group_number, is_socket_taken

_OTHERS_MAY_WRITE = 0o002
_LOOK_S = 30.0  # at the node's clock control
_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_AGENT_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_PLANNER_MESSAGE_BYTES),
    ("grpc.max_metadata_size", 8 << 10),
    ("grpc.absolute_max_metadata_size", 16 << 10),
    ("grpc.compression_enabled_algorithms_bitset", 1),
    ("grpc.max_concurrent_streams", 8),
    ("grpc.http2.min_ping_interval_without_data_ms", 2_000),
)

_log = logging.getLogger(__name__)


class RelayError(PerseusError):
    """The relay cannot listen."""


class SocketTakenError(RelayError, TransientError):
    """Another relay listens there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayConfig:
    """How a node relay is to run.

    Attributes:
        planners: ``host:port`` of each replica, as the jobs of this node name it.
        socket_path: Where agents come in.
        group: Whose members may connect as well; None: this user alone. With a group every job needs a token.
        tls: Files for TLS towards the planner; None for plain text.
        look: Says which node this is, and what is wrong with its clock control; it may take some seconds.
    """

    planners: tuple[str, ...]
    socket_path: Path
    group: str | None = None
    tls: ClientTls | None = None
    look: Callable[[], NodeHello]


async def run_relay(config: RelayConfig, on_serving: Callable[[], None] = lambda: None) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        config: How.
        on_serving: Called once it listens.

    Raises:
        RelayError: The socket cannot be listened on.
    """
    uplinks = {address: Uplink(address, config.tls) for address in config.planners}
    server = grpc.aio.server(options=_OPTIONS)
    server.add_generic_rpc_handlers((AgentService(uplinks, needs_token=config.group is not None),))
    asked = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, asked.set)
    _listen(server, config)
    await server.start()
    running = {asyncio.create_task(uplink.run()) for uplink in uplinks.values()}
    running.add(asyncio.create_task(_announce(config.look, tuple(uplinks.values()))))
    stopping = asyncio.create_task(asked.wait())
    systemd.notify("READY=1")
    on_serving()
    _log.info("agents of this node come in at %s", config.socket_path)
    await asyncio.wait({*running, stopping}, return_when=asyncio.FIRST_COMPLETED)
    systemd.notify("STOPPING=1")
    with suppress(OSError):
        config.socket_path.unlink()
    await server.stop(None)
    stopping.cancel()
    for task in running:
        if task.done():
            task.result()
        task.cancel()


async def _announce(look: Callable[[], NodeHello], uplinks: Sequence[Uplink]) -> None:
    """Say which node this is, for ever; whatever goes wrong with that, streams of agents go on."""
    while True:
        try:
            hello = await asyncio.to_thread(look)
        except Exception as error:
            _log.warning("this node cannot be looked at (%r)", error)
        else:
            for uplink in uplinks:
                uplink.announce(hello)
        await asyncio.sleep(_LOOK_S)


def _listen(server: grpc.aio.Server, config: RelayConfig) -> None:
    """Bind the socket for its owner alone, then admit the group: at no moment may others connect."""
    path = config.socket_path.absolute()
    if len(os.fsencode(path)) > LONGEST_ADDRESS_BYTES:
        raise RelayError(f"--socket {path}: {len(os.fsencode(path))} bytes, expected at most {LONGEST_ADDRESS_BYTES}")
    try:
        group = None if config.group is None else group_number(config.group)
    except KeyError:
        raise RelayError(f"--group {config.group}: there is no such group") from None
    try:
        _make_folder(path.parent, group)
        if path.parent.stat().st_mode & _OTHERS_MAY_WRITE:
            raise RelayError(f"--socket {path}: everyone may write to its folder; name one in a folder of your own")
        if is_socket_taken(path):
            taken = f"--socket {path}: another node relay listens there; name another path, or end that one"
            raise SocketTakenError(taken)
        before = os.umask(0o177)  # the owner alone, until the group is set
        try:
            server.add_insecure_port(f"unix:{path}")
        finally:
            os.umask(before)
        if group is not None:
            _give_to(path, group)
    except FileExistsError:
        raise RelayError(f"--socket {path}: something else is there; name another path, or remove it") from None
    except (OSError, RuntimeError) as error:
        raise RelayError(f"--socket {path}: cannot be listened on ({error}); name another") from error


def _give_to(path: Path, group: int) -> None:
    try:
        os.chown(path, -1, group)
        path.chmod(0o660)
    except OSError:
        path.unlink(missing_ok=True)
        raise


def _make_folder(folder: Path, group: int | None) -> None:
    """Make a folder that those who may connect can pass; one that is there stays as it is."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        return
    if group is not None:
        os.chown(folder, -1, group)
        folder.chmod(0o710)
