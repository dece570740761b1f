"""Policies over frontiers: how jobs share a power budget, and how fast one goes while a price or carbon changes."""
