"""How many of the integers that planning counts in make a unit; without numpy, for agents and trainers."""

PS_PER_S = 10**12
PS_PER_NS = 10**3
PS_PER_MS = 10**9
UJ_PER_J = 10**6
UW_PER_W = 10**6
