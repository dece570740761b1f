"""Reader of the report folder that a job's agents leave: every file checked, none trusted to be whole.

    job.json             the job, by rank 0's agent: phases, measured and planned iterations
    rank-<r>.jsonl ...   a line for each iteration of a rank that was kept; totals-<r>.json, sums over all
    simulated-<r>.json   on simulated GPUs, whether the host kept up with them
    timeline-<r>.jsonl   a header, then a line for each iteration that was kept with all its instructions
    profile.csv, frontier.csv   what was planned from, and the plans
    events.jsonl         stragglers, switches and reports; injected.jsonl, throttles put on simulated GPUs on purpose

Only ``job.json`` is needed. What else is missing, cut off or not to be understood is left out, and a note says so: a
job that was killed deserves a report too.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from perseus_dist.messages.from_agent import IterationReport
from perseus_dist.runlog.events import Injection, KeptEvent, read_events, read_injections
from perseus_dist.runlog.file_names import (
    EVENTS_FILE,
    FRONTIER_FILE,
    INJECTED_FILE,
    JOB_FILE,
    PROFILE_FILE,
    timeline_file,
    totals_file,
)
from perseus_dist.runlog.frontier_csv import FrontierPoints, read_frontier
from perseus_dist.runlog.host_pace import HostPace, read_host_pace
from perseus_dist.runlog.job import JobRecord, read_job
from perseus_dist.runlog.ranks import RankTimeline, read_iterations, read_timeline
from perseus_dist.runlog.totals import RunTotals, job_totals, read_totals

# Of all ranks together, so that weeks of training are summed up within seconds; a rank keeps its begin and its end.
_MAX_LINES = 500_000
_MIN_LINES_PER_RANK = 2_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunFiles:
    """All of it.

    Attributes:
        iterations: By rank, ascending by iteration; ranks without any are left out.
        timelines: By rank.
        totals: Over all iterations of all ranks, kept or not; None where those of a rank are not known.
        rank_totals: The same of each rank that left anything.
        host_paces: By rank, on simulated GPUs.
        profile: The profile's file; None where there is none.
        frontier: None where there is none.
        events: As they came.
        injections: Of a test; in the order in which they were made.
        notes: What was left out, a sentence each.
    """

    job: JobRecord
    iterations: Mapping[int, tuple[IterationReport, ...]]
    timelines: Mapping[int, RankTimeline]
    totals: RunTotals | None
    rank_totals: Mapping[int, RunTotals | None]
    host_paces: Mapping[int, HostPace]
    profile: Path | None
    frontier: FrontierPoints | None
    events: tuple[KeptEvent, ...]
    injections: tuple[Injection, ...]
    notes: tuple[str, ...]


def read_run(folder: Path) -> RunFiles:
    """Read a report folder, of a job that has ended or still runs.

    Raises:
        RunFilesError: There is no ``job.json`` in it, or it cannot be understood.
    """
    job = read_job(folder / JOB_FILE)
    notes: list[str] = []
    ranks = range(job.num_ranks)
    max_lines = max(_MIN_LINES_PER_RANK, _MAX_LINES // job.num_ranks)
    kept = {rank: read_iterations(folder, rank, notes, max_lines=max_lines) for rank in ranks}
    iterations = {rank: kept[rank].reports for rank in ranks}
    totals = {
        rank: read_totals(folder / totals_file(rank), iterations[rank], is_whole=kept[rank].is_whole)
        for rank in ranks
        if iterations[rank]
    }
    timelines = {rank: read_timeline(folder / timeline_file(rank), notes) for rank in ranks}
    paces = {rank: read_host_pace(folder, rank, notes) for rank in ranks} if job.is_simulated else {}
    _note_missing("rank-<r>.jsonl", (rank for rank in ranks if not iterations[rank]), notes)
    _note_missing("timeline-<r>.jsonl", (rank for rank in ranks if timelines[rank] is None), notes)
    profile = folder / PROFILE_FILE
    return RunFiles(
        job=job,
        iterations={rank: reports for rank, reports in iterations.items() if reports},
        timelines={rank: timeline for rank, timeline in timelines.items() if timeline is not None},
        totals=job_totals(totals, job.num_ranks),
        rank_totals=totals,
        host_paces={rank: pace for rank, pace in paces.items() if pace is not None},
        profile=profile if profile.is_file() else None,
        frontier=read_frontier(folder / FRONTIER_FILE, notes),
        events=read_events(folder / EVENTS_FILE, notes),
        injections=read_injections(folder / INJECTED_FILE, notes),
        notes=tuple(dict.fromkeys(notes)),
    )


def _note_missing(name: str, ranks: Iterable[int], notes: list[str]) -> None:
    missing = list(map(str, ranks))
    if missing:
        shown = ", ".join(missing[:8]) + (", ..." if len(missing) > 8 else "")
        notes.append(f"{name}: nothing of rank {shown}; ranks on other hosts write into the folder of that name there")
