"""Leases on GPUs' clocks: daemon, private lease process, client, and the protocol between them."""
