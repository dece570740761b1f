"""Bounds of the power that a GPU draws. Standard library only: launchers read profiles before anything starts."""

MIN_GPU_POWER_W, MAX_GPU_POWER_W = 1.0, 10_000.0
"""Averages of one GPU; beyond lie figures in kilowatts, milliwatts and microwatts."""

MAX_TENSOR_PARALLEL = 4_096
"""GPUs of a tensor-parallel group; of many more, prices of time would be beyond what the solver's sums hold."""
