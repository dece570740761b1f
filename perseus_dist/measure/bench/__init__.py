"""Parts of a measurement: work on the GPU, its clock, its readings."""
