"""Joules saved, by measurement."""
