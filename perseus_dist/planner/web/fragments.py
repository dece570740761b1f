"""Parts of pages as HTML, made once for each change of a job and shared by all who look at it."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import jinja2

from perseus_dist.interval_text import interval_text
from perseus_dist.planner.access.auth import Caller
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.lifecycle.status.job_status import job_status
from perseus_dist.planner.runtime.budgets import Budgets
from perseus_dist.planner.runtime.job_actor import JobActor
from perseus_dist.planner.runtime.nodes import ConnectedNode
from perseus_dist.planner.web.views import wording
from perseus_dist.planner.web.views.budgets import budgets_document
from perseus_dist.planner.web.views.diary import Diary
from perseus_dist.planner.web.views.fleet import fleet_row
from perseus_dist.planner.web.views.heat_map import PlanKey, Planned, plan_rows, planned_clocks
from perseus_dist.planner.web.views.job import SECTIONS, job_document
from perseus_dist.planner.web.views.nodes import node_document, nodes_document
from perseus_dist.planner.web.views.timeline import TimelineSource, timeline_document, timeline_source

MIN_AGE_S = 0.5
_AGE_OF_A_RANK_S = 2e-4  # a status counts all ranks: looking costs the planner some percent of a core at most


def make_templates(**common: Any) -> jinja2.Environment:
    """Templates that escape whatever is put into them.

    Args:
        common: Names that all of them know.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("perseus_dist.planner.web"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for shown in (
        wording.seconds,
        wording.joules,
        wording.percent,
        wording.span,
        wording.clock_time,
        wording.iso_time,
        wording.target_words,
    ):
        environment.filters[shown.__name__] = shown
    environment.globals.update(common, interval_text=interval_text)
    return environment


@dataclass(slots=True)
class _Made:
    """Of one job.

    Attributes:
        row_changes, page_changes: The job's count of changes as they were made.
        row_at_s, page_at_s: [s] when.
    """

    row: str = ""
    row_changes: int = -1
    row_at_s: float = -1e9
    sections: dict[str, str] = field(default_factory=dict)
    page_changes: int = -1
    page_at_s: float = -1e9
    plan_key: PlanKey | None = None
    planned: Planned = field(default_factory=dict)
    timeline_source: TimelineSource | None = None
    timeline: dict[str, Any] | None = None
    making: asyncio.Lock = field(default_factory=asyncio.Lock)


class Fragments:
    """Rows of the fleet and sections of jobs' pages, at most twice a second each."""

    def __init__(self, templates: jinja2.Environment, diary: Diary) -> None:
        self._row = templates.get_template("row.html")
        self._sections = {name: templates.get_template(f"section_{name}.html") for name in SECTIONS}
        self._node = templates.get_template("section_node.html")
        self._nodes = templates.get_template("section_nodes.html")
        self._budgets = templates.get_template("section_budgets.html")
        self._diary = diary
        self._made: WeakKeyDictionary[JobActor, _Made] = WeakKeyDictionary()

    def row(self, actor: JobActor) -> tuple[int, str]:
        """A job's row, and the count of changes that it shows."""
        made, job, now_s = self._of(actor), actor.job, time.monotonic()
        if made.row_changes != job.num_changes and now_s >= made.row_at_s + _min_age_s(actor):
            made.row_changes, made.row_at_s = job.num_changes, now_s
            made.row = self._row.render(fleet_row(job, job_status(job)))
        return made.row_changes, made.row

    def node(self, jobs: Iterable[Job], connected: Iterable[ConnectedNode], host: str) -> str:
        """A node's section, as far as these jobs are on it, and its relay is connected."""
        return self._node.render(node_document(jobs, connected, host))

    def nodes(self, jobs: Iterable[Job], connected: Iterable[ConnectedNode]) -> str:
        """All nodes, as far as these jobs are on them, or their relays are connected."""
        return self._nodes.render(nodes_document(jobs, connected))

    def budgets(self, budgets: Budgets | None, caller: Caller, jobs: Mapping[str, Job], csrf: str) -> str:
        """Power budgets and price policies, as far as the caller may see them.

        Args:
            budgets: Of the planner; None where another replica keeps them.
            caller: Who looks.
            jobs: That the caller may see, by name.
            csrf: Token that the caller's forms carry.
        """
        document = {"budgets": [], "prices": []} if budgets is None else budgets_document(budgets, caller, jobs)
        return self._budgets.render(document, are_here=budgets is not None, csrf=csrf)

    async def sections(self, actor: JobActor, *, at_once: bool = False) -> dict[str, str]:
        """A job's sections by name.

        Args:
            actor: Of the job.
            at_once: As of now, for somebody who has just changed the job.
        """
        made, job = self._of(actor), actor.job
        async with made.making:
            is_due = at_once or time.monotonic() >= made.page_at_s + _min_age_s(actor)
            if made.page_changes == job.num_changes or not is_due:
                return made.sections
            num_changes, now_s = job.num_changes, time.monotonic()
            rows = plan_rows(job)
            if rows is None:
                made.plan_key, made.planned = None, {}
            elif rows.key != made.plan_key:
                made.plan_key, made.planned = rows.key, await asyncio.to_thread(planned_clocks, rows)
            source = timeline_source(job)
            if source is None:
                made.timeline_source, made.timeline = None, None
            elif not source.is_of(made.timeline_source):
                made.timeline_source, made.timeline = source, await asyncio.to_thread(timeline_document, source)
            self._diary.look(actor)  # rather than up to a second later
            document = job_document(
                job,
                job_status(job),
                self._diary.entries(actor),
                planned=made.planned,
                timeline=made.timeline,
                reported_by=actor.reported_by,
            )
            sections: dict[str, str] = {}
            for name, template in self._sections.items():
                sections[name] = template.render(document)
                await asyncio.sleep(0)  # agents first
            # Whole or not at all: the browser that waits for them may leave.
            made.sections, made.page_changes, made.page_at_s = sections, num_changes, now_s
            return sections

    def _of(self, actor: JobActor) -> _Made:
        made = self._made.get(actor)
        if made is None:
            made = self._made[actor] = _Made()
        return made


def _min_age_s(actor: JobActor) -> float:
    return max(MIN_AGE_S, _AGE_OF_A_RANK_S * actor.job.num_ranks)
