"""Named tokens and audit records of all planners on a database."""
