"""The workload on a CUDA GPU, through PyTorch. Proven on no GPU yet: what CI runs is its simulated sibling."""

import os
import time
from collections.abc import Sequence
from typing import Any

from perseus_dist.device.nvml.discovery import find_gpu
from perseus_dist.measure.bench.stage import StageSize, TransformerStage, import_torch
from perseus_dist.measure.errors import MeasureError

_PROBE_SIZE = 2048
_PROBE_S = 0.0005
_NUM_CALIBRATION_RUNS = 50
_NUM_WARM_UP = 3
# A receive of NCCL spins on several thread blocks.
_NUM_SPINNING_STREAMS = 8
_SPIN_HZ = 1.5e9  # cycles a second: near the clocks of today's GPUs, which is near enough for a wait


class CudaWorkload:
    """See ``Workload``. On the default stream of the current CUDA device."""

    is_simulated = False

    def __init__(self, size: StageSize) -> None:
        """Make the stage and warm up.

        Raises:
            MeasureError: No PyTorch, no CUDA GPU, or no room on it.
        """
        self._torch = torch = import_torch()
        if not torch.cuda.is_available():
            raise MeasureError(
                "PyTorch sees no CUDA GPU; run this on a GPU node with a CUDA build of PyTorch, or try it with "
                "'perseus-dist sim -- perseus-dist measure'"
            )
        try:
            self._stage = TransformerStage(size, device="cuda")
            self._spinning = [torch.cuda.Stream() for _ in range(_NUM_SPINNING_STREAMS - 1)]
            self._matrix = torch.randn((_PROBE_SIZE, _PROBE_SIZE), device="cuda", dtype=torch.bfloat16)
            self._product = torch.empty_like(self._matrix)
            for _ in range(_NUM_WARM_UP):
                self._stage.forward()
                self._stage.backward()
            self._probes_per_call = 1
            self._probes_per_call = self._calibrate_probe()
        except torch.cuda.OutOfMemoryError:
            raise MeasureError(
                f"{size.layers} layers of {size.hidden} with {size.microbatch_size} x {size.sequence_length} tokens do "
                "not fit into this GPU's memory; give fewer --layers or a smaller --hidden"
            ) from None
        self.gpu_uuid = self._find_uuid()
        self.description = (
            f"{size.layers} transformer layers of {size.hidden}, {size.microbatch_size} x {size.sequence_length} "
            f"tokens, bfloat16, PyTorch {torch.__version__}"
        )

    @property
    def stream(self) -> int:
        """See ``Workload``."""
        return int(self._torch.cuda.current_stream().cuda_stream)

    def launch(self, kind: str) -> None:
        """See ``Workload``."""
        if kind == "F":
            self._stage.forward()
            self._stage.forget_gradients()
        else:
            self._stage.backward()

    def probe(self) -> None:
        """See ``Workload``."""
        for _ in range(self._probes_per_call):
            self._torch.mm(self._matrix, self._matrix, out=self._product)

    def block(self, seconds: float) -> None:
        """See ``Workload``. A few threads that spin; NCCL's draw somewhat more."""
        cycles = int(seconds * _SPIN_HZ)
        for stream in self._spinning:
            with self._torch.cuda.stream(stream):
                self._torch.cuda._sleep(cycles)  # noqa: SLF001 - PyTorch's own tests wait by it
        self._torch.cuda._sleep(cycles)  # noqa: SLF001

    def mark(self) -> Any:
        """See ``Workload``."""
        event = self._torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def wait(self, mark: Any) -> None:
        """See ``Workload``."""
        mark.synchronize()

    def times_ns(self, marks: Sequence[Any]) -> list[int]:
        """See ``Workload``. Right to some 10 us against the host's clock, and to 1 us against each other."""
        self._torch.cuda.synchronize()
        before_ns = time.monotonic_ns()
        anchor = self.mark()
        anchor.synchronize()
        anchor_ns = (before_ns + time.monotonic_ns()) // 2
        return [anchor_ns - round(mark.elapsed_time(anchor) * 1e6) for mark in marks]

    def close(self) -> None:
        """See ``Workload``."""
        self._torch.cuda.synchronize()

    def _calibrate_probe(self) -> int:
        """How many products make a probe."""
        marks = [self.mark()]
        for _ in range(_NUM_CALIBRATION_RUNS):
            self.probe()
        marks.append(self.mark())
        begin_ns, end_ns = self.times_ns(marks)
        return max(1, round(_PROBE_S * 1e9 * _NUM_CALIBRATION_RUNS / max(1, end_ns - begin_ns)))

    def _find_uuid(self) -> str:
        properties = self._torch.cuda.get_device_properties(self._torch.cuda.current_device())
        uuid = getattr(properties, "uuid", None)  # since torch 2.3
        if uuid is not None:
            return f"GPU-{uuid}"
        found = find_gpu(0, os.environ)
        if found.uuid is None:
            raise MeasureError(f"NVML does not find CUDA's device 0: {found.trouble}")
        return found.uuid
