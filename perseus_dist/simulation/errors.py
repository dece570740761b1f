"""Errors of simulated runs."""

from perseus_dist.errors import PerseusError


class SimulationError(PerseusError):
    """A simulated run that cannot go on: a process did not start, or a stand-in trainer failed."""
