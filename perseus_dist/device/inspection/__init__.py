"""Checks of a node for setting clocks and reading energy."""
