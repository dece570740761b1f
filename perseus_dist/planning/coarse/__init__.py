"""Plans with one clock for each rank, or for each rank and phase, and the bound of all such plans."""
