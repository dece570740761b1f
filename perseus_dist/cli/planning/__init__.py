"""Commands that compute plans from files."""
