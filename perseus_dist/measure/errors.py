"""Errors of measuring a GPU."""

from perseus_dist.errors import PerseusError


class MeasureError(PerseusError):
    """A GPU that cannot be measured: none there, no PyTorch, no energy counter, or its clock control was lost."""
