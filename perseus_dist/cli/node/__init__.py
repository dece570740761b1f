"""Commands that serve or prepare a node."""
