"""The agent's process: threads, descriptors and files around the core."""
