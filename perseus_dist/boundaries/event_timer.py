"""When the device passed each boundary, exactly: CUDA events, read an iteration or more later, a few at a time."""

from collections import deque
from dataclasses import dataclass, field

from perseus_dist.boundaries.libcuda import NOT_READY, CudaDriver

MAX_EVENTS = 4096
"""An iteration with more boundaries, or a host that runs further ahead, leaves some of them without an exact time."""


# Plain tuples, since they are made on the trainer's hot path.
TimedEvent = tuple[int, int, bytes, int, int]
"""An event on the stream, and its boundary: (event, sequence, kind, chunk, microbatch)."""

Timing = tuple[int, TimedEvent, int]
"""When the device passed a boundary: (iteration, boundary, [ns] since the iteration's first boundary)."""


@dataclass(slots=True)
class _Iteration:
    iteration: int
    events: list[TimedEvent] = field(default_factory=list)
    num_read: int = 0
    is_passed: bool = False


class EventTimer:
    """Puts an event behind each boundary and reads it back. Every call may raise ``CudaCallError``.

    Attributes:
        num_iterations_passed: Iterations whose last event the device has passed.
    """

    def __init__(self, driver: CudaDriver) -> None:
        self._driver = driver
        self._free: deque[int] = deque()
        self._num_created = 0
        self._current: _Iteration | None = None
        self._past: deque[_Iteration] = deque()
        self.num_iterations_passed = 0

    @property
    def is_behind(self) -> bool:
        """Whether one time read per boundary is too few, because the host runs further ahead."""
        return len(self._past) > 1

    def begin_iteration(self, iteration: int) -> None:
        """The next boundary is an iteration's first: the one that the others are timed against."""
        if self._current is not None and self._current.events:
            self._past.append(self._current)
        self._current = _Iteration(iteration)

    def put(self, stream: int, sequence: int, kind: bytes, chunk: int, microbatch: int) -> None:
        """Put an event on the stream."""
        if self._current is None:
            return
        if self._free:
            event = self._free.popleft()
        elif self._num_created < MAX_EVENTS:
            event = self._driver.create_event()
            self._num_created += 1
        else:
            return
        result = self._driver.event_record(event, stream)
        if result:
            self._driver.check(result, "cuEventRecord")
        self._current.events.append((event, sequence, kind, chunk, microbatch))

    def take(self) -> Timing | None:
        """The next time that is known; None where the device has not passed the whole iteration yet."""
        if not self._past:
            return None
        past = self._past[0]
        if not past.is_passed:
            result = self._driver.event_query(past.events[-1][0])
            if result == NOT_READY:
                return None
            self._driver.check(result, "cuEventQuery")
            past.is_passed = True
            self.num_iterations_passed += 1
        boundary = past.events[past.num_read]
        first = past.events[0][0]
        device_ns = 0
        if past.num_read:
            device_ns = self._driver.elapsed_ns(first, boundary[0])
            self._free.append(boundary[0])
        past.num_read += 1
        if past.num_read == len(past.events):
            self._free.append(first)
            self._past.popleft()
        return past.iteration, boundary, device_ns
