"""A rank's iterations on disk, bounded however long the job trains.

```
 rank-3.jsonl       every iteration of the begin, as far as they fit
 rank-3.0a.jsonl    every iteration since, in two segments that overwrite each other in turns: the newest are there
 rank-3.0b.jsonl
 rank-3.1a.jsonl    every 4th, in the same way: what is sparser reaches back further
 ...
 rank-3.6b.jsonl    every 4,096th
 totals-3.json      sums over all iterations, kept or not
```

All ranks keep the same iterations in the middle of a run, because their numbers decide. An agent reads its files as it
begins, and none later; it empties segments as a whole, and rewrites the totals alone, once in 256 iterations. So a line
costs its loop the same after a month as after a minute.
"""

import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

from perseus_dist.messages.from_agent import IterationReport
from perseus_dist.messages.terms import NO_POINT
from perseus_dist.runlog.file_names import iterations_file, totals_file
from perseus_dist.unit_scales import UJ_PER_J

SEGMENT_BYTES = 3 << 20
NUM_LEVELS = 7
STEP = 4
MAX_BYTES = (2 + 2 * NUM_LEVELS) * SEGMENT_BYTES
"""Of all files of a rank's iterations together, 48 MiB, and a message's lines more for each segment."""

_TOTALS_EVERY = 256  # iterations
_NS_PER_S = 10**9
_WITHOUT_PLAN, _UNDER_PLAN = _GROUPS = ("without_plan", "under_plan")
_SUMS = ("num_iterations", "time_ns", "num_energies", "energy_uj")
# Errors of a line that was being written, or in whose place a host that lost its power has left other bytes.
_DAMAGED = (ValueError, KeyError, TypeError, OverflowError, RecursionError)


class IterationTotals:
    """Sums over iterations, exact: whole nanoseconds and microjoules."""

    def __init__(self) -> None:
        self._last_iteration = -1
        self._sums = {name: dict.fromkeys(_SUMS, 0) for name in _GROUPS}

    def add(self, report: IterationReport) -> None:
        """Add one iteration's time and energy."""
        self._add(report.iteration, report.time_s, report.energy_j, report.point)

    def _add(self, iteration: int, time_s: float, energy_j: float | None, point: int) -> None:
        sums = self._sums[_WITHOUT_PLAN if point == NO_POINT else _UNDER_PLAN]
        time_ns, energy_uj = round(time_s * _NS_PER_S), None if energy_j is None else round(energy_j * UJ_PER_J)
        sums["num_iterations"] += 1
        sums["time_ns"] += time_ns
        if energy_uj is not None:
            sums["num_energies"] += 1
            sums["energy_uj"] += energy_uj
        self._last_iteration = max(self._last_iteration, iteration)

    def restore(self, folder: Path, rank: int) -> int:
        """Go on from what an earlier agent of the rank has summed, and from the lines that it wrote after that.

        Returns:
            The number of those lines.
        """
        with suppress(OSError, *_DAMAGED):
            known = json.loads((folder / totals_file(rank)).read_text())
            sums = {name: {key: int(known[name][key]) for key in _SUMS} for name in _GROUPS}
            self._sums, self._last_iteration = sums, int(known["last_iteration"])
        summed, segments, num_lines = self._last_iteration, ("", "0a", "0b"), 0
        for path in (folder / iterations_file(rank, segment) for segment in segments):
            with suppress(OSError), path.open("rb") as lines:
                for line in lines:
                    with suppress(*_DAMAGED):
                        one = json.loads(line)
                        if one["iteration"] > summed:
                            self._add(one["iteration"], one["time_s"], one["energy_j"], one["point"])
                            num_lines += 1
        return num_lines

    def document(self) -> dict[str, object]:
        """The content of ``totals-<rank>.json``."""
        return {"last_iteration": self._last_iteration, **self._sums}


class IterationLog:
    """Appends iterations. Methods raise ``OSError`` where the disk does not take them.

    Args:
        folder: Exists. Files of this rank in it are of an agent that was killed; this one continues them.
        rank: Global.
        replace: Writes a file of this name that appears whole or not at all.
        segment_bytes: A segment is left for the other one of its level once it is longer.
    """

    def __init__(
        self, folder: Path, rank: int, replace: Callable[[str, str], None], *, segment_bytes: int = SEGMENT_BYTES
    ) -> None:
        self._folder = folder
        self._rank = rank
        self._replace = replace
        self._segment_bytes = segment_bytes
        self._totals = IterationTotals()
        self._num_unsaved = self._totals.restore(folder, rank)
        if self._num_unsaved:
            self._save_totals()  # before a segment is emptied that holds these lines
        # Opened once: an agent of another run unlinks this file, and later lines of this one are lost.
        self._begin = open_continued(folder / iterations_file(rank))
        self._has_begun = self._begin.tell() > 2 * segment_bytes  # with the segments: the begin is full
        self._levels: list[_Level] = []

    def append(self, reports: Sequence[IterationReport]) -> None:
        """Add iterations, in one write for each file."""
        for report in reports:
            self._totals.add(report)
        lines = [(report.iteration, json.dumps(asdict(report)) + "\n") for report in reports]
        if not self._has_begun:
            _write(self._begin, "".join(line for _, line in lines))
            self._has_begun = self._begin.tell() > 2 * self._segment_bytes
        else:
            self._append_to_levels(lines)
        self._num_unsaved += len(reports)
        is_new_level = self._has_begun and not self._levels  # from here on lines alone do not tell all
        if self._num_unsaved >= _TOTALS_EVERY or is_new_level:
            self._save_totals()

    def close(self) -> None:
        """Save the totals and close all segments."""
        if self._num_unsaved:
            self._save_totals()
        self._begin.close()
        for level in self._levels:
            level.close()

    def _append_to_levels(self, lines: Sequence[tuple[int, str]]) -> None:
        if not self._levels:
            self._levels = [_Level(self._folder, self._rank, level, self._segment_bytes) for level in range(NUM_LEVELS)]
        for number, level in enumerate(self._levels):
            stride = STEP**number
            level.append("".join(line for iteration, line in lines if iteration % stride == 0))

    def _save_totals(self) -> None:
        self._num_unsaved = 0
        self._replace(totals_file(self._rank), json.dumps(self._totals.document()) + "\n")


class _Level:
    """Two segments that overwrite each other in turns; the newer one of an earlier agent is continued."""

    def __init__(self, folder: Path, rank: int, level: int, segment_bytes: int) -> None:
        paths = (folder / iterations_file(rank, f"{level}{letter}") for letter in "ab")
        self._paths = sorted(paths, key=_first_iteration, reverse=True)  # the one that lines go to first
        self._segment_bytes = segment_bytes
        self._file = open_continued(self._paths[0]) if self._paths[0].exists() else None

    def append(self, text: str) -> None:
        """Add lines; no file is made for none."""
        if not text:
            return
        if self._file is not None and self._file.tell() > self._segment_bytes:
            full, self._file = self._file, None
            self._paths.reverse()
            full.close()  # raises where a file server has had no room for what was written; the file is closed then
        if self._file is None:
            self._file = self._paths[0].open("w", encoding="utf-8")
        _write(self._file, text)

    def close(self) -> None:
        """Close the open segment."""
        if self._file is not None:
            self._file.close()


def _first_iteration(path: Path) -> int:
    """Of a segment; -1 for one that is missing, empty or damaged."""
    with suppress(OSError, *_DAMAGED), path.open("rb") as lines:
        return int(json.loads(lines.readline())["iteration"])
    return -1


def open_continued(path: Path) -> TextIO:
    """A file to append lines to; a line that was cut off does not take the next one with it."""
    file = path.open("a", encoding="utf-8")
    if file.tell():
        with path.open("rb") as written:
            written.seek(-1, os.SEEK_END)
            if written.read(1) != b"\n":
                file.write("\n")
    return file


def _write(file: TextIO, text: str) -> None:
    file.write(text)
    file.flush()
