"""A machine of simulated GPUs: owns their state, and keeps it going.

In wall time the machine lives as long as its ``with`` block, in which processes that were given ``environment()`` find
its GPUs through NVML. In virtual time nothing happens but by ``advance``; everything must then be in one
process.
"""

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Self

from perseus_dist.simulator.errors import SimulatorError
from perseus_dist.simulator.fault import Fault, LoggedCall
from perseus_dist.simulator.gpu import SimulatedGpu
from perseus_dist.simulator.gpu_preset import GpuPreset, Timing
from perseus_dist.simulator.native_library import NEVER, NativeCall, NativePreset, library_folder, native
from perseus_dist.simulator.native_preset import native_preset
from perseus_dist.simulator.presets import find_presets
from perseus_dist.simulator.state_folder import StateFolder
from perseus_dist.simulator.stream import STATE_VARIABLE, open_machine

MAX_GPUS = 64
_SHARED_MEMORY = "/dev/shm"  # keeps the state off the disk
_STATE_FILE = "state"
_CALLS_PER_READ = 1024
_OWN_FILES = {
    "PERSEUS_LEASE_DIR": "leases",
    "PERSEUS_CLOCKD_SOCKET": "clockd.sock",
    "ZEUSD_SOCK_PATH": "zeusd.sock",
}
"""Where clock control looks, in the machine's folder: never at the daemons and leases of the real machine, nor at those
of another simulated one, whose GPUs have the same UUIDs."""
_NO_CUDA = {"PYTORCH_NVML_BASED_CUDA_CHECK": "0"}
"""A CUDA build of PyTorch must not take GPUs that NVML lists for CUDA devices: DeepSpeed would have it ask NVML."""


class _OwnMapping(int):
    """The mapping of a machine in virtual time, which this process alone has: given back with its last reference."""

    def __del__(self) -> None:
        native().perseus_sim_close(self)


class SimulatedMachine:
    """Some simulated GPUs. A context manager.

    Attributes:
        preset: Of the first GPU.
        presets: (num_gpus) of each.
    """

    def __init__(
        self,
        preset: str | GpuPreset = "a100",
        *,
        count: int = 1,
        virtual: bool = False,
        timing: Timing | None = None,
        unprivileged: bool = False,
    ) -> None:
        """Make the machine.

        Args:
            preset: A name (a100, a40, h100, h200), a name for each GPU with commas between, or a model of one's own.
            count: Number of GPUs, 1 to 64.
            virtual: Time moves by ``advance`` alone; ``now_ns`` starts at 1 s.
            timing: Instead of the presets'.
            unprivileged: No user may set clocks. Otherwise root and the user who made the machine may.

        Raises:
            SimulatorError: Unknown preset, impossible count, not as many names as GPUs, or the native part is missing.
        """
        if not 1 <= count <= MAX_GPUS:
            raise SimulatorError(f"{count} simulated GPUs; expected 1 to {MAX_GPUS}")
        presets = find_presets(preset, count) if isinstance(preset, str) else (preset,) * count
        if timing is not None:
            presets = tuple(replace(preset, timing=timing) for preset in presets)
        self.presets = presets
        self.preset = presets[0]
        self.is_virtual = virtual
        self._folder = self._make_state(count, unprivileged=unprivileged)
        self.state_path = self._folder.path / _STATE_FILE
        self._machine = _OwnMapping(open_machine(self.state_path)) if virtual else open_machine(self.state_path)
        self.gpus = tuple(SimulatedGpu(self._machine, index, preset) for index, preset in enumerate(presets))
        self._marked_gpus = ctypes.c_uint64()
        self._marked_gpus_ref = ctypes.byref(self._marked_gpus)
        self._stop = ctypes.c_uint32(0)
        self._engine: threading.Thread | None = None
        if not virtual:
            self._engine = threading.Thread(
                target=native().perseus_sim_engine,
                args=(self._machine, ctypes.byref(self._stop)),
                name="simulated-gpus",
                daemon=True,
            )
            self._engine.start()

    def _make_state(self, count: int, *, unprivileged: bool) -> StateFolder:
        """The folder with the state in it: in shared memory, and on disk where that has no room or is not there."""
        troubles = []
        by_model = {preset: native_preset(preset) for preset in dict.fromkeys(self.presets)}
        filled = (NativePreset * count)(*(by_model[preset] for preset in self.presets))
        for parent in (_SHARED_MEMORY, None):
            try:
                folder = StateFolder(parent)
            except OSError as error:
                troubles.append(f"{parent or 'TMPDIR'}: {error.strerror}")
                continue
            failure = native().perseus_sim_create(
                os.fsencode(folder.path / _STATE_FILE),
                filled,
                count,
                self.is_virtual,
                unprivileged,
            )
            if not failure:
                return folder
            folder.cleanup()
            troubles.append(f"{folder.path}: {os.strerror(failure)}")
        raise SimulatorError(
            f"no room for the state of {count} simulated GPUs ({'; '.join(troubles)}); set TMPDIR to a folder with "
            f"{count + 4} MB of space"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop, and remove the state file. Processes that still have it mapped see GPUs on which nothing happens."""
        if self._engine is not None:
            native().perseus_sim_stop_engine(self._machine, ctypes.byref(self._stop))
            self._engine.join()
            self._engine = None
        self._folder.cleanup()

    def environment(self, *, cuda: bool = False) -> dict[str, str]:
        """Environment in which processes find these GPUs.

        Args:
            cuda: Also the stand-in ``libcuda.so.1``. Not for processes that import a real CUDA framework.
        """
        folder = library_folder()
        folders = [str(folder), *([str(folder / "cuda")] if cuda else []), os.environ.get("LD_LIBRARY_PATH", "")]
        return {
            "LD_LIBRARY_PATH": ":".join(filter(None, folders)),
            STATE_VARIABLE: str(self.state_path),
            "PERSEUS_CONFIG": os.environ.get("PERSEUS_CONFIG") or "off",  # settings of this node are not for these GPUs
            **_NO_CUDA,
            **{variable: str(self.state_path.with_name(name)) for variable, name in _OWN_FILES.items()},
        }

    def gpu(self, index: int) -> SimulatedGpu:
        """The GPU of an index."""
        return self.gpus[index]

    @property
    def now_ns(self) -> int:
        """The machine's clock: CLOCK_MONOTONIC, or virtual time."""
        now_ns: int = native().perseus_sim_now_ns(self._machine)
        return now_ns

    def advance(self, duration_ns: int) -> None:
        """Let virtual time pass.

        Raises:
            SimulatorError: The machine runs in wall time.
        """
        if not self.is_virtual:
            raise SimulatorError("this simulated machine runs in wall time; make one with virtual=True to advance it")
        native().perseus_sim_advance(self._machine, duration_ns)

    def advance_to_mark(self, until_ns: int | None) -> tuple[int, int]:
        """Let virtual time pass until some stream passes a mark (``SimulatedStream.enqueue_all``), at once if one has.

        Args:
            until_ns: Go no further; None for as far as anything happens.

        Returns:
            (when that is [ns], bits of the GPUs whose marks are to be taken, 0 for none).

        Raises:
            SimulatorError: The machine runs in wall time.
        """
        if not self.is_virtual:
            raise SimulatorError("this simulated machine runs in wall time; make one with virtual=True to advance it")
        until = NEVER if until_ns is None else until_ns
        now_ns: int = native().perseus_sim_advance_to_mark(self._machine, until, self._marked_gpus_ref)
        return now_ns, self._marked_gpus.value

    def drop_work(self) -> None:
        """The trainers are gone: nothing is left on any stream, and semaphores count from 0 again."""
        native().perseus_sim_drop_work(self._machine)

    @property
    def true_energy_j(self) -> float:
        """[J] that all GPUs together have drawn, exactly."""
        energy_j: float = native().perseus_sim_true_energy_j(self._machine)
        return energy_j

    def next_event_ns(self) -> int | None:
        """When the simulation next changes by itself (an operation ends, a clock settles), or None if it never does."""
        next_ns: int = native().perseus_sim_next_event_ns(self._machine)
        return None if next_ns == NEVER else next_ns

    def semaphore(self, index: int) -> int:
        """The value of a semaphore."""
        value: int = native().perseus_sim_semaphore(self._machine, index)
        return value

    def inject(self, fault: Fault, *, gpu: int | None = None) -> None:
        """Add a fault, for one GPU or (None) for all and for functions that concern none.

        Raises:
            SimulatorError: There are 64 already.
        """
        mask = 2**MAX_GPUS - 1 if gpu is None else 1 << gpu
        if native().perseus_sim_inject(self._machine, fault.native(mask)):
            raise SimulatorError("64 faults are injected already; clear_faults() first")

    def clear_faults(self) -> None:
        """Remove all faults."""
        native().perseus_sim_clear_faults(self._machine)

    def set_driver_loaded(self, loaded: bool) -> None:  # noqa: FBT001 - a switch
        """Unload or load the driver: locks and joules are forgotten, and sessions opened before are void."""
        native().perseus_sim_set_driver(self._machine, loaded)

    def reload_driver(self) -> None:
        """Unload the driver and load it again."""
        self.set_driver_loaded(True)

    def calls(self) -> list[LoggedCall]:
        """The latest 16,384 calls that set or reset something, or tried to, oldest first."""
        found: list[LoggedCall] = []
        buffer = (NativeCall * _CALLS_PER_READ)()
        first = ctypes.c_uint64(0)
        while count := native().perseus_sim_calls(self._machine, ctypes.byref(first), buffer, _CALLS_PER_READ):
            found += [LoggedCall.from_native(buffer[position]) for position in range(count)]
            first.value += count
        return found


@contextmanager
def load_nvml(machine: SimulatedMachine, *, cuda: bool = False) -> Iterator[None]:
    """Let ``pynvml`` in *this* process find the machine's GPUs, for tests.

    Loads the stand-in library before pynvml looks for it by name; a process in which the real one is loaded already
    cannot be changed. Sessions are opened and closed by the caller, within the block.
    """
    folder = library_folder()
    ctypes.CDLL(str(folder / "libnvidia-ml.so.1"))
    if cuda:
        ctypes.CDLL(str(folder / "cuda" / "libcuda.so.1"))
    before = os.environ.get(STATE_VARIABLE)
    os.environ[STATE_VARIABLE] = str(machine.state_path)
    try:
        yield
    finally:
        if before is None:
            del os.environ[STATE_VARIABLE]
        else:
            os.environ[STATE_VARIABLE] = before
