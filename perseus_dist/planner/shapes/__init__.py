"""Profiles across shapes: what was measured of stages, used for other numbers of stages, pipelines and layers."""
