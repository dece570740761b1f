"""Whole jobs with histories of faults, in virtual time: drawn from a seed, judged by invariants, shrunk to a file."""
