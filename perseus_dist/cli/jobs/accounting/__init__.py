"""``perseus-dist accounting``: sums of energy records."""
