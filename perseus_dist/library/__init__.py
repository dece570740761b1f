"""The library's face: planning in seconds, watts and joules. Use it by ``import perseus_dist``, which has its names."""
