"""A GPU node in Prometheus's text format, for the textfile collector of node_exporter.

It only looks: no lease is asked for, no lock of a lease file taken, so that it may run every half minute beside jobs.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from perseus_dist.device.lease.connectors import SocketConnector, clockd_socket
from perseus_dist.device.lease.file import LeaseFile, lease_folder, touched_gpus
from perseus_dist.device.nvml import gpu_guard
from perseus_dist.device.nvml.nvml import Gpu, Nvml, NvmlError
from perseus_dist.device.nvml.power_limit import read_power_limit

_PATIENCE_S = 5.0  # with all GPUs: one that does not answer for so long is called hung
_OF_GPU = ("gpu", "uuid")
_REASONS = {"power_cap": 0x4, "hardware": 0x8, "thermal": 0x20 | 0x40, "power_brake": 0x80}


@dataclass(frozen=True, slots=True)
class NodeFamily:
    """A gauge: its name, meaning and labels."""

    name: str
    help: str
    labels: tuple[str, ...] = ()


INFO = NodeFamily("perseus_node_info", "The node's perseus-dist and driver.", ("version", "driver"))
DRIVER = NodeFamily("perseus_node_driver_up", "1 where the driver answers and lists GPUs.")
CLOCKD = NodeFamily("perseus_node_clockd_up", "1 where clockd takes connections.")
ANSWERS = NodeFamily("perseus_node_gpu_up", f"1 where the GPU answers within {_PATIENCE_S:.0f} s.", _OF_GPU)
LEASED = NodeFamily("perseus_node_gpu_leased", "1 while a living process holds the lease of its clocks.", _OF_GPU)
LEFT_LOCKED = NodeFamily(
    "perseus_node_gpu_clocks_left_locked",
    "1 where its clocks are locked, or were by a process that died, and no lease on this node accounts for it.",
    _OF_GPU,
)
THROTTLED = NodeFamily(
    "perseus_node_gpu_throttled", "1 while the driver names that reason for a lower clock.", (*_OF_GPU, "reason")
)
CAPPED = NodeFamily("perseus_node_gpu_power_capped", "1 where its power limit is below the default.", _OF_GPU)

ALL = (INFO, DRIVER, CLOCKD, ANSWERS, LEASED, LEFT_LOCKED, THROTTLED, CAPPED)


@dataclass(slots=True)
class _Page:
    values: dict[NodeFamily, list[tuple[tuple[str, ...], float]]] = field(default_factory=dict)

    def add(self, family: NodeFamily, value: float, *labels: str) -> None:
        self.values.setdefault(family, []).append((labels, value))

    def text(self) -> str:
        lines = []
        for family in ALL:
            lines += [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} gauge"]
            for labels, value in self.values.get(family, ()):
                pairs = zip(family.labels, map(_escaped, labels), strict=True)
                shown = ",".join(f'{name}="{text}"' for name, text in pairs)
                lines.append(f"{family.name}{{{shown}}} {value:g}" if shown else f"{family.name} {value:g}")
        return "\n".join(lines) + "\n"


def node_metrics(environ: Mapping[str, str], version: str) -> str:
    """The node as it is now.

    Args:
        environ: Names sockets and folders.
        version: Of perseus-dist.
    """
    page = _Page()
    page.add(CLOCKD, float(_answers(clockd_socket(environ))))
    nvml = Nvml()
    try:
        driver, numbered = str(nvml.call("nvmlSystemGetDriverVersion")), nvml.numbered_uuids()
    except NvmlError:
        page.add(INFO, 1, version, "")
        page.add(DRIVER, 0)
        return page.text()
    page.add(INFO, 1, version, driver)
    page.add(DRIVER, 1)
    folder = lease_folder(environ)
    touched = frozenset(touched_gpus(folder))
    gpus = [(index, uuid) for index, uuid in enumerate(numbered) if uuid is not None]
    looks: list[Callable[[], _Page]] = [lambda uuid=uuid: _look(nvml.gpu(uuid), folder, touched) for _, uuid in gpus]  # type: ignore[misc]
    for (index, uuid), seen in zip(gpus, _all_at_once(looks), strict=True):
        page.add(ANSWERS, float(seen is not None), str(index), uuid)
        for family, values in (seen.values if seen else {}).items():
            for labels, value in values:
                page.add(family, value, str(index), uuid, *labels)
    return page.text()


def _look(gpu: Gpu, folder: Path, touched: frozenset[str]) -> _Page:
    """Of one GPU; labels without those that name it."""
    page = _Page()
    is_leased = LeaseFile(folder, gpu.uuid).is_held()
    is_locked = not is_leased and (gpu.uuid in touched or gpu_guard.shows_lock(gpu))
    page.add(LEASED, float(is_leased))
    # A job that came or went meanwhile accounts for it.
    page.add(LEFT_LOCKED, float(is_locked and not LeaseFile(folder, gpu.uuid).is_held()))
    reasons = gpu.event_reasons()
    for reason, bits in _REASONS.items():
        page.add(THROTTLED, float(bool(reasons & bits)), reason)
    if (limit := read_power_limit(gpu)) is not None:
        page.add(CAPPED, float(limit.is_capped))
    return page


def _all_at_once(looks: list[Callable[[], _Page]]) -> list[_Page | None]:
    """The page of each; None of those that failed, or that a sick GPU has kept for too long."""
    seen: list[_Page | None] = [None] * len(looks)

    def run(index: int) -> None:
        try:
            seen[index] = looks[index]()
        except NvmlError:
            return

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(len(looks))]
    for thread in threads:
        thread.start()
    until_s = time.monotonic() + _PATIENCE_S
    for thread in threads:
        thread.join(max(0.0, until_s - time.monotonic()))
    return seen.copy()


def _answers(socket_path: str) -> bool:
    try:
        SocketConnector(socket_path).connect().close()
    except OSError:
        return False
    return True


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
