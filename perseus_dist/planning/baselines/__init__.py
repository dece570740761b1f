"""Baselines to compare plans with."""
