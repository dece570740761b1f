"""The gRPC service, and the process that serves it."""
