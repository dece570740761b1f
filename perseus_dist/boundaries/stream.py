"""Device order: boundaries are passed when the GPU reaches them, not when Python does. Nothing is ever waited for.

Behind the work that was launched before a boundary, the stream gets a write of the boundary's sequence into the ring's
header, so that the agent sees how far the device is, and an event, whose exact time follows an iteration or more later.
"""

import logging
from collections.abc import Callable
from time import monotonic_ns

from perseus_dist.boundaries.event_timer import EventTimer
from perseus_dist.boundaries.libcuda import CudaCallError, CudaDriver
from perseus_dist.boundaries.record import Event, encode_record
from perseus_dist.boundaries.ring import HEADER_BYTES, PROGRESS_OFFSET, RingWriter

_log = logging.getLogger(__name__)

# Frameworks make their context before the first iteration; one that has none in the third never makes it.
_MAX_STARTS = 3
# No write has arrived, yet the device has passed the work of this many iterations.
_MAX_SILENT_ITERATIONS = 3
_PROGRESS_MASK = 0xFFFF_FFFF
_TIMING = int(Event.TIMING)


class DeviceOrder:
    """Follows the compute stream of one trainer. On any trouble it turns itself off, once, for good: host order stays.

    Attributes:
        refusal: Why boundaries are in host order, in a sentence; empty while they are in device order, or may yet be.
    """

    def __init__(self, ring: RingWriter, device_stream: Callable[[], int]) -> None:
        self._ring = ring
        self._device_stream = device_stream
        self._driver: CudaDriver | None = None
        self._timer: EventTimer | None = None
        self._progress_address = 0
        self._num_starts = 0
        self._has_arrived = False  # a write of the device; later its word is 0 again, once in 2**32 records
        self.refusal = ""

    def begin_iteration(self, iteration: int) -> None:
        """The next boundary is an iteration's first. Never raises."""
        if self.refusal:
            return
        try:
            if self._timer is None:
                self._start()
            if self._timer is not None:
                self._timer.begin_iteration(iteration)
        except Exception as error:
            self._turn_off(error)

    def put(self, sequence: int, kind: bytes, chunk: int, microbatch: int) -> None:
        """Put the boundary that was just written to the ring on the stream. Never raises."""
        driver, timer = self._driver, self._timer
        if driver is None or timer is None or self.refusal:
            return
        try:
            stream = self._device_stream()
            if driver.is_capturing(stream):
                raise CudaCallError("the stream is recording a CUDA graph, whose replays never come by here")
            if self._write_timing(timer) and timer.is_behind:
                self._write_timing(timer)
            timer.put(stream, sequence, kind, chunk, microbatch)
            result = driver.write_value(stream, self._progress_address, sequence & _PROGRESS_MASK, 0)
            if result:
                driver.check(result, "cuStreamWriteValue32")
        except Exception as error:
            self._turn_off(error)

    def _start(self) -> None:
        stream = self._device_stream()
        driver = self._driver or CudaDriver()
        self._driver = driver
        if not driver.has_context():
            self._num_starts += 1
            if self._num_starts == _MAX_STARTS:
                raise CudaCallError("no CUDA context is current on the thread that calls the hook")
            return
        if driver.is_capturing(stream):
            return
        address = driver.map_for_device(self._ring.address, HEADER_BYTES)
        self._progress_address = address + PROGRESS_OFFSET
        self._timer = EventTimer(driver)
        self._ring.set_device_ordered(True)

    def _write_timing(self, timer: EventTimer) -> bool:
        timing = timer.take()
        if timing is None:
            return False
        if not self._has_arrived and timer.num_iterations_passed >= _MAX_SILENT_ITERATIONS:
            if self._ring.progress == 0:
                raise CudaCallError("the device has passed whole iterations, but none of its writes has arrived")
            self._has_arrived = True
        iteration, (_, sequence, kind, chunk, microbatch), device_ns = timing
        ring = self._ring
        ring.write(
            encode_record(
                ring.head + 1, _TIMING, kind, chunk, microbatch, iteration, monotonic_ns(), device_ns, sequence
            )
        )
        return True

    def _turn_off(self, error: Exception) -> None:
        self.refusal = f"boundaries follow the host, not the device: {error or type(error).__name__}"
        self._ring.set_device_ordered(False)
        _log.warning("%s", self.refusal)
