"""Executions and runs as Chrome traces for https://ui.perfetto.dev."""
