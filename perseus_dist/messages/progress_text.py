"""A job's progress in its phase, in words, and when to log it."""

from typing import Protocol

_SPANS = (("h", 3600.0, 5400.0), ("min", 60.0, 90.0), ("s", 1.0, 0.0))  # name, [s], from how many seconds on
_WORTH_S = 5.0
_STEPS = 4  # of a phase, each logged once


class Progressing(Protocol):
    """The part of a job's status that texts of its progress need, as a plain value or of the wire."""

    @property
    def phase(self) -> str:
        """Name of the job's phase."""

    @property
    def progress(self) -> str:
        """How far the phase is, in a sentence."""

    @property
    def progress_share(self) -> float:
        """Done of it; 0 where it is not known."""

    @property
    def phase_left_s(self) -> float:
        """[s] until it is over; 0 where that is not known."""


def format_progress(status: Progressing) -> str:
    """Such as ``sweep of 21 clocks, iteration 30 of 63, about 2 min left``; empty where there is nothing to say."""
    if not (status.progress and status.phase_left_s):
        return status.progress
    return f"{status.progress}, about {format_span(status.phase_left_s)} left"


def format_span(span_s: float) -> str:
    """Seconds, minutes or hours, such as ``2 min``."""
    unit, size_s = next((unit, size_s) for unit, size_s, least_s in _SPANS if span_s >= least_s)
    return f"{span_s / size_s:.0f} {unit}"


class ProgressSteps:
    """Picks out the statuses in which a quarter more of a phase is done and some seconds are left, for logs."""

    def __init__(self) -> None:
        self._told = ("", 0)

    def is_next(self, status: Progressing) -> bool:
        """Whether to log this one."""
        step = int(status.progress_share * _STEPS)
        phase, before = self._told
        self._told = (status.phase, step)
        is_worth_it = status.phase_left_s >= _WORTH_S
        return is_worth_it and 0 < step < _STEPS and (phase != status.phase or step > before)
