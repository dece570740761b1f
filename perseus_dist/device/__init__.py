"""Clock control and energy meter of one GPU."""
