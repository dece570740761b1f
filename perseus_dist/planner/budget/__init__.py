"""Power budgets of groups of jobs: what each job can draw, who draws how much, and the pace that follows from it."""
