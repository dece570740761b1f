"""Numbers of a run: iterations, pipelines, stragglers, savings."""
