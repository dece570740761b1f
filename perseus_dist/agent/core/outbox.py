"""Profile samples until the planner has made them durable: numbered, sent again after every break."""

from collections.abc import Sequence
from dataclasses import replace

from perseus_dist.messages.from_agent import ProfileSamples, Sample

_MAX_ROWS_PER_MESSAGE = 4096


class SampleOutbox:
    """Numbers count from 1 for as long as the agent lives."""

    def __init__(self) -> None:
        self._sequence = 0
        self._waiting: list[ProfileSamples] = []

    def put(self, samples: ProfileSamples) -> ProfileSamples:
        """Number a message and keep it."""
        self._sequence += 1
        numbered = replace(samples, sequence=self._sequence)
        self._waiting.append(numbered)
        return numbered

    def put_saved_profile(self, rows: Sequence[Sample], blocking_power_w: float) -> None:
        """The rows of a saved profile, in as many messages as they need."""
        for first in range(0, len(rows), _MAX_ROWS_PER_MESSAGE):
            is_last = first + _MAX_ROWS_PER_MESSAGE >= len(rows)
            part = tuple(rows[first : first + _MAX_ROWS_PER_MESSAGE])
            self.put(
                ProfileSamples(
                    sequence=0, sweep_id=0, step=0, samples=part, blocking_power_w=blocking_power_w, last=is_last
                )
            )

    def acknowledge(self, sequence: int) -> None:
        """All up to this one are durable."""
        self._waiting = [samples for samples in self._waiting if samples.sequence > sequence]

    @property
    def waiting(self) -> tuple[ProfileSamples, ...]:
        """Not durable yet, oldest first."""
        return tuple(self._waiting)
