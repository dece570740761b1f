"""Carries connections from one place to another; while it is stopped (SIGSTOP) the two are partitioned.

    python tests/support/forwarder.py LISTEN CONNECT

Each is ``HOST:PORT`` or the path of a UNIX socket. A stopped forwarder is what a network is that loses all packets:
connections stay open and carry nothing, new ones are made by the kernel and not answered; SIGCONT heals it, and what
was sent meanwhile arrives.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

_CHUNK_BYTES = 1 << 16
_PATIENCE_S = 60.0


class Forwarder:
    """The process.

    Args:
        listen: Where it takes connections, ``HOST:PORT`` or a path.
        connect: Where they go.
    """

    def __init__(self, listen: str, connect: str) -> None:
        command = [sys.executable, str(Path(__file__).resolve()), listen, connect]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stdout.readline(), f"no forwarder from {listen}"

    def cut(self) -> None:
        """Carry nothing from now on."""
        os.kill(self._process.pid, signal.SIGSTOP)
        until_s = time.monotonic() + _PATIENCE_S
        while Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            assert time.monotonic() < until_s
            time.sleep(0.001)

    def heal(self) -> None:
        """Go on, with what was sent meanwhile."""
        os.kill(self._process.pid, signal.SIGCONT)

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(_CHUNK_BYTES):
            writer.write(data)
            await writer.drain()


async def _serve(listen: str, connect: str) -> None:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            if connect.startswith("/"):
                there, back = await asyncio.open_unix_connection(connect)
            else:
                host, _, port = connect.rpartition(":")
                there, back = await asyncio.open_connection(host, int(port))
            ways = [asyncio.ensure_future(_carry(reader, back)), asyncio.ensure_future(_carry(there, writer))]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)  # one end has gone: so does the other
            for way in ways:
                way.cancel()
            back.close()
        writer.close()

    if listen.startswith("/"):
        server = await asyncio.start_unix_server(accept, listen)
    else:
        host, _, port = listen.rpartition(":")
        server = await asyncio.start_server(accept, host, int(port))
    os.write(1, b"ready\n")
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(*sys.argv[1:3]))
