"""State of a job, in parts cut by how long they hold: each begins anew as a whole."""
