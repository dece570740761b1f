"""The compute stream of one simulated GPU, as a trainer uses it: asynchronous, in order, on the device's time."""

import ctypes
import errno
import os
import time
from pathlib import Path
from typing import Self

from perseus_dist.simulator.errors import SimulatorError
from perseus_dist.simulator.native_library import (
    NEVER,
    NUM_SEMAPHORES,
    OP_FIXED,
    OP_KERNEL,
    OP_SIGNAL,
    OP_WAIT,
    NativeOp,
    native,
)

STATE_VARIABLE = "PERSEUS_SIM_STATE"
STALL_S = 600.0
"""[s] of wall-clock time after which a wait is given up if nothing has happened on any stream of the machine."""

_LOOKS_PER_STALL = 10
_HANDLE_BASE = 0x51A10000  # what the stand-in libcuda takes for the stream of GPU 0
_QUEUE_SIZE = 16384
_MARKS_PER_CALL = 256
_NO_SEMAPHORE = f"semaphore {{}}: the simulated machine has 0 to {NUM_SEMAPHORES - 1}"


def open_machine(path: str | os.PathLike[str]) -> int:
    """Map a simulated machine's state into this process; a handle for native calls.

    Raises:
        SimulatorError: The file is missing or no machine of this version.
    """
    machine: int | None = native().perseus_sim_open(os.fsencode(path))
    if machine is None:
        raise SimulatorError(f"{path}: no simulated machine of this version; is the one that made it still running?")
    return machine


class SimulatedStream:
    """The compute stream of a GPU. One thread of one process at a time may use it."""

    def __init__(self, machine: int, gpu: int, *, exclusive: bool = False) -> None:
        """Open the stream of a GPU of a mapped machine; this process then counts as one that uses the GPU.

        Args:
            machine: From ``open_machine``.
            gpu: Its index.
            exclusive: Refuse a stream that another living process has open.

        Raises:
            SimulatorError: There is no such GPU, or another process uses it.
        """
        num_gpus = native().perseus_sim_num_gpus(machine)
        if not 0 <= gpu < num_gpus:
            raise SimulatorError(f"GPU {gpu}: the simulated machine has {num_gpus}, counted from 0")
        self._machine = machine
        self._gpu = gpu
        self._classes: dict[str, int] = {}
        self._mark_times = (ctypes.c_uint64 * _MARKS_PER_CALL)()
        self._take_marks = native().perseus_sim_take_marks
        self._marks_arguments = (  # converted once, because a driver of virtual time calls it at every boundary
            ctypes.c_void_p(machine),
            ctypes.c_uint32(gpu),
            ctypes.cast(self._mark_times, ctypes.POINTER(ctypes.c_uint64)),
            ctypes.c_uint32(_MARKS_PER_CALL),
        )
        if not exclusive:
            native().perseus_sim_open_stream(machine, gpu)
        elif user_pid := native().perseus_sim_claim_stream(machine, gpu):
            raise SimulatorError(f"simulated GPU {gpu} is used by process {user_pid}; give each process its own GPU")

    @classmethod
    def open(cls, gpu: int, *, exclusive: bool = False) -> Self:
        """Open a stream in a process that a ``SimulatedMachine``'s environment was given to.

        Raises:
            SimulatorError: The environment names no machine, or as the constructor does.
        """
        path = os.environ.get(STATE_VARIABLE)
        if path is None or not Path(path).is_file():
            raise SimulatorError(
                f"{STATE_VARIABLE}={path}: names no simulated machine; run this under 'perseus-dist sim'"
            )
        return cls(open_machine(path), gpu, exclusive=exclusive)

    @property
    def handle(self) -> int:
        """The CUstream that the stand-in libcuda understands."""
        return _HANDLE_BASE + self._gpu

    @property
    def uuid(self) -> str:
        """The GPU's, as NVML writes it."""
        uuid: bytes = native().perseus_sim_uuid(self._machine, self._gpu)
        return uuid.decode()

    @property
    def num_enqueued(self) -> int:
        """Operations ever enqueued: a position that ``synchronize`` takes."""
        num_enqueued: int = native().perseus_sim_num_enqueued(self._machine, self._gpu)
        return num_enqueued

    def kernel(self, kernel_class: str, seconds: float) -> None:
        """Enqueue a kernel.

        Args:
            kernel_class: One of the preset's classes.
            seconds: Its time at the maximum clock.

        Raises:
            SimulatorError: No such class.
        """
        self._enqueue(OP_KERNEL, target=self.class_number(kernel_class), seconds=seconds)

    def class_number(self, kernel_class: str) -> int:
        """The number by which operations name a class of kernels.

        Raises:
            SimulatorError: No such class.
        """
        if kernel_class not in self._classes:
            number = native().perseus_sim_find_class(self._machine, self._gpu, kernel_class.encode())
            if number < 0:
                raise SimulatorError(f"kernel class {kernel_class!r}: the simulated GPU has none of that name")
            self._classes[kernel_class] = number
        return self._classes[kernel_class]

    def enqueue_all(self, operations: "ctypes.Array[NativeOp]") -> None:
        """Enqueue many operations at once, marks among them.

        A mark is a point of the stream whose time is taken with ``take_marks``.

        Raises:
            SimulatorError: They do not fit behind what is enqueued already, or name a semaphore that is not there.
        """
        result = native().perseus_sim_enqueue_all(self._machine, self._gpu, operations, len(operations))
        if result:
            raise SimulatorError(
                f"simulated GPU {self._gpu}: {len(operations)} operations: {os.strerror(result)}; a stream holds "
                f"{_QUEUE_SIZE} operations, the machine has {NUM_SEMAPHORES} semaphores"
            )

    def take_marks(self) -> list[int]:
        """[ns] when marks were passed, those since the last call, in order."""
        times_ns, take, arguments = self._mark_times, self._take_marks, self._marks_arguments
        count = take(*arguments)
        if count == 1:  # mostly
            return [times_ns[0]]
        taken = times_ns[:count]
        while count == _MARKS_PER_CALL:
            count = take(*arguments)
            taken += times_ns[:count]
        return taken

    def fixed(self, seconds: float) -> None:
        """Enqueue something that takes this long at every clock, at blocking power: a transfer, a constant."""
        self._enqueue(OP_FIXED, seconds=seconds)

    def signal(self, semaphore: int, after_s: float = 0.0) -> None:
        """Enqueue adding 1 to one of the machine's 4,096 semaphores, ``after_s`` [s] later; the stream goes on."""
        self._enqueue(OP_SIGNAL, target=semaphore, seconds=after_s)

    def wait(self, semaphore: int, value: int) -> None:
        """Enqueue waiting, at blocking power, until a semaphore is at least ``value``."""
        self._enqueue(OP_WAIT, target=semaphore, value=value)

    def semaphore(self, semaphore: int) -> int:
        """The value of a semaphore, now."""
        value: int = native().perseus_sim_semaphore(self._machine, semaphore)
        return value

    def raise_semaphore(self, semaphore: int, value: int) -> None:
        """Raise a semaphore to a value from the host: now, not in the order of the stream. It is never lowered."""
        if native().perseus_sim_raise(self._machine, semaphore, value):
            raise SimulatorError(_NO_SEMAPHORE.format(semaphore))

    def event(self) -> "StreamEvent":
        """Record the device's time at this point of the stream."""
        return StreamEvent(self._machine, self._gpu)

    def synchronize(self, num_completed: int | None = None) -> None:
        """Block until everything enqueued so far is done. In virtual time: advance the machine until it is.

        Args:
            num_completed: Until so many of the operations ever enqueued are, instead of all.

        Raises:
            SimulatorError: In virtual time, when it never would be: the stream waits for what is not enqueued. In
                wall-clock time, when nothing has happened on any stream of the machine for ``STALL_S``.
        """
        self._wait_for(self.num_enqueued if num_completed is None else num_completed)

    def is_completed(self, num_completed: int) -> bool:
        """Whether so many of the operations ever enqueued are done, now."""
        result: int = native().perseus_sim_wait(self._machine, self._gpu, num_completed, 0)
        return result == 0

    def _enqueue(self, kind: int, *, target: int = 0, value: int = 0, seconds: float = 0.0) -> None:
        if not 0 <= seconds < 1e6:
            raise SimulatorError(f"a duration of {seconds} s on a stream; expected 0 to 1e6")
        while True:
            result = native().perseus_sim_enqueue(self._machine, self._gpu, kind, target, value, seconds)
            if result == 0:
                return
            if result != errno.EAGAIN:
                raise SimulatorError(_NO_SEMAPHORE.format(target))
            self._wait_for(self.num_enqueued - _QUEUE_SIZE + 1)

    def _wait_for(self, num_completed: int) -> None:
        library = native()
        stall: _Stall | None = None
        while result := library.perseus_sim_wait(self._machine, self._gpu, num_completed, NEVER):
            if result == errno.EINTR:  # back in Python, so that signals are seen
                stall = stall or _Stall(self._machine)
                if stall.is_over():
                    raise SimulatorError(self._refusal(f"and for {STALL_S:g} s nothing has happened on any stream"))
                continue
            next_ns = library.perseus_sim_next_event_ns(self._machine)
            if next_ns == NEVER:
                raise SimulatorError(self._refusal("for a signal that nobody enqueued"))
            library.perseus_sim_advance(self._machine, max(0, next_ns - library.perseus_sim_now_ns(self._machine)))

    def _refusal(self, why: str) -> str:
        semaphore, value, awaited = ctypes.c_uint32(), ctypes.c_uint64(), ctypes.c_uint64()
        references = (ctypes.byref(semaphore), ctypes.byref(value), ctypes.byref(awaited))
        if not native().perseus_sim_awaited(self._machine, self._gpu, *references):
            return f"simulated GPU {self._gpu}: its stream waits {why}; start the job again"
        return (
            f"simulated GPU {self._gpu}: its stream waits {why}: semaphore {semaphore.value} is {value.value}, "
            f"expected {awaited.value} or more; signal it on another stream, or raise it from the host, and see "
            "whether the process that was to do so still runs"
        )


class _Stall:
    """How long nothing has happened on any stream of a machine. It is looked at a few times in ``STALL_S``.

    What a long kernel or a rank that still computes does is progress, so waits that end are not cut short.
    """

    def __init__(self, machine: int) -> None:
        self._machine = machine
        self._progress: int | None = None
        self._since_s = self._look_at_s = time.monotonic()

    def is_over(self) -> bool:
        """Whether it has lasted ``STALL_S``."""
        now_s = time.monotonic()
        if now_s < self._look_at_s:
            return False
        self._look_at_s = now_s + STALL_S / _LOOKS_PER_STALL
        progress = native().perseus_sim_progress(self._machine)
        if progress != self._progress:
            self._progress, self._since_s = progress, now_s
        return now_s - self._since_s >= STALL_S


class StreamEvent:
    """A point of a stream, and when the device reached it."""

    def __init__(self, machine: int, gpu: int) -> None:
        """Record now.

        Raises:
            SimulatorError: The GPU has no free event.
        """
        self._machine = machine
        self._gpu = gpu
        self._slot: int = native().perseus_sim_new_timestamp(machine, gpu)
        if self._slot < 0 or native().perseus_sim_record_timestamp(machine, gpu, self._slot):
            raise SimulatorError(f"simulated GPU {gpu}: no free event, or a full stream; close events and synchronise")

    def time_ns(self) -> int | None:
        """When the device reached this point, on the machine's clock (CLOCK_MONOTONIC or virtual); None before."""
        time_ns = ctypes.c_uint64()
        result = native().perseus_sim_timestamp_ns(self._machine, self._gpu, self._slot, ctypes.byref(time_ns))
        return None if result else time_ns.value

    def close(self) -> None:
        """Give the event back; a GPU has 8,192."""
        native().perseus_sim_free_timestamp(self._machine, self._gpu, self._slot)
