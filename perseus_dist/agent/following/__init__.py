"""Where a rank stands in its program of instructions, and how long runs of them took."""
