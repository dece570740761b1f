"""Output of a measurement: tables, pictures, a page, files."""
