"""Where a rank's instructions run: a CUDA stream, a simulated GPU, or the host alone."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from perseus_dist.errors import PerseusError

if TYPE_CHECKING:
    from perseus_dist.simulator.work import SimulatedWork


class DeviceError(PerseusError):
    """A rank computes on another device than the one by which its GPU is known."""


class Device(Protocol):
    """The device of a rank: where an adapter computes, and where its boundaries go."""

    @property
    def gpu_uuid(self) -> str | None:
        """As NVML writes it; None where it is not known."""

    @property
    def device_stream(self) -> Callable[[], int] | None:
        """As ``hooks.attach`` takes it."""

    @property
    def has_clock(self) -> bool:
        """Whether the rank computes on a GPU, whose clock a plan could set."""

    def begin(self, kind: str, stage: int) -> None:
        """An instruction begins; called before its boundary."""

    def end(self) -> None:
        """The instruction ends; called before its boundary."""

    def send(self, kind: str, stage: int) -> None:
        """An instruction's result is sent; called after its last boundary."""

    def host_pace(self) -> tuple[int, int] | None:
        """Instructions, and those whose real work took longer than their simulated kernel; None on other devices."""

    def close(self) -> None:
        """Release the device; no instruction follows."""


@dataclass(frozen=True, slots=True)
class Host:
    """The host alone: nothing is launched, so boundaries are passed when Python is there."""

    gpu_uuid: None = None
    device_stream: None = None
    has_clock: bool = False

    def begin(self, kind: str, stage: int) -> None:
        """Launches nothing: work runs on the host alone."""

    def end(self) -> None:
        """Waits for nothing: work has run on the host."""

    def send(self, kind: str, stage: int) -> None:
        """Takes no time beside what the framework sends."""

    def host_pace(self) -> None:
        """Nothing is simulated."""

    def close(self) -> None:
        """Holds nothing to close."""


@dataclass(frozen=True, slots=True)
class CudaGpu:
    """The current CUDA device: instructions are launched on its current stream."""

    gpu_uuid: str | None
    device_stream: Callable[[], int]
    has_clock: bool = True

    def begin(self, kind: str, stage: int) -> None:
        """Nothing: the framework launches."""

    def end(self) -> None:
        """Nothing: the stream says when it is there."""

    def send(self, kind: str, stage: int) -> None:
        """Nothing: the framework sends."""

    def host_pace(self) -> None:
        """Nothing is simulated."""

    def close(self) -> None:
        """Holds nothing to close."""


@dataclass(frozen=True, slots=True)
class SimulatedGpu:
    """A simulated GPU on which each instruction runs as a kernel, beside its real work on the host.

    The kernel is launched before that work and waited for after it, so that shorter work does not show.
    """

    work: "SimulatedWork"
    device_stream: None = None
    has_clock: bool = True

    @property
    def gpu_uuid(self) -> str:
        """The simulated GPU's."""
        return self.work.uuid

    def begin(self, kind: str, stage: int) -> None:
        """Launch the instruction's kernel."""
        self.work.begin(kind, stage)

    def end(self) -> None:
        """Wait for it; the GPU is blocked from then on."""
        self.work.end()

    def send(self, kind: str, stage: int) -> None:
        """Wait as long as it takes on a link of the simulated machine."""
        self.work.send(kind, stage)

    def host_pace(self) -> tuple[int, int]:
        """Instructions, and those whose real work took longer than their kernel."""
        return self.work.num_instructions, self.work.num_outlasting

    def close(self) -> None:
        """The GPU falls idle."""
        self.work.close()


def open_device(
    local_rank: int,
    *,
    is_cuda: bool,
    num_stages: int,
    num_chunks: int = 1,
    sends_block: bool = False,
    cuda_index: int | None = None,
) -> Device:
    """The device of this rank.

    Args:
        local_rank: The rank among those of its host: which simulated GPU is its.
        is_cuda: Whether the framework computes on the current CUDA device.
        num_stages: Virtual stages over the whole model.
        num_chunks: Virtual stages on this rank.
        sends_block: As of ``SimulatedWork.from_environment``.
        cuda_index: The CUDA device that the rank's model is on, where the framework says it.

    Raises:
        SimulatorError: The environment names a simulated GPU that is not there, or impossible times.
        DeviceError: The model is on another CUDA device than the current one.
    """
    # Its import loads no native code: that happens once the environment names a simulated machine.
    from perseus_dist.simulator.work import SimulatedWork

    work = SimulatedWork.from_environment(
        gpu=local_rank, num_stages=num_stages, num_chunks=num_chunks, sends_block=sends_block
    )
    if work is not None:
        return SimulatedGpu(work)
    return _current_cuda_gpu(cuda_index) if is_cuda else Host()


def _current_cuda_gpu(index: int | None) -> CudaGpu:
    import torch

    current = torch.cuda.current_device()
    if index not in (None, current):
        raise DeviceError(
            f"this rank's model is on cuda:{index}, and its current device is cuda:{current}, by which Perseus knows "
            f"whose clock to set; call torch.cuda.set_device({index}) before training"
        )
    uuid = getattr(torch.cuda.get_device_properties(current), "uuid", None)  # since torch 2.3
    return CudaGpu(
        gpu_uuid=None if uuid is None else f"GPU-{uuid}",
        device_stream=lambda: int(torch.cuda.current_stream().cuda_stream),
    )
