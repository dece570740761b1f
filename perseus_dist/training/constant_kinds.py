"""What frameworks do besides computing, by the names that schedules and profiles give it."""

LOAD = "LOAD"
"""A microbatch is loaded."""

TIED = "TIED"
"""Gradients of tied weights are summed over the stages that share them."""

REDUCE = "REDUCE"
"""Gradients are summed over the data-parallel ranks."""

STEP = "STEP"
"""The optimizer's step."""
