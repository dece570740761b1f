"""The few calls of NVIDIA's driver that put boundaries on a stream. None of them waits for the device.

Those of the hot path are attributes: they return a CUresult, which ``CudaDriver.check`` turns into a sentence. Calls
let the trainer's other threads run meanwhile: while the stream's queue is full any launch blocks, these like the
framework's own.
"""

import ctypes
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint32, c_uint64, c_void_p

SUCCESS = 0
NOT_INITIALIZED = 3
NOT_READY = 600
STREAM_CAPTURE_IMPLICIT = 906

# Streams and events are handles; a stream may be 0 (legacy default), 1 (the same, by name) or 2 (per-thread default).
_SIGNATURES = {
    "cuGetErrorString": [c_int, POINTER(c_char_p)],
    "cuCtxGetCurrent": [POINTER(c_void_p)],
    "cuMemHostRegister_v2": [c_void_p, c_size_t, c_uint],
    "cuMemHostGetDevicePointer_v2": [POINTER(c_uint64), c_void_p, c_uint],
    "cuStreamIsCapturing": [c_void_p, POINTER(c_int)],
    # The first version of this call is off unless a kernel module parameter turns it on; the second is always there.
    "cuStreamWriteValue32_v2": [c_void_p, c_uint64, c_uint32, c_uint],
    "cuEventCreate": [POINTER(c_void_p), c_uint],
    "cuEventRecord": [c_void_p, c_void_p],
    "cuEventQuery": [c_void_p],
    "cuEventElapsedTime": [POINTER(c_float), c_void_p, c_void_p],
}
_PORTABLE_DEVICEMAP = 0x1 | 0x2


class CudaCallError(Exception):
    """A call of the driver failed; the text says which, and what the driver says about it."""


class CudaDriver:
    """The driver that the trainer's framework has loaded and initialised already.

    Attributes:
        write_value: ``(stream, device_address, value, 0)``.
        event_record: ``(event, stream)``.
        event_query: ``(event)``.

    Raises:
        CudaCallError: There is no driver, or it is older than CUDA 11.7.
    """

    def __init__(self) -> None:
        try:
            library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise CudaCallError(f"libcuda.so.1 cannot be loaded ({error})") from None
        for name, argument_types in _SIGNATURES.items():
            try:
                getattr(library, name).argtypes = argument_types
            except AttributeError:
                raise CudaCallError(f"this driver has no {name}; it needs one for CUDA 11.7 or newer") from None
        self._library = library
        self.write_value = library.cuStreamWriteValue32_v2
        self.event_record = library.cuEventRecord
        self.event_query = library.cuEventQuery
        self._is_capturing = library.cuStreamIsCapturing
        self._elapsed_time = library.cuEventElapsedTime
        self._capture_status = c_int()
        self._capture_status_at = byref(self._capture_status)
        self._elapsed_ms = c_float()
        self._elapsed_ms_at = byref(self._elapsed_ms)

    def check(self, result: int, call: str) -> None:
        """Raise unless the call succeeded.

        Raises:
            CudaCallError: With the driver's own words.
        """
        if result != SUCCESS:
            text = c_char_p()
            self._library.cuGetErrorString(result, byref(text))
            raise CudaCallError(f"{call} failed: {(text.value or b'unknown error').decode()} ({result})")

    def has_context(self) -> bool:
        """Whether this thread has a current context. Never makes one: that is the framework's."""
        context = c_void_p()
        result = self._library.cuCtxGetCurrent(byref(context))
        if result == NOT_INITIALIZED:
            return False
        self.check(result, "cuCtxGetCurrent")
        return bool(context.value)

    def is_capturing(self, stream: int) -> bool:
        """Whether the stream records a graph. Then nothing may be put on it, nor may events be queried."""
        result = self._is_capturing(stream, self._capture_status_at)
        if result:
            if result == STREAM_CAPTURE_IMPLICIT:
                return True
            self.check(result, "cuStreamIsCapturing")
        return self._capture_status.value != 0

    def map_for_device(self, address: int, num_bytes: int) -> int:
        """The device's address of host memory, which stays pinned until the process ends.

        Nothing is ever unmapped: writes may still be on their way, and a device that finds their target gone stops
        the whole trainer.

        Raises:
            CudaCallError: The memory cannot be pinned or mapped.
        """
        self.check(self._library.cuMemHostRegister_v2(address, num_bytes, _PORTABLE_DEVICEMAP), "cuMemHostRegister")
        device_address = c_uint64()
        result = self._library.cuMemHostGetDevicePointer_v2(byref(device_address), address, 0)
        self.check(result, "cuMemHostGetDevicePointer")
        return device_address.value

    def create_event(self) -> int:
        """A new event that keeps its time.

        Raises:
            CudaCallError: There is none to be had.
        """
        event = c_void_p()
        self.check(self._library.cuEventCreate(byref(event), 0), "cuEventCreate")
        return event.value or 0

    def elapsed_ns(self, begin: int, end: int) -> int:
        """[ns] between two events that the device has passed, to about half a microsecond.

        Raises:
            CudaCallError: One of them is not there yet, or they are of two devices.
        """
        result = self._elapsed_time(self._elapsed_ms_at, begin, end)
        if result:
            self.check(result, "cuEventElapsedTime")
        return round(self._elapsed_ms.value * 1e6)
