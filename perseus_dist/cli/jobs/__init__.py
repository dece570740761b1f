"""Commands for running jobs, by way of their planner, and for what they leave behind."""
