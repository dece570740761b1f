"""Prometheus metrics of the planner and its jobs: which there are, where their values come from, who is served."""
