"""Work of frameworks besides computing, by the names that schedules and profiles give it."""

TIED = "TIED"
"""Gradients of tied weights are summed over the stages that share them."""

REDUCE = "REDUCE"
"""Gradients are summed over the data-parallel ranks."""

REDUCE_CHUNK = "REDUCE_CHUNK"
"""The same for one of several model chunks, before the rank has computed all that it computes."""

STEP = "STEP"
"""The optimizer's step."""
