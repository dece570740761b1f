"""Output of an agent: its rank's report files, the log, the trainer's status; on rank 0 the whole job's report too."""

import logging
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from perseus_dist.agent.core.actions import KeepTimeline
from perseus_dist.agent.link.job_watch import JobSeen, TableSeen
from perseus_dist.agent.link.link import Unreachable
from perseus_dist.agent.process.devices import Devices
from perseus_dist.agent.process.earlier_run import finish_predecessor, is_of_another_run, wait_until_finished
from perseus_dist.agent.process.trainer_status import with_job
from perseus_dist.boundaries.agent_status import AgentStatus
from perseus_dist.boundaries.rank_spec import RankSpec
from perseus_dist.boundaries.reader import BoundaryReader, TimedBoundary
from perseus_dist.boundaries.record import Event
from perseus_dist.messages.from_agent import IterationReport
from perseus_dist.runlog.report_folder import ReportFolder, timeline_header
from perseus_dist.runlog.submission import submission_of

if TYPE_CHECKING:
    from perseus_dist.agent.process.job_record import JobRecordWriter
    from perseus_dist.runlog.job import JobRecord

SeenOfJob = Unreachable | JobSeen | TableSeen

_log = logging.getLogger(__name__)


class RankReport:
    """Never raises: a report that cannot be written changes nothing else.

    Args:
        spec: The rank; its ``report`` names the folder, None writes none.
        reader: Through which the trainer gets its status.
        is_continued: Whether an agent of this rank that was killed may have written the begin. One that was killed as
            it took over from an earlier run has not.
    """

    def __init__(self, spec: RankSpec, reader: BoundaryReader, *, is_continued: bool = False) -> None:
        self._spec = spec
        self._reader = reader
        self._status = AgentStatus()
        self._devices: Devices | None = None
        self._job: JobRecordWriter | None = None
        self._folder: ReportFolder | None = None
        self._earlier: JobRecord | None = None
        self._is_in_iteration = False
        if spec.report is not None:
            is_continued &= not is_of_another_run(Path(spec.report), spec.run_id)
            if spec.rank == 0:
                self._earlier = finish_predecessor(Path(spec.report), is_continued=is_continued)
            elif not is_continued:
                wait_until_finished(Path(spec.report), spec.run_id)
            num_ranks = spec.pp_size * spec.dp_size * spec.tp_size
            self._folder = ReportFolder(
                Path(spec.report), rank=spec.rank, num_ranks=num_ranks, is_continued=is_continued
            )

    def begin(self, devices: Devices) -> None:
        """The rank's GPU is known."""
        self._devices = devices
        gpu = devices.gpu
        _log.debug("GPU %s, control by %s", gpu.uuid or "unknown", gpu.control)
        if gpu.refusal and self._spec.control != "observe":
            _log.warning("clocks of GPU %s cannot be set: %s", gpu.uuid or "unknown", gpu.refusal)
        if self._spec.rank == 0:
            from perseus_dist.agent.process.job_record import JobRecordWriter

            self._job = JobRecordWriter(
                self._spec,
                self._folder,
                is_simulated=devices.is_simulated,
                now=_now(),
                submission=submission_of(os.environ),
                earlier=self._earlier,
            )

    def see(self, boundaries: Iterable[TimedBoundary]) -> None:
        """Boundaries that the trainer has passed."""
        for timed in boundaries:
            if timed.boundary.event is Event.ITERATION_BEGIN:
                self._is_in_iteration = True
            elif timed.boundary.event is Event.ITERATION_END:
                self._is_in_iteration = False

    def request_clock(self, clock_mhz: int | None) -> None:
        """A clock was asked for; the trainer reads of it with the next figures."""
        self._status = replace(self._status, clock_mhz=clock_mhz or 0)

    def keep(self, reports: Sequence[IterationReport]) -> None:
        """Iterations are known; of those that the agent did not see live there is nothing to show."""
        reports = [report for report in reports if report.is_live]
        if not reports:
            return
        newest = reports[-1]
        self._tell_trainer(
            replace(self._status, iteration=newest.iteration, time_s=newest.time_s, energy_j=newest.energy_j)
        )
        if self._folder is not None:
            self._folder.append_iterations(reports)

    def keep_timeline(self, timeline: KeepTimeline, refusal: str) -> None:
        """Write it anew.

        Args:
            timeline: What is kept now.
            refusal: Why no clock can be set now; empty while it can.
        """
        if self._folder is None or self._devices is None:
            return
        header = timeline_header(
            self._spec,
            replace(self._devices.gpu, refusal=refusal),
            is_simulated=self._devices.is_simulated,
            switch_latency_s=timeline.switch_latency_s,
        )
        self._folder.replace_timeline(header, timeline.iterations)

    def record_job(self, seen: SeenOfJob) -> None:
        """Something of the whole job was seen: the trainer may show it; rank 0's agent alone reports it.

        That another node does not reach the planner which rank 0 embeds, only that node can know: its first rank warns.
        """
        if isinstance(seen, Unreachable):
            is_first_of_node = self._spec.shared_planner is not None and self._spec.local_rank == 0
            level = logging.WARNING if self._spec.rank == 0 or is_first_of_node else logging.DEBUG
            _log.log(level, "%s", seen.reason)
            if self._job is not None:
                self._job.record_trouble(seen.reason, _now())
            return
        if self._job is not None:
            self._job.record(seen, _now())
        if isinstance(seen, JobSeen):
            self._tell_trainer(with_job(self._status, seen.status))

    def write_due(self) -> None:
        """Write of the job what is new, about once a second."""
        if self._job is not None:
            self._job.write(_now())

    def close(self, last: Iterable[object]) -> None:
        """The end.

        Args:
            last: What came after the loop had ended; what is not of the job is passed over.
        """
        for seen in last:
            if isinstance(seen, SeenOfJob):
                self.record_job(seen)
        if self._job is not None:
            self._job.record_end(is_in_iteration=self._is_in_iteration)
            self._job.write(_now(), is_over=True)
        if self._folder is not None:
            self._folder.close()
        if self._job is not None and self._spec.report is not None:
            self._job.finish(Path(self._spec.report))

    def _tell_trainer(self, status: AgentStatus) -> None:
        self._status = status
        self._reader.set_status(status)


def _now() -> datetime:
    return datetime.now(UTC)
