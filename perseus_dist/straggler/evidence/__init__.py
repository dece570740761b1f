"""Evidence of slow ranks: series of times and of NVML's readings, against peers and history."""
