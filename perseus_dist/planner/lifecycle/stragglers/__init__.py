"""Consequences of verdicts on slow ranks: switches, and plans for pipelines with slow ranks."""
