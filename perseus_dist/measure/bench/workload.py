"""Work that runs on the GPU while it is measured: a pipeline stage, on CUDA or on a simulated GPU."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from perseus_dist.measure.bench.stage import StageSize
from perseus_dist.simulator.stream import STATE_VARIABLE


class Workload(Protocol):
    """Work on one GPU's stream: launched by the host, in order, and timed by the device.

    Attributes:
        gpu_uuid: As NVML writes it.
        is_simulated: Whether the GPU is a simulated one.
        description: What runs, in a few words.
        stream: The CUstream that it is launched on.
    """

    gpu_uuid: str
    is_simulated: bool
    description: str

    @property
    def stream(self) -> int:
        """The CUstream that kernels are launched on."""

    def launch(self, kind: str) -> None:
        """Enqueue the stage's forward ("F") or backward ("B") of one microbatch; returns at once."""

    def probe(self) -> None:
        """Enqueue a kernel of half a millisecond or so, whose time follows the clock."""

    def block(self, seconds: float) -> None:
        """Enqueue waiting as a receive does, for about so long."""

    def mark(self) -> Any:
        """Enqueue a point in time."""

    def wait(self, mark: Any) -> None:
        """Until the device has passed it."""

    def times_ns(self, marks: Sequence[Any]) -> list[int]:
        """[ns, CLOCK_MONOTONIC] when the device passed marks, which then end. Waits for all that was enqueued."""

    def close(self) -> None:
        """Give back what the workload holds."""


def open_workload(size: StageSize, environ: Mapping[str, str] = os.environ) -> Workload:
    """The workload on simulated GPU 0 where the environment names a simulated machine, else on CUDA device 0.

    Raises:
        MeasureError: No PyTorch, no CUDA GPU, or no room on it.
        SimulatorError: The simulated GPU is gone or used by another process.
    """
    if environ.get(STATE_VARIABLE):
        from perseus_dist.measure.bench.simulated_workload import SimulatedWorkload

        return SimulatedWorkload(size, environ)
    from perseus_dist.measure.bench.cuda_workload import CudaWorkload

    return CudaWorkload(size)
