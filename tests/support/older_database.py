"""A planner's database of an older version, whose jobs have plans."""

import sqlite3
from contextlib import closing
from pathlib import Path

from test_malformed_facts import good_rows

OF_0_1_0 = Path(__file__).parents[1] / "unit" / "data" / "planner_v2.sql"


def write_older_database(path: Path) -> None:
    """Make one of 0.1.0. What that script says of its jobs was invented: they get facts that make a job."""
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(OF_0_1_0.read_text())
        jobs = [job for (job,) in database.execute("SELECT job FROM facts GROUP BY job ORDER BY min(id)")]
        database.execute("DELETE FROM facts")
        database.executemany(
            "INSERT INTO facts (job, key, kind, body, blob) VALUES (?, ?, ?, ?, ?)",
            [(job, *row) for job in jobs for row in good_rows()],
        )
