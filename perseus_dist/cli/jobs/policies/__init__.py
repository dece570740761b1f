"""Commands on power budgets and price policies of a planner, and their tables."""
