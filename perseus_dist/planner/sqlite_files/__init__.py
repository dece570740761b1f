"""Files of SQLite databases: replaced as a whole, and read row by row where they are damaged."""
