"""The whole job as rank 0's agent tells it: ``job.json``, ``profile.csv``, ``frontier.csv`` and ``events.jsonl``.

A line in the log for each phase, for each quarter of those whose end is known, and for each straggler that is seen,
reported or over.
"""

import json
import logging
from contextlib import suppress
from dataclasses import asdict, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from perseus_dist.agent.link.job_watch import JobSeen, TableSeen
from perseus_dist.agent.process.job_events import NewEvents, event_line
from perseus_dist.boundaries.rank_spec import RankSpec
from perseus_dist.messages.job_status import JobFigures, JobFrontier, JobProfile, JobStatus
from perseus_dist.messages.progress_text import ProgressSteps, format_progress
from perseus_dist.messages.target_text import format_target
from perseus_dist.runlog.accounting.finish import finish_if_possible
from perseus_dist.runlog.file_names import FRONTIER_FILE, JOB_FILE, PROFILE_FILE
from perseus_dist.runlog.frontier_csv import frontier_csv
from perseus_dist.runlog.job import JobRecord, RunFilesError, read_job
from perseus_dist.runlog.report_folder import ReportFolder
from perseus_dist.runlog.submission import NO_SUBMISSION, Submission

UNATTACHED = "unattached"
"""The phase of a job that no planner has told anything of."""

_RANKS_S = 2.0
"""How long rank 0's agent waits for the last word of the others; the job's report, or its epilog, waits longer."""

_INTERVAL_S = 1.0
_MAX_PHASES = 256
_SWITCH = "switch"  # the kind of event that has no line in the log: it follows from the others, or from the phase
_FIGURES = tuple(field.name for field in fields(JobFigures))

_log = logging.getLogger(__name__)


class JobRecordWriter:
    """Takes what is seen of the job, with the time of seeing it.

    Args:
        spec: Of rank 0.
        folder: None writes nothing.
        is_simulated: Whether the GPUs are.
        now: Aware; the start.
        submission: Who submitted the job.
        earlier: What an agent of this run that was killed has written: it stands until the planner says more.
    """

    def __init__(
        self,
        spec: RankSpec,
        folder: ReportFolder | None,
        *,
        is_simulated: bool,
        now: datetime,
        submission: Submission = NO_SUBMISSION,
        earlier: JobRecord | None = None,
    ) -> None:
        self._spec = spec
        self._submission = submission
        self._folder = folder
        self._is_simulated = is_simulated
        self._started_at = now if earlier is None else datetime.fromisoformat(earlier.started_at)
        self._earlier = earlier
        self._status: JobStatus | None = None
        self._frontier: JobFrontier | None = None
        self._profile: JobProfile | None = None
        self._events = NewEvents()
        self._steps = ProgressSteps()
        self._phases = [] if earlier is None else [phase._asdict() for phase in earlier.phases]
        self._is_new = True
        self._written_at: datetime | None = None
        self._ended_in_iteration = False
        if not self._phases:
            self._enter(UNATTACHED, "no planner has answered yet", now)

    def record(self, seen: JobSeen | TableSeen, now: datetime) -> None:
        """Something of the job was seen: the folder and the log get what is new."""
        self._is_new = True
        if isinstance(seen, TableSeen):
            self._record_table(seen)
            return
        status, self._status = seen.status, seen.status
        if self._steps.is_next(status):
            _log.info("job %s is %s: %s", status.job_id, status.phase, format_progress(status))
        if status.phase != self._phases[-1]["phase"]:
            _log.info("job %s is %s: %s", status.job_id, status.phase, status.reason)
        self._enter(status.phase, status.reason, now)
        self._record_events(status, now)

    def record_trouble(self, sentence: str, now: datetime) -> None:
        """The planner cannot be reached. That is the reason of all else as long as it never was."""
        if self._status is None:
            self._is_new = True
            self._enter(UNATTACHED, sentence, now)

    def record_end(self, *, is_in_iteration: bool) -> None:
        """The trainer has ended, within an iteration or after one."""
        self._ended_in_iteration = is_in_iteration

    def write(self, now: datetime, *, is_over: bool = False) -> None:
        """Write what is new: once a second at most, and at the end."""
        age_s = None if self._written_at is None else (now - self._written_at).total_seconds()
        is_recent = age_s is not None and 0 <= age_s < _INTERVAL_S  # below 0 the host's clock was set back
        if self._folder is None or not (is_over or (self._is_new and not is_recent)):
            return
        if is_over and self._is_followed():
            return
        self._is_new, self._written_at = False, now
        self._folder.replace(JOB_FILE, json.dumps(self.document(now, is_over=is_over), indent=1) + "\n")

    def _is_followed(self) -> bool:
        """Whether a later run has begun in the folder, while this one waited for the planner's last word."""
        if self._spec.report is None:
            return False
        with suppress(RunFilesError):
            return read_job(Path(self._spec.report) / JOB_FILE).started_at > _text(self._started_at)
        return False

    def document(self, now: datetime, *, is_over: bool) -> dict[str, Any]:
        """The content of ``job.json``. Figures are 0 where there is nothing yet; times are ISO 8601, UTC."""
        spec, status = self._spec, self._status
        num_ranks = spec.pp_size * spec.dp_size * spec.tp_size
        phase = self._phases[-1]
        figures = asdict(status or self._earlier or JobFigures())
        return {
            "job_id": spec.job_id,
            "run_id": spec.run_id,
            "phase": phase["phase"],
            "reason": phase["reason"],
            "schedule": spec.schedule,
            "pp_size": spec.pp_size,
            "dp_size": spec.dp_size,
            "tp_size": spec.tp_size,
            "num_ranks": num_ranks,
            "target": self._target(),
            "simulated": self._is_simulated,
            "started_at": _text(self._started_at),
            "updated_at": _text(now),
            "ended_at": _text(now) if is_over else None,
            "ended_in_iteration": self._ended_in_iteration,
            "framework": spec.workload.framework,
            "submission": asdict(self._submission),
            "phases": self._phases,
            **{name: figures[name] for name in _FIGURES},
            "verdicts": figures.get("verdicts", []),
            **self._planned(),
        }

    def _target(self) -> str:
        if self._status is not None:
            return format_target(self._status.target)
        return (self._earlier and self._earlier.target) or self._spec.target or "t_min"

    def _planned(self) -> dict[str, float]:
        frontier, profile, earlier = self._frontier, self._profile, self._earlier
        if frontier is not None and profile is not None:
            return {
                "blocking_power_w": profile.blocking_power_w,
                "frontier_baseline_time_s": frontier.baseline_time_s,
                "frontier_baseline_energy_j": frontier.baseline_energy_j,
            }
        names = ("blocking_power_w", "frontier_baseline_time_s", "frontier_baseline_energy_j")
        return {name: 0.0 if earlier is None else getattr(earlier, name) for name in names}

    @staticmethod
    def finish(folder: Path) -> None:
        """Write the run's energy record to a report folder, if all ranks have ended."""
        finish_if_possible(folder, is_final=False, patience_s=_RANKS_S)

    def _record_events(self, status: JobStatus, now: datetime) -> None:
        new = self._events.record(status.events)
        for event in new:
            if event.kind != _SWITCH:
                _log.info("job %s: %s", status.job_id, event.sentence)
        if self._folder is not None:
            self._folder.append_events([event_line(event, now) for event in new])

    def _record_table(self, seen: TableSeen) -> None:
        self._frontier, self._profile = seen.frontier, seen.profile
        if self._folder is None:
            return
        self._folder.replace(PROFILE_FILE, seen.profile.csv)
        self._folder.replace(FRONTIER_FILE, frontier_csv(seen.frontier.points))

    def _enter(self, phase: str, reason: str, now: datetime) -> None:
        """A new phase, or another reason to be in it."""
        if self._phases and self._phases[-1]["phase"] == phase:
            self._phases[-1]["reason"] = reason
        else:
            self._phases.append({"phase": phase, "reason": reason, "at": _text(now)})
            if len(self._phases) > _MAX_PHASES:
                del self._phases[_MAX_PHASES // 2]  # how it began and what came last say most


def _text(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds")
