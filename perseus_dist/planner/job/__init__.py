"""A job as the planner knows it: its state, the facts that it is rebuilt from, and the guard of its promise."""
