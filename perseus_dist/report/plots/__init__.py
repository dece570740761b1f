"""Pictures, drawn by matplotlib."""
