"""Status of a job for operators, the page and the agent of its rank 0."""
