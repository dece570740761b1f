"""A rank's part in its job, whatever the framework."""
