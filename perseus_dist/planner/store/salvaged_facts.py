"""Facts that can still be read from a damaged database.

Plans and switches are left out, since rows that belong together may be lost in part: a planner makes
plans anew in seconds, and only profiles and baselines take training.
"""

from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from perseus_dist.planner.job.facts.decisions import SwitchDecided
from perseus_dist.planner.job.facts.fact import Fact
from perseus_dist.planner.job.facts.plans import StragglerPlanReady, TableAhead, TableMade
from perseus_dist.planner.job.facts.policies import BudgetSet, LoadTargetSet, PricePolicySet
from perseus_dist.planner.job.facts.runs import JobRegistered
from perseus_dist.planner.sqlite_files.salvaged_rows import Table, readings
from perseus_dist.planner.store.fact_rows import FactRow, fact_of_row
from perseus_dist.planner.store.migrations import create_schema

_FACTS = Table(
    name="facts",
    columns=("job", "key", "kind", "body", "blob"),
    create_schema=create_schema,
    fits=lambda row: isinstance(row[0], str),
)


def salvage(path: Path) -> dict[str, list[Fact]]:
    """Facts by job, in the order of storing, of the jobs whose registration can be read; and the planner's own.

    Args:
        path: Of the damaged database, with its journal beside it; stays as it is but for what SQLite recovers of that.
    """
    for rows in readings(path, _FACTS):
        jobs: defaultdict[str, list[Fact]] = defaultdict(list)
        for _, (job, *row) in rows:
            with suppress(ValueError):
                jobs[job].append(fact_of_row(FactRow(*row)))
        if found := consistent_jobs(jobs):
            return found
    return {}


def consistent_jobs(jobs: Mapping[str, list[Fact]]) -> dict[str, list[Fact]]:
    """Of jobs that have lost facts, those that can go on: registered, and without plans."""
    return {job: _consistent(facts) for job, facts in jobs.items() if _is_whole(facts)}


def _is_whole(facts: list[Fact]) -> bool:
    return any(isinstance(fact, JobRegistered | BudgetSet | LoadTargetSet | PricePolicySet) for fact in facts)


def _consistent(facts: list[Fact]) -> list[Fact]:
    """Without plans, whose revisions count as used up."""
    tables = [fact.revision for fact in facts if isinstance(fact, TableMade | StragglerPlanReady)]
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
        if not isinstance(fact, TableMade | TableAhead | StragglerPlanReady | SwitchDecided)
    ]
