"""Facts that can still be read from a damaged database.

Row by row, so that a damaged page costs its own rows alone. Plans and switches are left out, since rows that belong
together may be lost in part: a planner makes plans anew in seconds, and only profiles and baselines take training.
"""

import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

from perseus_dist.planner.job.facts import Fact, JobRegistered, OwnTableMade, SwitchDecided, TableMade
from perseus_dist.planner.store.fact_rows import FactRow, fact_of_row

_NEXT = "SELECT id, job, key, kind, body, blob FROM facts WHERE id > ? ORDER BY id LIMIT 1"


def salvage(path: Path) -> dict[str, list[Fact]]:
    """Facts by job, in the order of storing, of the jobs whose registration can be read.

    Args:
        path: Of the damaged database, with its journal beside it; stays as it is but for what SQLite recovers of that.
    """
    jobs: defaultdict[str, list[Fact]] = defaultdict(list)
    with suppress(sqlite3.Error), closing(sqlite3.connect(path, isolation_level=None)) as database:
        for job, row in _readable_rows(database):
            with suppress(ValueError):
                jobs[job].append(fact_of_row(row))
    return {job: _consistent(facts) for job, facts in jobs.items() if _registration(facts) is not None}


def _readable_rows(database: sqlite3.Connection) -> Iterator[tuple[str, FactRow]]:
    """Behind a row that cannot be read, the next one that can be is looked for in steps that double."""
    (last,) = database.execute("SELECT max(id) FROM facts").fetchone()
    number, step = 0, 1
    while number < (last or 0):
        try:
            found = database.execute(_NEXT, (number,)).fetchone()
            is_ahead = found is None or found[0] > number  # a damaged tree may lead back
        except sqlite3.Error:
            is_ahead = False
        if not is_ahead:
            number, step = number + step, 2 * step
            continue
        if found is None:
            return
        number, step = found[0], 1
        job, *row = found[1:]
        if isinstance(job, str):
            yield job, FactRow(*row)


def _registration(facts: list[Fact]) -> JobRegistered | None:
    return next((fact for fact in facts if isinstance(fact, JobRegistered)), None)


def _consistent(facts: list[Fact]) -> list[Fact]:
    """Without plans, whose revisions count as used up."""
    tables = [fact.revision for fact in facts if isinstance(fact, TableMade | OwnTableMade)]
    switches = [fact.switch_revision for fact in facts if isinstance(fact, SwitchDecided)]
    return [
        replace(
            fact,
            held_revision=max(fact.held_revision, *tables, 0),
            held_switch_revision=max(fact.held_switch_revision, *switches, 0),
        )
        if isinstance(fact, JobRegistered)
        else fact
        for fact in facts
        if not isinstance(fact, TableMade | OwnTableMade | SwitchDecided)
    ]
