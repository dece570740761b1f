"""How an agent reaches a planner, and the planner that it runs itself where a job has none."""
