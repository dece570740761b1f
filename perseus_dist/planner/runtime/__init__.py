"""Jobs of a running planner: their actors, the streams of their agents, and metrics."""
