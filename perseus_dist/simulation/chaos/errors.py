"""Errors of scenarios."""

from perseus_dist.simulation.errors import SimulationError


class ScenarioError(SimulationError):
    """A scenario that cannot be read or played: an unknown field, a value out of range, a fault that does not apply."""
