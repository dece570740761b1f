"""Signals that price policies follow: their files, and the providers that files name."""
