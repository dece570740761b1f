"""Facts in a PostgreSQL database, for planners that outgrow a machine. psycopg is imported here alone."""
