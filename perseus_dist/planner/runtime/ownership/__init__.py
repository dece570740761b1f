"""Which of the jobs this one of several replicas has: their leases in a database that all share."""
