"""The planner service: life cycle of jobs, store, planning worker, gRPC."""
