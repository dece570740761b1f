"""Time and energy of instructions at each clock: energy counter, sweeps, estimates, drift."""
