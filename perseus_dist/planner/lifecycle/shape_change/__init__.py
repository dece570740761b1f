"""Jobs that come back in another shape: what was measured of stages, and plans made ahead, used again."""
