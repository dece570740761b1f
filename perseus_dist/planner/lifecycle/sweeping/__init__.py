"""Profiling sweeps: which clocks are worth measuring, who measures them, orders and samples."""
