"""Who may reach the planner: addresses, TLS, tokens, users of this machine."""
