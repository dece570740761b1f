"""Collects a page of metrics where jobs change, on the event loop, without holding that up.

A thread of the endpoint asks; the loop adds job after job, and lets messages in between whenever it has spent
``SLICE_S`` on it. So no page shows half a change, and none costs a switch more than that. What the loop adds is text
already, because the endpoint's thread would take the loop its turns for all that it does in Python.
"""

import asyncio
import logging
import platform
import re
import threading
import time
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder

from perseus_dist.planner.job.job import Phase
from perseus_dist.planner.metrics import catalogue
from perseus_dist.planner.metrics.job_series import add_job
from perseus_dist.planner.metrics.page import Page, SeriesNames
from perseus_dist.planner.runtime.jobs import Jobs
from perseus_dist.planner.store.last_backup import last_backup

MAX_JOBS = 1_000
"""That have series of their own; of more the last by name have none, and ``perseus_jobs_left_out`` counts them."""

SLICE_S = 0.005
_PATIENCE_S = 5.0  # of a scrape; Prometheus's own is 10 s

# "dots" and "values" change names that need no escaping.
_OTHER_ESCAPING = re.compile(r"escaping=(?!allow-utf-8)[^;,]*")

_log = logging.getLogger(__name__)


class Trouble(Protocol):
    """Whether the disk takes commits: ``Store``."""

    @property
    def trouble(self) -> str:
        """Why it does not, or empty."""


class PlannerMetrics:
    """Metrics of the planner and of its process. Made on the loop that jobs run on, read by the endpoint's threads."""

    def __init__(self, jobs: Jobs, store: Trouble, state_dir: Path | None = None) -> None:
        self._jobs = jobs
        self._store = store
        self._state_dir = state_dir
        self._loop = asyncio.get_running_loop()
        self._one_at_a_time = threading.Lock()
        self._names: SeriesNames = {}
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        PlatformCollector(registry=self._process)
        GCCollector(registry=self._process)

    def expose(self, accept: str) -> tuple[bytes, str]:
        """Return a page, and its content type.

        Args:
            accept: The formats that the client takes, as the header ``Accept`` names them.

        Raises:
            TimeoutError: The loop is busy, or has ended.
        """
        encode, content_type = choose_encoder(_OTHER_ESCAPING.sub("escaping=underscores", accept))
        page = self._collect()
        if self._state_dir is not None:
            backup = last_backup(self._state_dir)
            page.add(catalogue.LAST_BACKUP, 0.0 if backup is None else backup.time_s)
        return b"".join((*page.text(encode), encode(self._process))), content_type

    def _collect(self) -> Page:
        if self._loop.is_closed() or not self._one_at_a_time.acquire(timeout=_PATIENCE_S):
            raise TimeoutError
        try:
            collecting = collect_page(self._jobs, self._store, self._names)
            asked = asyncio.run_coroutine_threadsafe(collecting, self._loop)
            try:
                page = asked.result(_PATIENCE_S)
            finally:
                asked.cancel()
            self._names = page.names
        finally:
            self._one_at_a_time.release()
        return page


async def collect_page(jobs: Jobs, store: Trouble, known: SeriesNames | None = None) -> Page:
    """All metrics of planner and jobs.

    Jobs that are over have no series: their last values are in Prometheus's past, and those that come back have theirs
    again.

    Args:
        jobs: Of the planner.
        store: Of the planner.
        known: ``Page.names`` of the page before.
    """
    page = Page(known)
    _add_planner(page, jobs, store)
    if (shared := jobs.shared_planning) is not None:
        if (queue := shared.queue) is not None:
            page.add(catalogue.QUEUED_REQUESTS, queue.num_waiting)
            page.add(catalogue.QUEUED_AGE, queue.oldest_s)
            page.add(catalogue.QUEUED_OTHERS, queue.num_waiting_others)
            page.add(catalogue.PLANNING_WORKERS, queue.num_workers, "this")
            page.add(catalogue.PLANNING_WORKERS, queue.num_workers_others, "others")
            page.add(catalogue.WORKERS_AT_ONCE, queue.num_at_once)
        page.add(catalogue.SHARED_PLANS, shared.num_from_others, "for this planner")
        page.add(catalogue.SHARED_PLANS, shared.num_for_others, "for others")
    living = [actor.job for actor in jobs.all() if actor.job.phase is not Phase.DONE and actor.job.spec is not None]
    page.add(catalogue.JOBS_LEFT_OUT, max(0, len(living) - MAX_JOBS))
    until_s = time.monotonic() + SLICE_S
    for job in living[:MAX_JOBS]:
        if time.monotonic() >= until_s:
            await asyncio.sleep(0)
            until_s = time.monotonic() + SLICE_S
        try:
            add_job(page, job)
        except Exception:  # one job's defect must not hide the others
            _log.exception("job %s: its metrics failed", job.job_id)
    return page


def _add_planner(page: Page, jobs: Jobs, store: Trouble) -> None:
    counters = jobs.counters
    page.add_info(catalogue.BUILD, version("perseus-dist"), platform.python_version())
    for family, counts in (
        (catalogue.RECEIVED, counters.received),
        (catalogue.SENT, counters.sent),
        (catalogue.CALLS, counters.calls),
        (catalogue.REFUSALS, counters.refused),
        (catalogue.PLANS, counters.plans),
    ):
        for key, value in counts.items():
            page.add(family, value, key)
    page.add_histogram(catalogue.PLANNING, counters.planning)
    page.add(catalogue.STREAMS, counters.streams)
    page.add(catalogue.STORE_FAILURES, counters.store_failures)
    page.add(catalogue.TICK_FAILURES, counters.tick_failures)
    page.add(catalogue.OPEN_STREAMS, jobs.num_streams)
    page.add(catalogue.STORE_IN_TROUBLE, float(bool(store.trouble)))
    page.add(catalogue.LOOP_LAG, counters.loop_lag_s)
    if jobs.ownership is not None:
        page.add(catalogue.OWNED_JOBS, jobs.ownership.num_owned)
        page.add(catalogue.TAKEOVERS, jobs.ownership.num_takeovers)
        page.add(catalogue.LOST_JOBS, jobs.ownership.num_losses)
    for state in jobs.budgets.states:
        name = state.budget.name
        if state.cap_w is not None:
            page.add(catalogue.BUDGET, state.cap_w, name)
        page.add(catalogue.BUDGET_PLANNED, state.planned_w, name)
        if state.measured_w is not None:
            page.add(catalogue.BUDGET_MEASURED, state.measured_w, name)
        page.add(catalogue.BUDGET_JOBS, len(state.job_ids), name)
        page.add(catalogue.BUDGET_MET, float(state.is_met), name)
    for priced in jobs.budgets.prices.states:
        for job in priced.jobs:
            if not job.is_over and job.is_known:
                labels = job.job_id, priced.policy.name
                page.add(catalogue.PRICE_LEFT, job.left, *labels)
                if job.price_kwh is not None:
                    page.add(catalogue.PRICE_KWH, job.price_kwh, *labels)
                page.add(catalogue.PRICE_PACED, float(job.pace > 0), *labels)
                page.add(catalogue.PRICE_ON_TIME, float(job.is_on_time), *labels)
    num_in_phase = Counter(actor.job.phase for actor in jobs.all())
    for phase in Phase:
        page.add(catalogue.JOBS, num_in_phase[phase], phase)
