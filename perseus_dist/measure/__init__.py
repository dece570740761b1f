"""Measuring one GPU before a job is changed: its curves, its latencies, and what a pipeline of it would save."""
