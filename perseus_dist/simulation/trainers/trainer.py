"""The stand-in trainer: follows its rank's schedule on a simulated GPU, and calls the hook as an adapter would.

``python -m perseus_dist.simulation.trainers.trainer`` in a simulated machine's environment, the configuration as
JSON on standard input. It prints one JSON line per iteration: when the device began it, had done the pipeline's work,
and ended it, in ns. It is the job: it never waits for agents.
"""

import ctypes
import json
import sys
from typing import Protocol

from perseus_dist.boundaries.record import Mark
from perseus_dist.hooks import attach
from perseus_dist.planning.schedule.granularity import ITERATION, Granularity
from perseus_dist.planning.schedule.instruction import Instruction
from perseus_dist.planning.schedule.schedule_text import parse_schedule
from perseus_dist.simulation.trainers.rendezvous import Rendezvous
from perseus_dist.simulation.trainers.trainer_config import TrainerConfig
from perseus_dist.simulator.errors import SimulatorError
from perseus_dist.simulator.stream import SimulatedStream


class BoundaryHook(Protocol):
    """The part of ``Hook`` that a trainer calls."""

    def iteration_begin(self, iteration: int) -> None:
        """An iteration begins."""

    def iteration_end(self, iteration: int) -> None:
        """The iteration ends."""

    def begin(self, kind: str, chunk: int = ..., microbatch: int = ...) -> None:
        """An instruction begins."""

    def end(self, kind: str, chunk: int = ..., microbatch: int = ...) -> None:
        """The instruction ends."""

    def mark(self, phase: str) -> None:
        """Mark the begin of a phase that is no instruction."""


class LaunchEvent(Protocol):
    """The part of ``StreamEvent`` that a trainer calls."""

    def time_ns(self) -> int | None:
        """When the device reached it; None before."""

    def close(self) -> None:
        """Release the event."""


class LaunchStream(Protocol):
    """The part of ``SimulatedStream`` that a trainer calls."""

    def kernel(self, kernel_class: str, seconds: float) -> None:
        """Enqueue a kernel of this class, which takes so long at the maximum clock."""

    def fixed(self, seconds: float) -> None:
        """Enqueue work that takes so long at every clock."""

    def signal(self, semaphore: int, after_s: float = 0.0) -> None:
        """Enqueue adding 1 to a semaphore, ``after_s`` [s] after what comes before."""

    def wait(self, semaphore: int, value: int) -> None:
        """Enqueue waiting until a semaphore is at least ``value``."""

    def event(self) -> LaunchEvent:
        """Enqueue an event, which has the device's time at this point."""

    def synchronize(self) -> None:
        """Wait until the device has done all that was enqueued."""


class Trainer:
    """Stands in for one rank's training loop, on a simulated stream."""

    def __init__(self, config: TrainerConfig, stream: LaunchStream, hook: BoundaryHook) -> None:
        schedule = parse_schedule(config.spec.schedule)
        self._config = config
        self._stream = stream
        self._hook = hook
        self._order = schedule.ranks[config.spec.pp_rank]
        self._sends_block = schedule.sends_block
        stages = sorted({instruction.stage for instruction in self._order})
        self._chunks = {stage: chunk for chunk, stage in enumerate(stages)}
        self._sees_instructions = config.spec.granularity == Granularity.INSTRUCTION
        self._rendezvous = Rendezvous(schedule, config.spec, config.first_semaphore)
        self._tp_size = config.spec.tp_size
        self._num_ranks = config.spec.pp_size * config.spec.dp_size * config.spec.tp_size
        self._num_meetings = 0  # of the tensor-parallel group, so far in the iteration
        self._meetings_of_iteration = 2 * sum(self._is_computation(instruction) for instruction in self._order)

    def run_iteration(self, iteration: int) -> tuple[int, int, int]:
        """Run one iteration; when the device began it, had done the pipeline's work, and ended it [ns]."""
        events = self.enqueue_iteration(iteration)
        self._stream.synchronize()
        times_ns = [event.time_ns() or 0 for event in events]  # all are there once synchronised
        for event in events:
            event.close()
        begin_ns, pipeline_end_ns, end_ns = times_ns
        return begin_ns, pipeline_end_ns, end_ns

    def enqueue_iteration(self, iteration: int) -> tuple[LaunchEvent, LaunchEvent, LaunchEvent]:
        """Launch one iteration; events at its begin, at the end of the pipeline's work, and at its end."""
        self._num_meetings = iteration * self._meetings_of_iteration
        self._hook.iteration_begin(iteration)
        begin = self._stream.event()
        if not self._sees_instructions:
            self._hook.begin(ITERATION)
        for instruction in self._order:
            self._run(instruction, iteration)
        pipeline_end = self._stream.event()
        if self._sees_instructions:
            self._hook.mark(Mark.GRAD_SYNC)
        # Gradients are reduced per stage, their norm over the whole job: no rank steps before all are here.
        self._stream.signal(self._rendezvous.barrier)
        self._stream.wait(self._rendezvous.barrier, (iteration + 1) * self._num_ranks)
        if not self._sees_instructions:
            self._hook.end(ITERATION)
        if self._config.optimizer_s:
            self._stream.fixed(self._config.optimizer_s)
        end = self._stream.event()
        self._synchronize_host()
        self._hook.iteration_end(iteration)
        return begin, pipeline_end, end

    def _run(self, instruction: Instruction, iteration: int) -> None:
        for need in self._rendezvous.needs(instruction):
            self._stream.wait(need.semaphore, iteration * need.period + need.first)
        self._meet(instruction)
        self._synchronize_host()
        chunk = self._chunks[instruction.stage]
        time = self._config.time_of(instruction.stage, instruction.kind)
        if self._sees_instructions:
            self._hook.begin(instruction.kind, chunk, instruction.microbatch)
        if time.kernel_class is None:
            self._stream.fixed(time.seconds)
        else:
            self._stream.kernel(time.kernel_class, time.seconds)
        self._meet(instruction)
        self._synchronize_host()
        if self._sees_instructions:
            self._hook.end(instruction.kind, chunk, instruction.microbatch)
        semaphore = self._rendezvous.signal_after(instruction)
        if semaphore is not None:
            if self._sends_block and self._config.transfer_s:
                self._stream.fixed(self._config.transfer_s)
                self._stream.signal(semaphore)
            else:
                self._stream.signal(semaphore, self._config.transfer_s)

    def _meet(self, instruction: Instruction) -> None:
        """Wait for all ranks of the tensor-parallel group: they begin a computation together, and end it together.

        Real groups reduce within each layer, so the slowest rank's pace is everybody's; and they gather what each rank
        has received of an input before the computation begins.
        """
        if self._tp_size > 1 and self._is_computation(instruction):
            self._num_meetings += 1
            self._stream.signal(self._rendezvous.group)
            self._stream.wait(self._rendezvous.group, self._num_meetings * self._tp_size)

    def _is_computation(self, instruction: Instruction) -> bool:
        return self._config.time_of(instruction.stage, instruction.kind).kernel_class is not None

    def _synchronize_host(self) -> None:
        if not self._config.device_ordered:
            self._stream.synchronize()


def main() -> None:
    """Run the iterations."""
    config = TrainerConfig.from_json(sys.stdin.read())
    stream = SimulatedStream.open(config.gpu)
    if config.device_ordered:
        _make_context(config.gpu)
    hook = attach(config.spec, device_stream=(lambda: stream.handle) if config.device_ordered else None)
    trainer = Trainer(config, stream, hook)
    for iteration in range(config.num_iterations):
        begin_ns, pipeline_end_ns, end_ns = trainer.run_iteration(iteration)
        line = {"iteration": iteration, "begin_ns": begin_ns, "pipeline_end_ns": pipeline_end_ns, "end_ns": end_ns}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
    hook.close()


def _make_context(gpu: int) -> None:
    """Make a context, as a framework has long before its first iteration."""
    driver = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    driver.cuCtxSetCurrent.argtypes = [ctypes.c_void_p]
    if (
        driver.cuInit(0)
        or driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), gpu)
        or driver.cuCtxSetCurrent(context)
    ):
        raise SimulatorError(f"no CUDA context on GPU {gpu}: start the trainer in environment(cuda=True)")


if __name__ == "__main__":
    main()
