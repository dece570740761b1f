"""Facts on disk: the database, its rows, and what a damaged one still says."""
