"""One rank's trainer in virtual time: launches iterations, and knows which boundaries the device has passed."""

from collections.abc import Sequence
from dataclasses import replace

from perseus_dist.boundaries.reader import TimedBoundary
from perseus_dist.boundaries.record import Boundary
from perseus_dist.simulation.trainers.recorded_iteration import BoundaryTemplate, RecordedIteration
from perseus_dist.simulation.trainers.trainer_config import TrainerConfig
from perseus_dist.simulator.stream import SimulatedStream

_new = tuple.__new__


class VirtualTrainer:
    """One rank's trainer.

    Attributes:
        is_training: The device is still at what was launched.
    """

    def __init__(self, config: TrainerConfig, stream: SimulatedStream, *, with_boundaries: bool = True) -> None:
        """Begin.

        Args:
            config: Of the rank.
            stream: Of its GPU.
            with_boundaries: Whether an agent may want to know of all boundaries; otherwise only ends of iterations are.
        """
        self._config = config
        self._stream = stream
        self._with_boundaries = with_boundaries
        self._recorded = RecordedIteration(config, stream, with_boundaries=with_boundaries)
        self._slowness = 1.0
        self._has_usual_times = True
        self._iteration = 0
        self._sequence = 0
        self._templates: Sequence[BoundaryTemplate] = ()  # of what was launched
        self._num_passed = 0  # of them
        self.is_training = False

    def slow_down(self, slowness: float) -> None:
        """Multiply the durations of all work launched from now on; 1 ends it."""
        self._slowness = slowness
        self._has_usual_times = False

    def set_transfer_s(self, transfer_s: float) -> None:
        """Set the duration [s] of sending a result to another rank, for work launched from now on."""
        self._record(replace(self._config, transfer_s=transfer_s))

    def set_optimizer_s(self, optimizer_s: float) -> None:
        """Set the duration [s] of the optimizer step, for work launched from now on."""
        self._record(replace(self._config, optimizer_s=optimizer_s))

    def _record(self, config: TrainerConfig) -> None:
        self._config = config
        self._recorded = RecordedIteration(self._config, self._stream, with_boundaries=self._with_boundaries)
        self._has_usual_times = False

    def launch(self, iteration: int, noise: Sequence[float] | None = None) -> None:
        """Launch an iteration, once the one before it has ended.

        Args:
            iteration: Counts from 0.
            noise: (num_kernels) factors on the times of its computations; None for none.
        """
        recorded = self._recorded
        if noise is not None:
            recorded.set_kernel_times(
                [self._slowness * seconds * factor for seconds, factor in zip(recorded.kernel_s, noise, strict=True)]
            )
        elif not self._has_usual_times:
            recorded.set_kernel_times([self._slowness * seconds for seconds in recorded.kernel_s])
        self._has_usual_times = noise is None
        self._iteration = iteration
        self._templates, self._num_passed = recorded.boundaries, 0
        self.is_training = True
        recorded.launch(iteration)

    def drop(self) -> None:
        """Drop the launched work: no boundary of it will be passed."""
        self._stream.take_marks()
        self._templates, self._num_passed = (), 0
        self.is_training = False

    @property
    def num_kernels(self) -> int:
        """Computations of an iteration."""
        return len(self._recorded.kernel_s)

    def passed(self) -> list[TimedBoundary]:
        """Boundaries that the device has passed since the last call."""
        index, sequence, iteration, templates = self._num_passed, self._sequence, self._iteration, self._templates
        passed = []
        for time_ns in self._stream.take_marks():
            event, kind, chunk, microbatch = templates[index]
            index += 1
            sequence += 1
            # Thousands of times an iteration: what the classes do to the same end takes twice as long.
            boundary = _new(Boundary, (sequence, event, kind, chunk, microbatch, iteration, 0, 0, 0))
            passed.append(_new(TimedBoundary, (boundary, time_ns)))
        self._num_passed, self._sequence = index, sequence
        self.is_training = index < len(templates)
        return passed

    def drop_passed(self) -> None:
        """Drop boundaries that the device has passed since the last call: no agent reads them."""
        num_passed = len(self._stream.take_marks())
        self._num_passed += num_passed
        self._sequence += num_passed
        self.is_training = self._num_passed < len(self._templates)
