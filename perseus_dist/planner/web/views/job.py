"""One job in the sections of its page."""

import time
from collections.abc import Mapping
from typing import Any

from perseus_dist.messages.job_status import JobStatus
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.lifecycle.status.phase_progress import phase_progress
from perseus_dist.planner.web.views.diary import Entry
from perseus_dist.planner.web.views.fleet import iteration_time_s, slowed_words
from perseus_dist.planner.web.views.frontier_chart import frontier_chart
from perseus_dist.planner.web.views.heat_map import MAX_PIPELINES, Planned, heat_maps

SECTIONS = ("head", "figures", "frontier", "heat", "timeline", "pipelines", "stragglers", "events")
MAX_EVENTS = 40


def job_document(
    job: Job,
    status: JobStatus,
    entries: tuple[Entry, ...],
    *,
    planned: Planned,
    timeline: dict[str, Any] | None,
    reported_by: Mapping[int, str],
) -> dict[str, Any]:
    """A job's page, for the templates of its sections."""
    time_s = iteration_time_s(status)
    return {
        "status": status,
        "phase": status.phase.replace("_", " "),
        "progress": phase_progress(job),
        "attached": job.num_attached,
        "time_s": time_s,
        "slowed": slowed_words(job),
        "against_baseline": time_s / status.baseline.time_s - 1 if time_s and status.baseline.time_s else None,
        "chart": frontier_chart(job),
        "heat": heat_maps(job, planned),
        "timeline": timeline,
        "pipelines": status.pipelines[:MAX_PIPELINES],
        "pipelines_left_out": max(0, len(status.pipelines) - MAX_PIPELINES),
        "refusals": _refusals(job),
        "events": _events(job, status, entries, reported_by),
    }


def _refusals(job: Job) -> list[str]:
    """Why ranks cannot set clocks, each reason once with the number of its ranks."""
    ranks: dict[str, list[int]] = {}
    for rank, state in sorted(job.members.ranks.items()):
        if state.stream is not None and not state.can_set_clocks:
            ranks.setdefault(state.gpu.refusal or "its clocks can be observed only", []).append(rank)
    return [
        f"rank {found[0]}{f' and {len(found) - 1} more' if len(found) > 1 else ''}: {why}"
        for why, found in ranks.items()
    ]


def _events(job: Job, status: JobStatus, entries: tuple[Entry, ...], reported_by: Mapping[int, str]) -> list[Entry]:
    """The planner's history and the diary in one, the newest first."""
    now_s = time.time() - max(0.0, time.monotonic() - job.now_s)
    events = [
        Entry(
            at_s=now_s - event.age_s,
            kind=event.kind.replace("_", " "),
            who=reported_by.get(event.sequence, "an operator") if event.kind in ("reported", "cleared") else "planner",
            sentence=f"from iteration {event.effective_iteration} on: {event.sentence}"
            if event.effective_iteration >= 0
            else event.sentence,
        )
        for event in status.events
    ]
    return sorted([*events, *entries], key=lambda entry: entry.at_s, reverse=True)[:MAX_EVENTS]
