"""Instructions, schedules, and the dependencies between instructions."""
