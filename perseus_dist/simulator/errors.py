"""Errors of simulated GPUs."""

from perseus_dist.errors import PerseusError


class SimulatorError(PerseusError):
    """A simulated machine that cannot be built or used: library missing, unknown preset, impossible request."""
