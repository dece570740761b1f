"""Which clock control a GPU gets: the first that is there, and observation where none is."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from perseus_dist.device.connectors import ProcessConnector, SocketConnector, clockd_socket, zeusd_socket
from perseus_dist.device.control import ClockControl
from perseus_dist.device.lease_client import Connector, LeaseClient
from perseus_dist.device.lease_file import LeaseFileError, lease_folder, prepare_lease_folder
from perseus_dist.device.observe import ObserveOnly
from perseus_dist.device.rights import may_set_clocks

MODES = ("auto", "clockd", "zeusd", "direct", "observe")


def open_first_control(
    mode: str, gpu_uuid: str, *, own_pids: Sequence[int], socket_path: str | None, environ: Mapping[str, str]
) -> ClockControl:
    """See ``control.open_clock_control``."""
    if mode not in MODES:
        return ObserveOnly(refusal=f"clock control {mode!r} is not known, expected one of {', '.join(MODES)}")
    if mode == "observe":
        return ObserveOnly(refusal="asked to observe only")
    if not gpu_uuid.startswith("GPU-"):
        return ObserveOnly(
            refusal=f"{gpu_uuid or 'no GPU'}: clocks can be set of a whole GPU only, by its UUID GPU-..."
        )
    absent = []
    for name in ("clockd", "zeusd", "direct") if mode == "auto" else (mode,):
        connector, reason = _connector(name, socket_path if mode == name or name == "clockd" else None, environ)
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
        return ObserveOnly(refusal=client.refusal)
    return ObserveOnly(refusal=f"no clock control here: {'; '.join(absent)}")


def _connector(name: str, socket_path: str | None, environ: Mapping[str, str]) -> tuple[Connector | None, str]:
    """The way to a control, or why there is none."""
    if name == "clockd":
        path = socket_path or clockd_socket(environ)
        return (SocketConnector(path), "") if Path(path).exists() else (None, f"no socket at {path}")
    folder = lease_folder(environ)
    arguments = []
    if name == "zeusd":
        path = socket_path or zeusd_socket(environ)
        if not Path(path).exists():
            return None, f"no socket at {path}"
        try:
            SocketConnector(path).connect().close()
        except OSError as error:
            return None, f"{path} cannot be reached ({error.strerror or error})"
        arguments = [path]
    elif not may_set_clocks(environ):
        return None, "setting clocks needs root"
    try:
        prepare_lease_folder(folder)
    except LeaseFileError as error:
        return None, str(error)
    return ProcessConnector(name, folder, environ, *arguments), ""
