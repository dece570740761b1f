"""The planning problem, its frontier, and the plans on it."""
