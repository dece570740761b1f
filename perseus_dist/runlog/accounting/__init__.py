"""Accounting of energy: who ran a job, what it drew and saved in joules, and sums of that by user and project."""
