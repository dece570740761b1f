"""Power budgets of groups of jobs, and jobs that follow a price: who draws how much, at which pace."""
