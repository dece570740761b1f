"""Proofs that need a real GPU once: costs of calls, boundaries in device order, which GPU is meant."""
