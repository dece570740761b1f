"""The folder that a rank leaves its report in: files that others read while they grow, and afterwards.

    rank-<rank>.jsonl ...    iterations, one ``IterationReport`` a line, and sums of all (iteration_log.py)
    timeline-<rank>.jsonl    a few iterations in every detail: a header, then one ``TimedIteration`` a line
    simulated-<rank>.json    on simulated GPUs, from the trainer (host_pace.py)
    job.json, profile.csv, frontier.csv    from rank 0, of the whole job (job_report.py)
    events.jsonl             likewise: a line for each straggler, report and switch

A rank's files stay below 64 MiB however long it trains: 48 MiB of iterations, 8 MiB of events, and a timeline of eight
iterations.

Nothing in here raises: what cannot be written is dropped, with one warning.
"""

import json
import logging
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from perseus_dist.boundaries.rank_spec import RankSpec
from perseus_dist.errors import OutputError
from perseus_dist.messages.from_agent import IterationReport
from perseus_dist.messages.terms import Gpu
from perseus_dist.planning.output_file import replace_file
from perseus_dist.runlog.file_names import EVENTS_FILE, FRONTIER_FILE, JOB_FILE, PROFILE_FILE, timeline_file
from perseus_dist.runlog.iteration_log import IterationLog, open_continued
from perseus_dist.runlog.timed_iteration import TimedIteration

_log = logging.getLogger(__name__)

_OF_RANK = re.compile(
    r"((?P<what>rank|timeline)-(?P<rank>[0-9]+)(\.[0-9][ab])?\.jsonl)|((totals|simulated)-(?P<of>[0-9]+)\.json)"
)
_OF_JOB = (JOB_FILE, PROFILE_FILE, FRONTIER_FILE, EVENTS_FILE)
_MAX_EVENTS_BYTES = 8 << 20
_MAX_TOLD_AGAIN = 256


class ReportFolder:
    """One rank's part of a report. Whatever an earlier run has left there of this rank goes.

    Args:
        path: Made if it is missing.
        rank: Global; rank 0 also removes what was left of the whole job, and of ranks that this job does not have.
        num_ranks: Of this job.
        is_continued: Lines of iterations and events are added to those of an agent of this rank that was killed. Its
            other files of the whole job stay until they are replaced.
    """

    def __init__(self, path: Path, *, rank: int, num_ranks: int, is_continued: bool = False) -> None:
        self._path = path
        self._rank = rank
        self._iterations: IterationLog | None = None
        self._events: TextIO | None = None
        self._is_continued = is_continued
        self._is_trouble_told = False
        self._are_events_full = False
        self._try(lambda: self._begin(num_ranks))

    def append_iterations(self, reports: Sequence[IterationReport]) -> None:
        """Add lines, all in one write."""
        log = self._iterations
        if log is not None:
            self._try(lambda: log.append(reports))

    def append_events(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Add lines of the whole job; the file is made with the first."""
        if lines and self._events is None:
            self._try(self._open_events)
            if self._is_continued:  # the planner tells its newest again to each agent
                known = _newest_contents(self._path / EVENTS_FILE)
                lines = [line for line in lines if _content(json.dumps(line)) not in known]
        file = self._events
        if lines and file is not None and not self._are_events_full:
            text = "".join(json.dumps(line) + "\n" for line in lines)
            self._try(lambda: self._write_events(file, text))
            if self._are_events_full:
                _log.warning("the report is incomplete: %s is full, later events are left out", EVENTS_FILE)

    def replace_timeline(self, header: Mapping[str, Any], iterations: Iterable[TimedIteration]) -> None:
        """Write the timeline anew.

        Args:
            header: Its first line.
            iterations: The other lines.
        """
        lines = [json.dumps(header), *(json.dumps(_line(iteration)) for iteration in iterations)]
        self.replace(timeline_file(self._rank), "".join(f"{line}\n" for line in lines))

    def replace(self, name: str, text: str) -> None:
        """Write a file that appears whole or not at all."""
        self._try(lambda: replace_file(self._path / name, text.encode()))

    def _begin(self, num_ranks: int) -> None:
        self._path.mkdir(parents=True, exist_ok=True)
        # An agent that is killed here leaves job.json: by it another one knows that the files are of an earlier run.
        for path in sorted(self._path.iterdir(), key=lambda path: path.name == JOB_FILE):
            if self._is_old(path.name, num_ranks):
                path.unlink(missing_ok=True)
        self._iterations = IterationLog(self._path, self._rank, self.replace)

    def _open_events(self) -> None:
        self._events = open_continued(self._path / EVENTS_FILE)

    def _write_events(self, file: TextIO, text: str) -> None:
        file.write(text)
        file.flush()
        self._are_events_full = file.tell() > _MAX_EVENTS_BYTES

    def _is_old(self, name: str, num_ranks: int) -> bool:
        match = _OF_RANK.fullmatch(name)
        if match is not None:
            rank, is_timeline = int(match["rank"] or match["of"]), match["what"] == "timeline"
            is_own = rank == self._rank and (is_timeline or not self._is_continued)
            return is_own or (self._rank == 0 and rank >= num_ranks)
        return self._rank == 0 and not self._is_continued and name in _OF_JOB

    def _try(self, write: Callable[[], object]) -> None:
        trouble = ""
        try:
            write()
        except OSError as error:
            trouble = f"{self._path}: {error.strerror or error}"
        except OutputError as error:
            trouble = str(error)
        if trouble and not self._is_trouble_told:
            self._is_trouble_told = True
            _log.warning("the report is incomplete: %s", trouble)

    def close(self) -> None:
        """Close the files of iterations and events."""
        for file in (self._iterations, self._events):
            if file is not None:
                self._try(file.close)
        self._iterations = self._events = None


def timeline_header(spec: RankSpec, gpu: Gpu, *, is_simulated: bool, switch_latency_s: float) -> dict[str, Any]:
    """The first line of a rank's timeline.

    Args:
        spec: The rank.
        gpu: Its GPU, and who may set its clocks.
        is_simulated: Whether that GPU is.
        switch_latency_s: From asking for a clock to having it, as seen so far.
    """
    return {
        "rank": spec.rank,
        "pp_rank": spec.pp_rank,
        "dp_rank": spec.dp_rank,
        "tp_rank": spec.tp_rank,
        # Ranks of several hosts have clocks of their own; those on the wall are about the same.
        "wall_minus_monotonic_ns": time.time_ns() - time.monotonic_ns(),
        "gpu": {"uuid": gpu.uuid, "name": gpu.name, "control": gpu.control, "refusal": gpu.refusal},
        "simulated": is_simulated,
        "switch_latency_s": switch_latency_s,
    }


def _newest_contents(path: Path) -> set[str]:
    """Of the newest events in the file, more than a planner tells again."""
    contents = set()
    with suppress(OSError), path.open(encoding="utf-8", errors="replace") as lines:
        for line in deque(lines, maxlen=_MAX_TOLD_AGAIN):
            with suppress(ValueError, RecursionError, AttributeError):  # cut off, or no event
                contents.add(_content(line))
    return contents


def _content(line: str) -> str:
    """The event without ``at``, which each agent computes from its age."""
    event = json.loads(line)
    return json.dumps({name: value for name, value in event.items() if name != "at"}, sort_keys=True)


def _line(iteration: TimedIteration) -> dict[str, Any]:
    return {
        "iteration": iteration.iteration,
        "table_revision": iteration.table_revision,
        "point": iteration.point,
        "begin_ns": iteration.begin_ns,
        "end_ns": iteration.end_ns,
        "planned_clocks_mhz": iteration.planned_clocks_mhz,
        "runs": iteration.runs,
    }
