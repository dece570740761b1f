"""One rank's iteration as its trainer launches it: recorded once, then launched again in a single native call."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from perseus_dist.boundaries.record import NO_MICROBATCH, Event
from perseus_dist.simulation.trainers.trainer import Trainer
from perseus_dist.simulation.trainers.trainer_config import TrainerConfig
from perseus_dist.simulator.native_library import OP_FIXED, OP_KERNEL, OP_MARK, OP_SIGNAL, OP_WAIT, NativeOp
from perseus_dist.simulator.stream import SimulatedStream


class BoundaryTemplate(NamedTuple):
    """A boundary of every iteration, without its numbers."""

    event: Event
    kind: str
    chunk: int
    microbatch: int


class RecordedIteration:
    """The operations of one rank's iterations, and the boundaries among them.

    Attributes:
        boundaries: Of an iteration, in the order in which the device passes them.
        kernel_s: [s] of each computation at the maximum clock, in the order of launching.
    """

    def __init__(self, config: TrainerConfig, stream: SimulatedStream, *, with_boundaries: bool) -> None:
        """Record.

        Args:
            config: Of the rank; in device order.
            stream: That it is to be launched on.
            with_boundaries: Mark all of them; otherwise the end of the iteration alone.
        """
        tape, next_tape = (_record(config, stream, iteration, with_boundaries) for iteration in range(2))
        self._stream = stream
        self._operations = (NativeOp * len(tape.operations))(*tape.operations)
        # A wait's value grows by the same amount from one iteration to the next.
        self._waits = [
            (self._operations[index], one.value, after.value - one.value)
            for index, (one, after) in enumerate(zip(tape.operations, next_tape.operations, strict=True))
            if one.kind == OP_WAIT
        ]
        self._kernels = [operation for operation in self._operations if operation.kind == OP_KERNEL]
        self.boundaries = tuple(tape.boundaries)
        self.kernel_s = tuple(tape.kernel_s)

    def set_kernel_times(self, kernel_s: Sequence[float]) -> None:
        """Set the durations [s] of computations from now on, at the maximum clock, in the order of launching."""
        for kernel, seconds in zip(self._kernels, kernel_s, strict=True):
            kernel.duration_ns = seconds * 1e9

    def launch(self, iteration: int) -> None:
        """Enqueue an iteration; they are numbered from 0, without a gap."""
        for wait, first, step in self._waits:
            wait.value = first + iteration * step
        self._stream.enqueue_all(self._operations)


def _record(config: TrainerConfig, stream: SimulatedStream, iteration: int, with_boundaries: bool) -> "_Tape":  # noqa: FBT001
    tape = _Tape(stream, with_boundaries=with_boundaries)
    Trainer(config, tape, tape).enqueue_iteration(iteration)
    return tape


class _NoEvent:
    """The trainer's own events; boundaries say the same."""

    def time_ns(self) -> int | None:
        return None

    def close(self) -> None:
        pass


@dataclass(slots=True)
class _Tape:
    """A tape in place of a trainer's stream and hook."""

    stream: SimulatedStream
    with_boundaries: bool = field(kw_only=True)
    operations: list[NativeOp] = field(default_factory=list)
    boundaries: list[BoundaryTemplate] = field(default_factory=list)
    kernel_s: list[float] = field(default_factory=list)

    # ---- as a stream

    def kernel(self, kernel_class: str, seconds: float) -> None:
        self.kernel_s.append(seconds)
        self._add(OP_KERNEL, target=self.stream.class_number(kernel_class), seconds=seconds)

    def fixed(self, seconds: float) -> None:
        self._add(OP_FIXED, seconds=seconds)

    def signal(self, semaphore: int, after_s: float = 0.0) -> None:
        self._add(OP_SIGNAL, target=semaphore, seconds=after_s)

    def wait(self, semaphore: int, value: int) -> None:
        self._add(OP_WAIT, target=semaphore, value=value)

    def event(self) -> _NoEvent:
        return _NoEvent()

    def synchronize(self) -> None:
        raise AssertionError("only iterations in device order are recorded")

    def _add(self, kind: int, *, target: int = 0, value: int = 0, seconds: float = 0.0) -> None:
        self.operations.append(NativeOp(kind=kind, target=target, value=value, duration_ns=seconds * 1e9))

    # ---- as a hook

    def iteration_begin(self, iteration: int) -> None:  # noqa: ARG002 - as the hook has it
        self._mark(Event.ITERATION_BEGIN)

    def iteration_end(self, iteration: int) -> None:  # noqa: ARG002 - as the hook has it
        self._mark(Event.ITERATION_END)

    def begin(self, kind: str, chunk: int = 0, microbatch: int = NO_MICROBATCH) -> None:
        self._mark(Event.BEGIN, kind, chunk, microbatch)

    def end(self, kind: str, chunk: int = 0, microbatch: int = NO_MICROBATCH) -> None:
        self._mark(Event.END, kind, chunk, microbatch)

    def mark(self, phase: str) -> None:
        self._mark(Event.MARK, phase)

    def _mark(self, event: Event, kind: str = "", chunk: int = 0, microbatch: int = NO_MICROBATCH) -> None:
        if self.with_boundaries or event is Event.ITERATION_END:
            self._add(OP_MARK)
            self.boundaries.append(BoundaryTemplate(event, str(kind), chunk, microbatch))
