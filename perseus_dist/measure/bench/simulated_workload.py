"""The workload on a simulated GPU: kernels are simulated, and a small stage really runs on the CPU beside them."""

from collections.abc import Mapping, Sequence

from perseus_dist.measure.bench.stage import StageSize, TransformerStage, import_torch
from perseus_dist.simulator.stream import SimulatedStream, StreamEvent
from perseus_dist.simulator.work import WORK_VARIABLE, WorkTimes

_DEFAULT_TIMES = WorkTimes(forward_s=0.035, backward_s=0.065)
_PROBE_S = 0.0005
# Far shorter on the host than the kernels that it stands beside.
_ON_THE_HOST = StageSize(layers=1, hidden=32, heads=2, sequence_length=8, microbatch_size=1)


class _Mark:
    """An event, and the position of the stream behind it."""

    def __init__(self, stream: SimulatedStream) -> None:
        self.event: StreamEvent = stream.event()
        self.position = stream.num_enqueued


class SimulatedWorkload:
    """See ``Workload``. On GPU 0 of the machine that the environment names, which no other process may use."""

    is_simulated = True

    def __init__(self, size: StageSize, environ: Mapping[str, str]) -> None:
        """Open the stream.

        Raises:
            MeasureError: No PyTorch.
            SimulatorError: No such machine, or another process uses the GPU.
        """
        import_torch().set_num_threads(1)
        self._stage = TransformerStage(_ON_THE_HOST, device="cpu")
        text = environ.get(WORK_VARIABLE)
        times = WorkTimes.from_json(text) if text else _DEFAULT_TIMES
        kernels = {kind: times.kernel(kind, 0, num_stages=1) for kind in "FB"}
        self._kernels = {kind: kernel for kind, kernel in kernels.items() if kernel is not None}
        self._stream = SimulatedStream.open(0, exclusive=True)
        self.gpu_uuid = self._stream.uuid
        self.description = (
            f"simulated kernels of {times.forward_s * 1e3:g} ms forward and {times.backward_s * 1e3:g} ms backward at "
            f"the maximum clock, whatever the size asked for ({size.layers} layers of {size.hidden})"
        )

    @property
    def stream(self) -> int:
        """See ``Workload``."""
        return self._stream.handle

    def launch(self, kind: str) -> None:
        """See ``Workload``."""
        self._stream.kernel(*self._kernels[kind])
        if kind == "F":
            self._stage.forward()
            self._stage.forget_gradients()
        else:
            self._stage.backward()

    def probe(self) -> None:
        """See ``Workload``."""
        self._stream.kernel("forward", _PROBE_S)

    def block(self, seconds: float) -> None:
        """See ``Workload``."""
        self._stream.fixed(seconds)

    def mark(self) -> _Mark:
        """See ``Workload``."""
        return _Mark(self._stream)

    def wait(self, mark: _Mark) -> None:
        """See ``Workload``."""
        self._stream.synchronize(mark.position)

    def times_ns(self, marks: Sequence[_Mark]) -> list[int]:
        """See ``Workload``. Exact."""
        self._stream.synchronize()
        times_ns = [mark.event.time_ns() or 0 for mark in marks]
        for mark in marks:
            mark.event.close()
        return times_ns

    def close(self) -> None:
        """See ``Workload``."""
        self._stream.synchronize()
