"""The life cycle of a job, without input and output: events in, effects out."""
