"""Which clock control a GPU gets: the first that is there, and observation where none is.

Direct control is not chosen for real GPUs: where the whole job is killed at once, lease processes with it, nothing is
left that would unlock them. It must be asked for by its name.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from perseus_dist.device.control import ClockControl
from perseus_dist.device.lease.client import Connector, LeaseClient
from perseus_dist.device.lease.connectors import ProcessConnector, SocketConnector, clockd_socket, zeusd_socket
from perseus_dist.device.lease.file import LeaseFileError, lease_folder, prepare_lease_folder
from perseus_dist.device.observe import ObserveOnly
from perseus_dist.device.rights import find_missing_right, owns_simulated_gpus

_ADVICE = (
    "start 'perseus-dist clockd' as root on this node; as root, control 'direct' does without, but leaves clocks "
    "locked where a whole job is killed at once"
)
MODES = ("auto", "clockd", "zeusd", "direct", "observe")


def open_clock_control(
    mode: str,
    gpu_uuid: str,
    *,
    own_pids: Sequence[int],
    socket_path: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> ClockControl:
    """Open the control of one GPU. May take some seconds if a daemon or GPU does not answer; never raises.

    Args:
        mode: ``clockd``, ``zeusd``, ``direct``, ``observe``, or ``auto`` for the first of clockd and zeusd that is
            there; on simulated GPUs of one's own direct comes third. A control that refuses, for example because
            another job runs on the GPU, is not passed over for the next.
        gpu_uuid: As NVML writes it.
        own_pids: Processes that may run on the GPU, by themselves and their descendants: the trainer.
        socket_path: Of clockd or, with mode ``zeusd``, of zeusd; None for the environment's or the usual place.
        environ: ``PERSEUS_CLOCKD_SOCKET`` and ``ZEUSD_SOCK_PATH`` are looked up here.

    Returns:
        The control; an ``observe`` one with a ``refusal`` where no clock can be set.
    """
    if mode not in MODES:
        return ObserveOnly(refusal=f"clock control {mode!r} is not known, expected one of {', '.join(MODES)}")
    if mode == "observe":
        return ObserveOnly(refusal="asked to observe only")
    if not gpu_uuid.startswith("GPU-"):
        return ObserveOnly(
            refusal=f"{gpu_uuid or 'no GPU'}: clocks can be set of a whole GPU only, by its UUID GPU-..."
        )
    absent = []
    for name in _ways(mode, environ):
        path = socket_path if mode == name or name == "clockd" else None
        connector, reason = _connector(name, gpu_uuid, path, environ)
        if connector is None:
            absent.append(f"{name}: {reason}")
            continue
        client = LeaseClient(name, connector, gpu_uuid, own_pids=own_pids)
        try:
            if client.open():
                return client
        except OSError as error:
            absent.append(f"{name}: cannot be reached ({error.strerror or error})")
            client.close()
            continue
        client.close()
        if not client.is_unusable or mode != "auto":
            return ObserveOnly(refusal=client.refusal)
        absent.append(client.refusal)
    advice = f"; {_ADVICE}" if mode == "auto" else ""
    return ObserveOnly(refusal=f"no clock control here: {'; '.join(absent)}{advice}")


def _ways(mode: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Ways to control clocks, in the order in which they are tried."""
    if mode != "auto":
        return (mode,)
    return ("clockd", "zeusd", "direct") if owns_simulated_gpus(environ) else ("clockd", "zeusd")


def _connector(
    name: str, gpu_uuid: str, socket_path: str | None, environ: Mapping[str, str]
) -> tuple[Connector | None, str]:
    """The way to a control, or why there is none."""
    if name == "clockd":
        path = socket_path or clockd_socket(environ)
        why = _why_absent(path)
        return (None if why else SocketConnector(path)), why
    folder = lease_folder(environ)
    arguments = []
    if name == "zeusd":
        path = socket_path or zeusd_socket(environ)
        if why := _why_absent(path):
            return None, why
        try:
            SocketConnector(path).connect().close()
        except OSError as error:
            return None, f"{path} cannot be reached ({error.strerror or error})"
        arguments = [path]
    elif missing := find_missing_right(environ):
        return None, missing
    try:
        prepare_lease_folder(folder)
    except LeaseFileError as error:
        return None, str(error)
    return ProcessConnector(name, gpu_uuid, folder, environ, *arguments), ""


def _why_absent(path: str) -> str:
    """Why a daemon's socket is not there, as far as that can be seen; empty if it is."""
    try:
        Path(path).stat()
    except (FileNotFoundError, NotADirectoryError):
        return f"no socket at {path}"
    except OSError as error:  # as where its folder is closed to this user
        return f"{path} cannot be reached ({error.strerror})"
    return ""
