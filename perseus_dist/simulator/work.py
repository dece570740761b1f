"""Simulated work in a trainer that computes on the CPU: what its instructions take on a simulated GPU.

The trainer really trains, on the host; beside that each instruction runs as a kernel on the rank's simulated GPU, whose
clock decides how long it takes::

    host     |begin| the framework's own work |end: waits for the kernel| send, receive |begin| ...
    device   |--------------- kernel -------------|------ blocked: spins in a receive ---|---- kernel ...

So host work that is shorter than its kernel does not show. ``perseus-dist sim --forward-ms 35 --backward-ms 65 --
COMMAND`` tells every process of COMMAND how long instructions take. A transfer holds its sender up before the framework
sends: the receiver gets it so much later, as from a slow link in 1F1B. DeepSpeed's holds both sides up in their own
commands, one transfer after the other. With ``--step-ms`` the optimizer's step takes its time too, as a constant: the
same at every clock, at blocking power.
"""

import json
import math
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Self

from perseus_dist.simulator.errors import SimulatorError
from perseus_dist.simulator.native_library import NUM_SEMAPHORES
from perseus_dist.simulator.stream import STATE_VARIABLE, SimulatedStream

WORK_VARIABLE = "PERSEUS_SIM_WORK"
STEP = "STEP"  # as training.rank.constant_kinds names the optimizer's step
MAX_WORK_S = 1e5  # longer ones are slips of the unit

KERNELS = {
    "F": ("forward", 1.0, 0.0),
    "B": ("backward", 0.0, 1.0),
    "I": ("backward", 0.0, 0.5),
    "W": ("backward", 0.0, 0.5),
    "FB": ("backward", 1.0, 1.0),
}
"""Of each kind: the simulated GPU's class of kernels, and the shares of a whole forward and a whole backward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkTimes:
    """How long the work of a pipeline stage takes on a simulated GPU at its maximum clock.

    Attributes:
        forward_s: [s] a rank's forward of one microbatch; a rank's chunks share it evenly.
        backward_s: [s] its backward; the input gradient and the weight gradient take half each; a
            forward and a backward that run as one take as long as one after the other.
        imbalance: The last stage takes ``1 + imbalance`` times as long as the first, those between in a straight line.
        transfer_s: [s] sending an activation or a gradient to another rank.
        step_s: [s] a rank's optimizer step, the same on all ranks and at every clock.

    Raises:
        SimulatorError: Times that are not positive, a transfer or a step of less than none, or an imbalance of -1 or
            less.
    """

    forward_s: float
    backward_s: float
    imbalance: float = 0.0
    transfer_s: float = 0.0
    step_s: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("forward", self.forward_s), ("backward", self.backward_s)):
            if not 0.0 < value <= MAX_WORK_S:
                raise SimulatorError(
                    f"a simulated {name} of {value * 1e3:g} ms; give its time in ms at the maximum clock, as in 35"
                )
        for name, value in (("transfer", self.transfer_s), ("step", self.step_s)):
            if not 0.0 <= value <= MAX_WORK_S:
                raise SimulatorError(f"a simulated {name} of {value * 1e3:g} ms; give its time in ms, as in 5")
        if not (self.imbalance > -1.0 and math.isfinite(self.imbalance)):
            raise SimulatorError(
                f"imbalance {self.imbalance:g}; expected more than -1: 0.1 makes the last stage 10 % slower"
            )

    def kernel(self, kind: str, stage: int, *, num_stages: int, num_chunks: int = 1) -> tuple[str, float] | None:
        """The class of the kernel that an instruction runs as, and its time [s] at the maximum clock.

        Args:
            kind: As in the schedule.
            stage: Virtual stage over the whole model.
            num_stages: Virtual stages over the whole model.
            num_chunks: Virtual stages on each rank.

        Returns:
            None for a kind that does not compute on the GPU: a constant.
        """
        if kind not in KERNELS:
            return None
        kernel_class, of_forward, of_backward = KERNELS[kind]
        whole_s = self.forward_s * of_forward + self.backward_s * of_backward
        growth = 1.0 + self.imbalance * stage / max(1, num_stages - 1)
        return kernel_class, whole_s * growth / num_chunks

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The inverse of ``work_environment``.

        Raises:
            SimulatorError: Not such a text.
        """
        try:
            return cls(**{name: float(value) for name, value in json.loads(text).items()})
        except (ValueError, TypeError, AttributeError):
            names = ", ".join(field.name for field in fields(cls))
            raise SimulatorError(
                f"{WORK_VARIABLE}={text}: expected a JSON object of the numbers {names}, as 'perseus-dist sim "
                "--forward-ms 35 --backward-ms 65' sets it"
            ) from None


def work_environment(
    *, forward_s: float, backward_s: float, imbalance: float = 0.0, transfer_s: float = 0.0, step_s: float = 0.0
) -> dict[str, str]:
    """Environment of trainers, besides a machine's own, to run simulated work.

    Raises:
        SimulatorError: As ``WorkTimes``.
    """
    times = WorkTimes(
        forward_s=forward_s, backward_s=backward_s, imbalance=imbalance, transfer_s=transfer_s, step_s=step_s
    )
    return {WORK_VARIABLE: json.dumps(asdict(times))}


class SimulatedWork:
    """The work of one rank on its simulated GPU. Calls come from one thread.

    Whenever no kernel runs, the GPU is blocked: it draws its blocking power, as while a receive spins, until ``close``
    or the end of the process.

    Attributes:
        uuid: The GPU's, as NVML writes it.
        num_instructions: Instructions that ran as kernels and were waited for. A step does not count: ranks wait for
            each other within it.
        num_outlasting: Those whose kernel had ended before the host came to wait for it: real work took longer.
    """

    def __init__(
        self, stream: SimulatedStream, *, gpu: int, times: WorkTimes, num_stages: int, num_chunks: int = 1
    ) -> None:
        self._stream = stream
        self._times = times
        self._num_stages = num_stages
        self._num_chunks = num_chunks
        self._semaphore = NUM_SEMAPHORES - 1 - gpu  # a GPU's own; stand-in trainers count theirs from 0
        # The stream waits until the host raises the semaphore to this. It may have been raised by earlier processes.
        self._released = stream.semaphore(self._semaphore) + 1
        self._position: int | None = None
        self._is_kernel = False  # what is launched
        self.uuid = stream.uuid
        self.num_instructions = 0
        self.num_outlasting = 0
        stream.wait(self._semaphore, self._released)

    @classmethod
    def from_environment(
        cls, *, gpu: int, num_stages: int, num_chunks: int = 1, sends_block: bool = False
    ) -> Self | None:
        """The work of this process, if it runs under ``perseus-dist sim --forward-ms ...``.

        Args:
            gpu: Index of its simulated GPU, which no other process may use.
            num_stages: Virtual stages over the whole model.
            num_chunks: Virtual stages on each rank.
            sends_block: Whether ``send`` is called where a rank waits for transfers, also with several chunks.

        Returns:
            None where the environment says nothing of simulated work.

        Raises:
            SimulatorError: What it says is wrong, the machine is gone, or it has no such GPU that is free; transfers,
                where a rank has several chunks and does not wait for them.
        """
        text = os.environ.get(WORK_VARIABLE)
        if not text or not os.environ.get(STATE_VARIABLE):
            return None
        times = WorkTimes.from_json(text)
        if times.transfer_s and num_chunks > 1 and not sends_block:
            raise SimulatorError(
                "simulated transfers hold up their sender, as in 1F1B; leave --transfer-ms out where ranks have "
                "several chunks"
            )
        stream = SimulatedStream.open(gpu, exclusive=True)
        return cls(stream, gpu=gpu, times=times, num_stages=num_stages, num_chunks=num_chunks)

    def begin(self, kind: str, stage: int) -> None:
        """Launch an instruction's kernel: it starts now. Of other kinds than F, B, I, W, FB and STEP: nothing.

        Args:
            kind: As in the schedule.
            stage: Virtual stage over the whole model.
        """
        if kind == STEP and self._times.step_s:
            self._launch(lambda stream: stream.fixed(self._times.step_s))
            self._is_kernel = False
            return
        kernel = self._times.kernel(kind, stage, num_stages=self._num_stages, num_chunks=self._num_chunks)
        if kernel is None:
            return
        self._launch(lambda stream: stream.kernel(*kernel))
        self._is_kernel = True

    def end(self) -> None:
        """Wait until the kernel that ``begin`` launched has ended; from then on the GPU is blocked."""
        if self._position is not None:
            if self._is_kernel:
                self.num_instructions += 1
                self.num_outlasting += self._stream.is_completed(self._position)
            self._wait()

    def send(self, kind: str, stage: int) -> None:
        """Wait as long as sending an instruction's result takes, where another rank gets it; the GPU is blocked."""
        is_sent = stage + 1 < self._num_stages if kind == "F" else kind in ("B", "I") and stage > 0
        if is_sent and self._times.transfer_s:
            self._launch(lambda stream: stream.fixed(self._times.transfer_s))
            self._wait()

    def close(self) -> None:
        """Unblock the GPU: it falls idle once its kernel has ended. Harmless when repeated."""
        self._release()
        self._position = None

    def _launch(self, enqueue: Callable[[SimulatedStream], None]) -> None:
        """Let the stream go on with this, and with nothing after it.

        Both are queued before it is let go, so that a host that is late, now or at the end, never leaves the GPU idle.
        """
        enqueue(self._stream)
        self._position = self._stream.num_enqueued
        self._stream.wait(self._semaphore, self._released + 1)
        self._release()

    def _wait(self) -> None:
        """Wait for what ``_launch`` let go."""
        if self._position is not None:
            self._stream.synchronize(self._position)
            self._position = None

    def _release(self) -> None:
        self._stream.raise_semaphore(self._semaphore, self._released)
        self._released += 1
