"""Draws scenarios from seeds: a job, faults, and their moments relative to what the job does then."""
