"""A seeded generator of malformed input for every argument of every command and every kind of file, and its judge."""
