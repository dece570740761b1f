"""Writing clocks through zeusd, the privileged daemon of the Zeus project, over its HTTP API on a Unix socket.

zeusd knows no leases: what it has locked stays locked whatever happens to who asked. So a private lease process of ours
asks, and sees to the restore. zeusd numbers GPUs its own way; they are matched by PCI address.
"""

import json
import socket
from collections.abc import Mapping
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlencode

from perseus_dist.device.nvml.nvml import (
    INVALID_ARGUMENT,
    NO_PERMISSION,
    NOT_FOUND,
    NOT_REACHED,
    NOT_SUPPORTED,
    Gpu,
    NvmlError,
)
from perseus_dist.unix_socket import unix_address

# Longer than any clock change; zeusd serves one GPU's commands in order, so a reset after a late set still wins.
_TIMEOUT_S = 10.0
_UNKNOWN = 999
_CODES = {400: INVALID_ARGUMENT, 401: NO_PERMISSION, 403: NO_PERMISSION, 404: NOT_SUPPORTED}


class ZeusdSetter:
    """A ``ClockSetter`` for one GPU. Each call is a connection of its own, so that a restarted zeusd does no harm."""

    def __init__(self, socket_path: str, gpu: Gpu, environ: Mapping[str, str]) -> None:
        """Prepare; nothing is asked yet.

        Args:
            socket_path: zeusd's.
            gpu: Read for its PCI address.
            environ: ``ZEUSD_TOKEN`` is looked up here.
        """
        self._socket_path = socket_path
        self._gpu = gpu
        self._headers = {"Authorization": f"Bearer {token}"} if (token := environ.get("ZEUSD_TOKEN")) else {}
        self._number: int | None = None

    def prepare(self) -> None:
        """See ``ClockSetter``."""
        self._number = self._find_number()

    def lock(self, clock_mhz: int) -> None:
        """See ``ClockSetter``."""
        self._post("set_gpu_locked_clocks", min_clock_mhz=clock_mhz, max_clock_mhz=clock_mhz)

    def unlock(self) -> None:
        """See ``ClockSetter``."""
        self._post("reset_gpu_locked_clocks")

    def _post(self, command: str, **values: int) -> None:
        if self._number is None:
            self._number = self._find_number()
        self._ask("POST", f"/gpu/{command}?{urlencode({'gpu_ids': self._number, **values, 'block': 'true'})}")

    def _find_number(self) -> int:
        """The number that zeusd gives the GPU."""
        wanted = _pci_key(self._gpu.call("nvmlDeviceGetPciInfo").busId)
        try:
            discovered = json.loads(self._ask("GET", "/discover"))
            groups = discovered["enabled_api_groups"]
            needs_token = bool(discovered["auth_required"])
            numbers = {_pci_key(gpu["pci_address"]): int(gpu["id"]) for gpu in discovered["gpus"]}
        except (ValueError, KeyError, TypeError) as error:
            raise _error(
                "/discover", NOT_SUPPORTED, f"no list of GPUs by PCI address ({error!r}); update zeusd"
            ) from None
        if "gpu-control" not in groups:
            raise _error("/discover", NOT_SUPPORTED, f"API group gpu-control is not among those enabled, {groups}")
        if needs_token and not self._headers:
            raise _error("/discover", NO_PERMISSION, "a token is required; set ZEUSD_TOKEN")
        if wanted not in numbers:
            raise _error("/discover", NOT_FOUND, f"no GPU at the PCI address of {self._gpu.uuid}")
        return numbers[wanted]

    def _ask(self, method: str, path: str) -> bytes:
        connection = _UnixConnection(self._socket_path)
        resource = path.partition("?")[0]
        try:
            try:
                connection.connect()
            except OSError as error:
                raise _error(resource, NOT_REACHED, f"{self._socket_path}: {error.strerror or error}") from None
            connection.request(method, path, headers=self._headers)
            response = connection.getresponse()
            body = response.read(1 << 20)
        except (OSError, HTTPException) as error:
            raise _error(resource, _UNKNOWN, f"{self._socket_path}: {error!r}") from None
        finally:
            connection.close()
        if response.status != HTTPStatus.OK:
            code = _CODES.get(response.status, _UNKNOWN)
            raise _error(resource, code, f"HTTP {response.status} {body.decode(errors='replace')[:200].strip()}")
        return body


def _error(resource: str, code: int, text: str) -> NvmlError:
    return NvmlError(f"zeusd {resource}", code, text, explain=False)


class _UnixConnection(HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock: Any = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        with unix_address(self._path) as address:
            self.sock.connect(address)


def _pci_key(address: str | bytes) -> tuple[int, int, int] | None:
    """Domain, bus and device: NVML writes 00000000:17:00.0, others 0000:17:00.0."""
    text = address.decode() if isinstance(address, bytes) else address
    try:
        domain, bus, rest = text.split(":")
        return int(domain, 16), int(bus, 16), int(rest.partition(".")[0], 16)
    except ValueError:
        return None
