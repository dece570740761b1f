"""Documents that templates show: a job's status in words, charts as coordinates."""
