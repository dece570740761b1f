"""Scenarios: what is trained and what happens to it, as values and as files."""
