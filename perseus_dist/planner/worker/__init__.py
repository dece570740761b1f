"""Planning in a process of its own: the request, the measured profile, frontier and tables."""
