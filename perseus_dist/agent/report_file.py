"""The file in which a rank keeps its iterations: one JSON object a line, for whoever wants to know afterwards."""

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from perseus_dist.messages import IterationReport

_log = logging.getLogger(__name__)


class ReportFile:
    """``rank-<rank>.jsonl`` in a folder. Never raises: what cannot be written is dropped, with one warning."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._path = folder / f"rank-{rank}.jsonl"
        self._is_trouble_told = False

    def append(self, reports: Sequence[IterationReport]) -> None:
        """Add lines, all in one write."""
        text = "".join(json.dumps(asdict(report)) + "\n" for report in reports)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            if not self._is_trouble_told:
                self._is_trouble_told = True
                _log.warning("iterations are not kept, %s cannot be written: %s", self._path, error.strerror or error)
