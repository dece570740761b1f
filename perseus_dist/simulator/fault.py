"""Faults that a test injects, and the log of calls that change something."""

from dataclasses import dataclass

from perseus_dist.simulator.native_library import NativeCall, NativeFault


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault of NVML or CUDA functions, in every process.

    Attributes:
        function: Glob over exported names, for example "nvmlDeviceSetGpuLockedClocks" or "nvmlDeviceGet*". Note that
            nvidia-ml-py calls the newest variant (nvmlInit_v2, or nvmlInitWithFlags).
        result: Return code instead of doing anything, for example 4 (no permission), 13 (function not found: an old
            driver); 0 lets the call go on.
        delay_s: The call first hangs this long, in wall time.
        num_skipped: So many matching calls pass before the fault begins.
        num_calls: So many calls are hit; None for all.
        is_ignored: The call answers success and does nothing: a clock that is never reached. For setters.
    """

    function: str
    result: int = 0
    delay_s: float = 0.0
    num_skipped: int = 0
    num_calls: int | None = None
    is_ignored: bool = False

    def native(self, gpu_mask: int) -> NativeFault:
        """As the native part wants it."""
        return NativeFault(
            function=self.function.encode(),
            gpu_mask=gpu_mask,
            result=self.result,
            num_skipped=self.num_skipped,
            num_left=-1 if self.num_calls is None else self.num_calls,
            delay_us=round(self.delay_s * 1e6),
            is_ignored=int(self.is_ignored),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedCall:
    """A call that set or reset something, or tried to.

    Attributes:
        time_ns: When it took hold, on the machine's clock.
        pid: Whose call.
        gpu: Index.
        function: NVML's name, or "request" and "release" for ``SimulatedGpu.request_clock``.
        lo: First argument: the lowest clock [MHz], or a power limit [mW].
        hi: Second argument.
        result: Return code.
    """

    time_ns: int
    pid: int
    gpu: int
    function: str
    lo: int
    hi: int
    result: int

    @classmethod
    def from_native(cls, call: NativeCall) -> "LoggedCall":
        """Read an entry of the native log."""
        return cls(
            time_ns=call.time_ns,
            pid=call.pid,
            gpu=call.gpu,
            function=call.function.decode(),
            lo=call.lo,
            hi=call.hi,
            result=call.result,
        )
